"""Which machines that came back may join: one that was lost soon after it had joined waits for longer each time.
Whatever else a machine needs to join is membership.py's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from train.cluster.heartbeat import Peer
from train.cluster.timing import TIMING


@dataclass
class Newcomers:
    """A node that was lost soon after it had joined must be reachable for longer each time before it joins again."""

    since: dict[str, float] = field(default_factory=dict)
    """When each member joined; who was there when this node came may have been there for long."""
    hold_s: dict[str, float] = field(default_factory=dict)
    lost_at: dict[str, float] = field(default_factory=dict)

    def note(self, members: Sequence[str], at: float) -> None:
        """Takes in the members of each generation, also of one that was over within a moment."""
        joined = at if self.since else -math.inf
        for name in [name for name in self.since if name not in members]:
            self.lost_at[name] = at
            if at - self.since.pop(name) < TIMING.soon_s:
                self.hold_s[name] = min(TIMING.hold_most_s, 2 * self.hold_s.get(name, TIMING.hold_s / 2))
            else:
                self.hold_s.pop(name, None)
        for name in members:
            self.since.setdefault(name, joined)

    def welcome(self, peers: Mapping[str, Peer], at: float) -> list[str]:
        """Peers that may join. Each waits from its loss on, too: one back within three seconds was never silent."""
        out_since = {name: max(peer.since, self.lost_at.get(name, 0.0)) for name, peer in peers.items()}
        return [name for name, since in out_since.items() if at - since >= self.hold_s.get(name, 0.0)]
