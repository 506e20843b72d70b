"""A run that is trained by rewards, in its report: the reward in place of the loss, which says nothing there."""

from __future__ import annotations

from statistics import mean

from console.report import svg_charts
from console.report.read_run import History
from console.report.svg_charts import HELD_OUT, TREND, Axes, Line, Point, chart, colour
from train.runlog.state import Event

LATELY = 20
"""Steps."""
SECONDS = ("generate_s", "generate_wait_s")


def is_rewarded(history: History) -> bool:
    return any("rollout" in step for step in history.steps)


def reward_of(event: Event) -> float | None:
    """The reward of a step, or of an evaluation."""
    measured = event.get("rollout") or event.get("metrics") or {}
    return measured.get("reward")


def reward_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    steps: list[Point] = [(float(step["step"]), reward_of(step)) for step in history.steps]
    evals: list[Point] = [(float(event["step"]), reward_of(event)) for event in history.evals]
    lines = [*svg_charts.trend_lines(steps), Line(name="held-out", points=evals, colour=HELD_OUT, dots=True)]
    axes = Axes(x_name="step", y_name="reward", from_zero=False, whole="x")
    text = f"Higher is better. {spoken(history.steps[-1])}{clipped_words(history.steps)}"
    return chart("reward", "Reward", text, svg_charts.line_chart("reward", lines, axes, marks))


def spoken(step: Event) -> str:
    """The last step's answers, in words."""
    rollout = step["rollout"]
    functions = ", ".join(f"{name} {value:.3f}" for name, value in rollout["by_function"].items())
    answers = f"answers of {rollout['answer_tokens']:.0f} tokens, {100 * rollout['cut']:.0f} % cut off"
    return (
        f"At the end: {functions}; {answers}; {100 * rollout['equal_groups']:.0f} % of the groups without a difference."
    )


def clipped_words(steps: list[Event]) -> str:
    """What the bounds held back lately, where several steps train on the same answers."""
    shares = [step["rollout"]["clipped"] for step in steps[-LATELY:] if "clipped" in step["rollout"]]
    if not shares:
        return ""
    share = 100 * sum(shares) / len(shares)
    return f" Of the tokens of the last {len(shares)} steps {share:.1f} % were beyond their bounds (epsilon)."


def length_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    points: list[Point] = [(float(step["step"]), step["rollout"]["answer_tokens"]) for step in history.steps]
    axes = Axes(x_name="step", y_name="tokens", whole="x")
    lines = [Line(name="tokens of an answer", points=svg_charts.smoothed(points), colour=TREND)]
    text = "How long the answers are. Where they only grow or only shrink, look at some: a reward may ask for it."
    return chart("answers", "Answers", text, svg_charts.line_chart("answers", lines, axes, marks))


def halves_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    """Where the seconds of a step go: to answers, to training, and to waiting for others."""
    halves = [(float(step["step"]), *halves_of(step)) for step in history.steps]
    lines = [
        Line(name=name, points=svg_charts.smoothed([(step[0], step[at + 1]) for step in halves]), colour=colour(at))
        for at, name in enumerate(("making answers", "training", "waiting, on average"))
    ]
    axes = Axes(x_name="step", y_name="s")
    text = (
        f"The seconds of the machine that took longest for each half. Lately: {'; '.join(by_machine(history.steps))}."
    )
    return chart("halves", "Seconds of a step", text, svg_charts.line_chart("halves", lines, axes, marks))


def halves_of(step: Event) -> tuple[float, float, float]:
    """Seconds of making answers and of training, of who took longest; and of waiting in both, on average."""
    nodes, made_s = step["nodes"], step["rollout"]["generate_s"]
    trained_s = [node["compute_s"] - made_s.get(name, 0.0) for name, node in nodes.items()]
    waited_s = [node["wait_s"] for node in nodes.values()]
    return max(made_s.values()), max(trained_s), sum(waited_s) / len(waited_s)


def by_machine(steps: list[Event]) -> list[str]:
    """What each machine of the last step did in the last steps, a step."""
    lines = []
    for name in steps[-1]["nodes"]:
        there = [step for step in steps[-LATELY:] if name in step["nodes"]]
        made_s, wait_s = (mean([step["rollout"].get(what, {}).get(name, 0.0) for step in there]) for what in SECONDS)
        both_s, waits_s = (mean([step["nodes"][name][what] for step in there]) for what in ("compute_s", "wait_s"))
        answers = mean([step["rollout"].get("made", {}).get(name, 0) for step in there])
        lines.append(
            f"{name} {answers:.1f} answers in {made_s:.2f} s, {both_s - made_s:.2f} s of training, "
            f"{wait_s:.2f} s of waiting for answers and {max(0.0, waits_s - wait_s):.2f} s for the others' training"
        )
    return lines


def function_chart(history: History, marks: list[svg_charts.Mark]) -> dict[str, str]:
    """A line for each function, without its weight."""
    names = dict.fromkeys(name for step in history.steps for name in step["rollout"]["by_function"])
    lines = [
        Line(
            name=name,
            points=svg_charts.smoothed(
                [(float(s["step"]), s["rollout"]["by_function"].get(name)) for s in history.steps]
            ),
            colour=colour(at),
        )
        for at, name in enumerate(names)
    ]
    axes = Axes(x_name="step", y_name="reward", from_zero=False, whole="x")
    text = (
        "What each function gives, without its weight. One that jumps up while another falls is a sign: read answers."
    )
    return chart("functions", "Functions", text, svg_charts.line_chart("functions", lines, axes, marks))


def outcome(history: History) -> tuple[str, str, str]:
    """What the reward became: title, figures, and what they are of."""
    events = [event for event in history.evals if reward_of(event) is not None]
    few = max(1, min(5, len(history.steps) // 4))
    if not events:
        parts = (history.steps[:few], history.steps[-few:])
        found = [sum(step["rollout"]["reward"] for step in part) / len(part) for part in parts]
        return "training reward", " → ".join(f"{value:.3f}" for value in found), "no held-out prompts were asked"
    first, last = events[0], history.of_result
    values = dict.fromkeys(f"{event['metrics']['reward']:.3f}" for event in (first, last))
    steps = f"step {first['step']} → {last['step']}" if first is not last else f"step {last['step']}"
    return "held-out reward", " → ".join(values), f"{steps}; higher is better"
