"""Verbs that mean nothing where a run is a Job of Kubernetes, each with what is done instead."""

MACHINES = "the machines of a Kubernetes are its administrators'"
USED = "a pod trains and nothing else; ./motley fetch --infra kubernetes brings the result here"
VERBS = {
    **dict.fromkeys(("bootstrap", "undo", "doctor", "check-versions", "wake"), MACHINES),
    **dict.fromkeys(("pause", "unpause"), f"{MACHINES}; kubectl drain MACHINE moves its pods elsewhere"),
    **dict.fromkeys(("ask", "eval", "export"), USED),
    "torchrun": "a script of your own is an image of your own there",
    "slurm-conf": "Kubernetes is no Slurm",
    "clean": "checkpoints lie on its volume; a pod of yours can delete them",
}
