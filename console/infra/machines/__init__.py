"""Machines of one's own, by ssh, and folders of this machine: Motley sets them up, and a run is a unit of systemd."""

from console.infra import Infra

INFRA = Infra(ours=True)
