"""`make test-gpu`: what only a graphics card can prove, a line each, on one machine or on a pair.

    PYTHON=python3 make test-gpu                          on this machine's card
    PYTHON=python3 make test-gpu LINES=triton,sigterm     some lines; AGAIN=1 also where there is a result
    make test-gpu INVENTORY=inventory/homelab PAIR=gpu-master,gpu-worker-1
    make test-gpu DEVICE=cpu                              what a CPU can do of it; the rest is judged on recorded ones

Any Python with torch will do; what is missing is said: skipped: needs …. Nothing is fetched, no setting of a card is
changed, nothing stays running. Results lie in results/test-gpu. All of them are in to-post.md there: it has no name, no
address and no path of yours. Ends with 1 if a line failed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.gpu import post, results
from tests.gpu.line import Line, Verdict
from tests.gpu.lines import LINES
from tests.gpu.machine import ROOT, TRAINER, Machine, look
from tests.gpu.process import Processes, read
from tests.gpu.results import Result
from tests.gpu.runs import PATIENCE
from tests.gpu.table import table
from train.errors import BadInput
from train.plan.settings.read_settings import nearest


def main() -> int:
    try:
        return run(parse())
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--lines", default="", help=f"of {', '.join(LINES)}")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--pair", default="", help="two nodes of the inventory: the lines of a pair, and no others")
    parser.add_argument("--inventory", default="inventory/homelab")
    parser.add_argument("--model", default="", help="of a pair's runs (default smollm2-135m; an hour of llama2-7b)")
    parser.add_argument("--results", type=Path, default=ROOT / "results/test-gpu")
    parser.add_argument("--again", action="store_true", help="also what has a result already")
    return parser.parse_args()


def run(args: argparse.Namespace) -> int:
    pair = tuple(filter(None, args.pair.split(",")))
    machine = look(args.device, pair)
    lines = chosen(args.lines, pair=bool(pair) and not args.lines)
    if "torch" not in machine.modules and not pair:
        raise BadInput(
            f"{sys.executable} has no torch",
            fix="PYTHON=~/ai-cluster/env/bin/python make test-gpu, or another that has",
        )
    if machine.device == "cuda" and not machine.cards and not pair:
        raise BadInput(f"torch of {sys.executable} sees no card", fix="nvidia-smi; or DEVICE=cpu for what needs none")
    args.results.mkdir(parents=True, exist_ok=True)
    say(f"{machine.name} · results in {args.results}")
    found = list(go_through(lines, machine, args))
    whole, date = with_earlier(found, machine, args.results), time.strftime("%Y-%m-%d")
    file = args.results / post.file_name(machine)
    file.write_text(post.post(machine, whole, date))
    say("", *table(machine, whole, date), "", f"please post this file, it has no name, address or path: {file}")
    return 1 if any(one["state"] == "failed" for one in found) else 0


def with_earlier(found: list[Result], machine: Machine, folder: Path) -> list[Result]:
    """The table is of all that is known here, also where only some lines were asked for."""
    by_name = {one["line"]: one for one in found}
    earlier = {name: results.known(folder, line, machine) for name, line in LINES.items() if name not in by_name}
    return [one for name in LINES if (one := by_name.get(name) or earlier.get(name))]


def chosen(words: str, *, pair: bool) -> list[Line]:
    names = [word for word in words.split(",") if word]
    for name in names:
        if name not in LINES:
            raise BadInput(f"there is no line '{name}'{nearest(name, LINES)}", fix="see: python -m tests.gpu --help")
    return [line for line in LINES.values() if (line.name in names if names else not pair or is_of_pair(line))]


def is_of_pair(line: Line) -> bool:
    return "PAIR=NODE,NODE" in line.needs


def go_through(lines: list[Line], machine: Machine, args: argparse.Namespace) -> Iterator[Result]:
    processes: Processes | None = None
    with tempfile.TemporaryDirectory(prefix=".work-", dir=args.results) as work:
        try:
            for line in lines:
                found = without_measuring(line, machine, args)
                if found is None:
                    processes = processes or Processes(warm=machine.modules >= set(TRAINER), device=machine.device)
                    found = measure(line, machine, args, processes, Path(work))
                say(f"{found['state']:>9}  {line.name:24} {found['sentence']}")
                yield found
        finally:
            if processes:
                processes.close()


def without_measuring(line: Line, machine: Machine, args: argparse.Namespace) -> Result | None:
    if machine.device == "cpu" and line.simulated and not (machine.pair and is_of_pair(line)):
        return results.simulate(line)
    if lacking := machine.lacks(line.needs):
        return results.result(line, "skipped", f"needs {', '.join(lacking)}")
    return None if args.again else results.known(args.results, line, machine)


def measure(line: Line, machine: Machine, args: argparse.Namespace, processes: Processes, work: Path) -> Result:
    started = time.monotonic()
    place, out, said = work / "place.json", work / "out.json", args.results / f"{line.name}.log"
    folder, shared = work / line.name, work / "shared"
    for one in (folder, shared):
        one.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    given = {"device": "cpu" if machine.device == "cpu" else "cuda:0", "pair": machine.pair}
    given |= {"inventory": args.inventory, "model": args.model}
    place.write_text(json.dumps(given | {"folder": str(folder), "shared": str(shared), "results": str(args.results)}))
    limit_s = line.limit_s * (PATIENCE if machine.device == "cpu" else 1)
    why = processes.run(["-m", "tests.gpu.one", line.name, str(place), str(out)], said, limit_s)
    values = read(out) if out.exists() else None
    verdict = Verdict(False, why) if why or values is None else judged(line.judge, values)
    shutil.rmtree(folder, ignore_errors=True)
    return results.keep(args.results, line, machine, verdict, values=values, seconds=time.monotonic() - started)


def judged(judge: Callable[[dict[str, object]], Verdict], values: dict[str, object]) -> Verdict:
    try:
        return judge(values)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return Verdict(False, f"the figures cannot be judged: {traceback.format_exc().splitlines()[-1]}")


def say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
