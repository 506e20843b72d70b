"""A toy infra: its one node is a folder of this machine, a box, in which a run is a program of a few lines."""

from console.infra import Infra

INFRA = Infra(
    fetches=True,
    keys={"motley_box_steps": "int"},
    refused={"at": "a box keeps no time\nfix: leave it out"},
    lacks={"bootstrap": "there is nothing to prepare in a box"},
)
