"""The report's own numbers, for programs that draw them beside other runs: of the whole run, and of each machine."""

from __future__ import annotations

from console.report.energy import node_kwh
from console.report.read_run import History
from console.report.run_charts import loss_of
from console.report.where_time_goes import COLOURS, part_table


def numbers(history: History) -> dict[str, float]:
    found = {
        "report/minutes": history.seconds / 60,
        "report/tokens": float(sum(step["tokens"] for step in history.steps)),
        "report/steps_trained_twice": float(history.repeated),
    }
    losses = [loss for event in history.evals if (loss := loss_of(event)) is not None]
    if losses:
        found |= {"report/held_out_first": losses[0], "report/held_out_last": losses[-1]}
        found["report/held_out_best"] = min(losses)
    for row in part_table(history):
        found |= {f"report/{part}_percent/{row['name']}": float(row["percent"][n]) for n, part in enumerate(COLOURS)}
    kwh = {node: used for node in history.nodes if (used := node_kwh(history, node)) is not None}
    return found | {f"report/kwh/{node}": used for node, used in kwh.items()}
