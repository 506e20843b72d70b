"""A Slurm of somebody else's, by its login node: a run is a job there."""

from console.infra import Infra

MACHINES = "the machines of a Slurm are its administrators'"
INFRA = Infra(
    one_host="one host, the login node: which nodes a job gets, Slurm decides (slurm_options)",
    keys={"motley_slurm_options": "str"},
    variables=("slurm_options", "slurm_gpu_gb", "sweep"),
    refused={
        "nodes": "Slurm chooses them\nfix: --slurm-options '--nodes=3', or '--nodelist=NAMES'",
        "queue": "Slurm has a queue of its own, in which a job waits for its turn\nfix: leave it out",
        "at": "Slurm keeps the time\nfix: --slurm-options '--begin=22:00'",
        "then": "the machines of a Slurm are not ours to switch off\nfix: leave it out",
    },
    lacks={
        "doctor": f"{MACHINES}; sinfo -R shows what is wrong with them",
        **dict.fromkeys(("pause", "unpause"), f"{MACHINES}; ./motley stop --infra slurm saves the run and ends it"),
        "queue": "Slurm has a queue of its own: squeue shows it",
        "torchrun": "a script of your own is a job of your own there: sbatch submits it",
    },
    wrong="console.infra.slurm.sbatch_options:wrong",
)
