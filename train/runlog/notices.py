"""What of a run is worth a message to somebody who does not watch. Pure: the run's changes in, notices out."""

from __future__ import annotations

from dataclasses import dataclass, field

from train.notify import Notice
from train.runlog.state import Change, Event, steps_aside, why_lost

LOST_S = 600.0
MAJORITY_S = 60.0


@dataclass(slots=True)
class Notices:
    number: int = 0
    """The number of the newest generation: a run that is continued has higher ones, so its end is another end."""
    lost: dict[str, Event] = field(default_factory=dict)
    waiting: Event | None = None

    def take(self, change: Change) -> None:
        event = change.event
        self.number = max(self.number, int(event.get("epoch", 0)))
        nodes = event.get("nodes") or []
        match change.kind:
            case "lost":
                self.lost |= {name: event for name in nodes if not steps_aside(event, name)}
            case "joined":
                self.lost = {name: known for name, known in self.lost.items() if name not in nodes}
            case "waiting" if event.get("too_few"):
                self.waiting = self.waiting or event
            case "step" | "ended":
                self.waiting = None

    def due(self, run: str, state: str, at: float) -> list[Notice]:
        """What has lasted long enough, by the nodes' clock; the same each time, until it is over."""
        found = [
            Notice(
                "lost",
                run,
                f"{name} is lost since {minutes(at - event['time'])}: {why_lost(event, [name])}",
                f"{event['epoch']}-{name}",
            )
            for name, event in self.lost.items()
            if at - event["time"] >= LOST_S
        ]
        if (event := self.waiting) and state == "waiting" and at - event["time"] >= MAJORITY_S:
            found.append(Notice("waiting", run, f"nobody trains: {event['reason']}", str(event["epoch"])))
        return found

    def end(self, run: str, text: str, *, done: bool) -> Notice:
        return Notice("done" if done else "failed", run, text, str(self.number))


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes"
