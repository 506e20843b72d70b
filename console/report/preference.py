"""A run that is trained by preferences, in its report: how far the better answers are ahead, and how many are."""

from __future__ import annotations

from console.report import svg_charts
from console.report.read_run import History
from console.report.svg_charts import HELD_OUT, TREND, Axes, Line, Point, chart
from train.runlog.state import Event

BETTER, WORSE = svg_charts.colour(0), svg_charts.colour(1)


def is_compared(history: History) -> bool:
    return any("pairs" in step for step in history.steps)


def is_scored(history: History) -> bool:
    """Whether it is a reward model."""
    return any("chosen_reward" in step.get("pairs", {}) for step in history.steps)


def figure(event: Event, name: str) -> float | None:
    """One of the figures of pairs that a step or an evaluation has."""
    figures = event.get("pairs") or event.get("metrics") or {}
    return figures.get(name)


def points(events: list[Event], name: str, times: float = 1.0) -> list[Point]:
    measured = [(float(event["step"]), figure(event, name)) for event in events]
    return [(step, None if value is None else times * value) for step, value in measured]


def both(history: History, name: str, times: float = 1.0) -> list[Line]:
    """One line for training and one for held-out answers."""
    trained = svg_charts.smoothed(points(history.steps, name, times))
    held_out = Line(name="held-out", points=points(history.evals, name, times), colour=HELD_OUT, dots=True)
    return [Line(name="training", points=trained, colour=TREND), held_out]


def margin_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    axes = Axes(x_name="step", y_name="margin", from_zero=False, whole="x")
    text = "By how much the better answers are ahead of the worse ones: higher is better, and 0 is where it began."
    if is_scored(history):
        text = "By how much the better answers score above the worse ones: higher is better."
    return chart("margin", "Margin", text, svg_charts.line_chart("margin", both(history, "margin"), axes, marks))


def accuracy_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    axes = Axes(x_name="step", y_name="% right", whole="x")
    text = "Pairs of which the better answer is ahead; of single answers those that are on their side."
    svg = svg_charts.line_chart("accuracy", both(history, "accuracy", 100), axes, marks)
    return chart("accuracy", "Pairs right", text, svg)


def likelihood_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    lines = better_and_worse(history, "log_p")
    axes = Axes(x_name="step", y_name="log-probability", from_zero=False, whole="x")
    text = (
        "Log-probability of the better and of the worse answers. Both may fall while the margin grows; where the "
        "better ones fall far, the model forgets how to write: a higher beta or a lower learning rate holds it."
    )
    return chart("likelihood", "Likelihood", text, svg_charts.line_chart("likelihood", lines, axes, marks))


def score_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    axes = Axes(x_name="step", y_name="score", from_zero=False, whole="x")
    text = "Mean score of the better and of the worse answers. Only their distance means something."
    lines = better_and_worse(history, "reward")
    return chart("scores", "Scores", text, svg_charts.line_chart("scores", lines, axes, marks))


def better_and_worse(history: History, what: str) -> list[Line]:
    return [
        Line(name=words, points=svg_charts.smoothed(points(history.steps, f"{name}_{what}")), colour=colour)
        for words, name, colour in (("better", "chosen", BETTER), ("worse", "rejected", WORSE))
    ]


def outcome(history: History) -> tuple[str, str, str]:
    """What became of the held-out answers: title, figures, and what they are of."""
    events = [event for event in history.evals if figure(event, "accuracy") is not None]
    where, title = (events, "held-out pairs right") if events else (history.steps, "training pairs right")
    first, last = where[0], history.of_result if events else where[-1]
    right = [f"{100 * (figure(event, 'accuracy') or 0):.0f} %" for event in (first, last)]
    margins = [figure(event, "margin") for event in (first, last)]
    ahead = " → ".join(dict.fromkeys("?" if one is None else f"{one:.3f}" for one in margins))
    steps = f"step {first['step']} → {last['step']}" if first is not last else f"step {last['step']}"
    return title, " → ".join(dict.fromkeys(right)), f"margin {ahead}; {steps}"
