"""Every number of seconds that agents, heartbeats, membership and workers decide by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    # the agent's loop
    tick_s: float = 0.25
    burst_s: float = 0.02
    """How long a burst of news may last, which is taken for one change."""
    finish_s: float = 30.0
    """How long a node whose run is done elsewhere gives its own workers to finish."""
    farewell_s: float = 3.0
    farewell_least_s: float = 1.0
    leave_s: float = 0.3
    show_s: float = 1.0

    # heartbeat: when a peer counts as lost
    rounds: int = 3
    """Without an answer, in a row: at least so many, whatever the seconds below."""
    ask_s: float = 0.5
    reply_s: float = 1.0
    late_s: float = 0.5
    """How much longer than a reply may take a round lasts before it proves nothing."""
    absent_s: float = 3.0
    mute_s: float = 5.0
    pause_s: float = 6.0
    """The pause that voids a generation: more than mute_s, so longer than the others wait before they continue without
    this node."""

    # membership
    settle_s: float = 2.0
    doubt_s: float = 1.5
    backoff_s: float = 1.0
    """The pause before the fourth try of a generation that fails; twice as long each time."""
    backoff_most_s: float = 30.0

    over_s: float = 600.0
    """How long no other machine that answers must have had an agent for the run to be over."""

    # fitness
    again_s: tuple[float, ...] = (120.0, 300.0, 900.0, 1800.0, 3600.0)
    """The rests of a node whose own workers fail."""
    soon_s: float = 20.0
    """How soon after it joined a node must be lost to be held up before it joins again."""
    hold_s: float = 4.0
    hold_most_s: float = 60.0

    # the workers: to save at least (more where there is more to save), to be gone after SIGKILL, to be gone after that,
    # to be on the disk; up to some 600 M trained weights all of it is less than the unit's TimeoutStopSec
    save_s: float = 3.5
    obey_s: float = 3.5
    """How long workers that are told of another group may go on in the old one; or two of their steps."""
    held_s: float = 20.0
    """How long they keep their memory without a group."""
    unkillable_s: float = 3.0
    gone_s: float = 1.0
    keep_s: float = 40.0
    stuck_s: float = 60.0
    """A fork server that has not answered for so long is killed. And whoever has not ended for so long, will not."""
    work_s: float = 2.0
    """Seconds between two looks at whether workers compute or read."""

    # signs of life of a trainer
    first_step_s: float = 900.0
    again_first_step_s: float = 60.0
    stall_s: float = 20.0

    # notices
    retry_s: float = 60.0
    """The pause after a message not sent; twice as long each time, as a command may have told somebody and failed."""
    notice_end_s: float = 40.0
    """How long the end of a run may wait for its message: three tries of this node, and one of the next."""

    # stepping aside
    battery_s: float = 60.0
    use_look_s: float = 5.0
    use_begins_s: float = 20.0
    use_ends_s: float = 300.0

    # the queue: how often the nodes tell each other what they know of it, and a node looks whether its turn has come
    queue_ask_s: float = 2.0
    queue_look_s: float = 0.5

    # an early agent, that waits for its run
    preload_s: float = 60.0
    preload_look_s: float = 0.05


TIMING = Timing()
