"""The agent itself."""

from train.cluster import agent, notifier
from train.errors import BadInput


def failing_agent(step: int) -> None:
    """The agent's: something that nobody has thought of, once this step is trained."""
    look = agent.LocalWorkers.look

    def fails(workers, generation):
        if workers.progress.step >= step and agent.LocalWorkers.look is fails:
            agent.LocalWorkers.look = look  # what it does to end well is not broken
            raise BadInput("no port is free")
        return look(workers, generation)

    agent.LocalWorkers.look = fails


def told_soon(seconds: int) -> None:
    """Nothing broken, the agent's: a machine is lost and a majority missing after these seconds."""
    notifier.LOST_S = notifier.MAJORITY_S = seconds
