"""A Kubernetes of somebody else's, by kubectl: a run is an Indexed Job there, and its nodes are the Job's pods."""

from console.infra import Infra
from console.infra.kubernetes.settings import KEYS

MACHINES = "the machines of a Kubernetes are its administrators'"
USED = "a pod trains and nothing else; ./motley fetch --infra kubernetes brings the result here"
INFRA = Infra(
    fetches=True,
    keys=KEYS,
    refused={
        "nodes": "Kubernetes chooses them\nfix: --set motley_kubernetes_pods=3, or motley_kubernetes_node_selector",
        "adapter": "nothing brings its files to the pods\nfix: merge it at home, and use that as model:"
        " ./motley export --to merged",
        "queue": "Kubernetes has queues of its own (Kueue)\nfix: leave it out, or --set motley_kubernetes_labels",
        "at": "Kubernetes keeps no time\nfix: leave it out, or let a queue begin it (Kueue)",
        "then": "the machines of a Kubernetes are not ours to switch off\nfix: leave it out",
    },
    lacks={
        **dict.fromkeys(("bootstrap", "undo", "doctor", "check-versions", "wake"), MACHINES),
        **dict.fromkeys(("pause", "unpause"), f"{MACHINES}; kubectl drain MACHINE moves its pods elsewhere"),
        **dict.fromkeys(("ask", "chat", "serve", "eval", "export"), USED),
        "torchrun": "a script of your own is an image of your own there",
        "queue": "Kubernetes has queues of its own, such as Kueue",
        "slurm-conf": "Kubernetes is no Slurm",
        "clean": "checkpoints lie on its volume; a pod of yours can delete them",
    },
)
