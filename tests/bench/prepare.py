"""`prepare` against its limit, the tokenizer alone: MB/s of a core, on all cores, and the memory of a gigabyte.

The tokenizer alone is measured in both its forms: with each token's place in the text, and without. `prepare` begins by
reading libraries and the tokenizer, which takes as long for few rows as for many.

    make bench PARTS=prepare
    python -m tests.bench.prepare rates --repeats 3
    python -m tests.bench.prepare gigabyte --repeats 1

The file is chats: 30 random words of the Python manual as a question, 50 to 400 running ones as an answer.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.page import Figures, Found, bench, row
from tests.bench.trainer import PYTHON, answer
from tests.support.cluster import REPOSITORY
from tests.support.tables import table as table_of

NAME = "prepare"
MODEL, ROW_LENGTH = "smollm2-135m", 1024
MB, PIECES = 50, 20
"""Of the file for the rates; the gigabyte is so many of it."""
FEW = 20
"""Rows of which none takes time."""
THEN = "… once it has begun, of the tokenizer alone"
WRITE = """
import json, random, sys
from pydoc_data.topics import topics

words = [word for name in sorted(topics) for word in topics[name].split()]
dice, left = random.Random(0), int(sys.argv[2]) * 1_000_000
with open(sys.argv[1], "w") as file:
    while left > 0:
        count = dice.randrange(50, 401)
        start = dice.randrange(len(words) - count)
        question, answer = " ".join(dice.choices(words, k=30)), " ".join(words[start : start + count])
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        left -= file.write(json.dumps({"messages": turns}) + "\\n")
"""
ALONE = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from train.data.to_tokens import load_chat
from train.plan.model.catalogue import resolve_model

chat = load_chat(resolve_model(sys.argv[2]))
encode_batch, took = getattr(chat.tokenizer.backend_tokenizer, sys.argv[3]), 0.0
with open(sys.argv[1]) as file:
    while lines := file.readlines(1 << 17):
        texts = [chat.render(json.loads(line)["messages"]) for line in lines]
        since = time.process_time()
        tokens = [encoding.ids for encoding in encode_batch(texts, add_special_tokens=False)]
        took += time.process_time() - since
print(took)
"""


@contextmanager
def written() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        file = Path(folder) / "chats.jsonl"
        subprocess.run([str(PYTHON), "-c", WRITE, str(file), str(MB)], check=True)
        yield file


def rates(file: Path) -> Figures:
    """In turns: the tokenizer alone, with places and without, all of `prepare` on one core, and on all of them."""
    mb = file.stat().st_size / 1e6
    alone, without = (mb / tokenizing_s(file, form) for form in ("encode_batch", "encode_batch_fast"))
    cores = sorted(os.sched_getaffinity(0))
    begin = prepared(few(file), cores[:1])
    one, every = prepared(file, cores[:1]), prepared(file, cores)
    return {
        "alone": alone,
        "without_places": without,
        "begin_s": begin["cpu_s"],
        "core": mb / one["cpu_s"],
        "core_then": mb / (one["cpu_s"] - begin["cpu_s"]),
        "all": mb / every["wall_s"],
        "each": mb / every["cpu_s"],
        "cores": len(cores),
    }


def few(file: Path) -> Path:
    small = file.with_name("few.jsonl")
    with file.open() as lines:
        small.write_text("".join(itertools.islice(lines, FEW)))
    return small


def tokenizing_s(file: Path, form: str) -> float:
    """Seconds of a core that the tokenizer alone takes, by this method of it."""
    return float(answer("-c", ALONE, file, MODEL, form))


def gigabyte(file: Path) -> Figures:
    large = file.with_name("large.jsonl")
    with large.open("wb") as out:
        for _ in range(PIECES):
            out.write(file.read_bytes())
    found = prepared(large, sorted(os.sched_getaffinity(0)))
    rows = sum(part.stat().st_size for part in large.with_suffix(".rows").rglob("*.bin"))
    return {"mb": large.stat().st_size / 1e6, "rows_mb": rows / 1e6, **found}


def prepared(file: Path, cores: list[int]) -> Figures:
    out = file.with_suffix(".rows")
    subprocess.run(["rm", "-rf", out], check=True)
    words = ["taskset", "-c", ",".join(map(str, cores)), str(PYTHON), "-m", "train", "prepare", f"--dataset={file}"]
    words += [f"--model={MODEL}", f"--max-seq-length={ROW_LENGTH}", f"--out={out}"]
    since, peak, largest = time.monotonic(), 0.0, 0.0
    process = subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        each = [memory(pid) for pid in family(process.pid)]
        peak = max(peak, sum(share for share, _ in each))
        largest = max([largest, *(most for _, most in each)])
        time.sleep(0.1)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(words)}")
    wall_s = time.monotonic() - since
    return {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "peak_mb": peak, "largest_mb": largest}


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def memory(pid: int) -> tuple[float, float]:
    """MB: its share of what it holds, where others hold it too; the most that it ever held."""
    try:
        share = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text())
        most = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0, 0.0
    return (int(share[1]) * 1024 / 1e6 if share else 0.0), (int(most[1]) * 1024 / 1e6 if most else 0.0)


def table(found: Found) -> list[str]:
    runs, large = found["rates"], found["gigabyte"]
    rows = [
        row("the tokenizer alone, MB/s of a core", [run["alone"] for run in runs], "{:.2f}"),
        row("… without the places of its tokens", [run["without_places"] for run in runs], "{:.2f}"),
        row("`prepare` on one core, MB/s", [run["core"] for run in runs], "{:.2f}"),
        row("… of the tokenizer alone", [run["core"] / run["alone"] for run in runs], "{:.0%}"),
        row(THEN, [run["core_then"] / run["alone"] for run in runs], "{:.0%}", "≥ 95 %"),
        row("seconds of a core until then", [run["begin_s"] for run in runs], "{:.1f}"),
        row(f"on {runs[0]['cores']} cores, MB/s", [run["all"] for run in runs], "{:.2f}"),
        row("… of a core's time, MB/s", [run["each"] for run in runs], "{:.2f}"),
        row(f"{large[-1]['mb']:.0f} MB on all cores, s", [run["wall_s"] for run in large], "{:.0f}"),
        row("… MB/s", [run["mb"] / run["wall_s"] for run in large], "{:.2f}"),
        row("… peak memory of all its processes, MB", [run["peak_mb"] for run in large], "{:.0f}", "≤ 150"),
        row("… of the largest of them, MB", [run["largest_mb"] for run in large], "{:.0f}"),
        row("… the rows, MB", [run["rows_mb"] for run in large], "{:.0f}"),
    ]
    return table_of(("", "measured", "aim"), rows)


PARTS = {"rates": rates, "gigabyte": gigabyte}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, written(), PARTS, table))
