"""`make bench`: every benchmark after the other, or PARTS of them; their tables go to docs/BENCHMARKS.md.

    python -m tests.bench [PART …] [--repeats 3]

Wants a machine that does nothing else. A part that fails is named at the end and does not stop the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from train.safe_stdio import may_be_unread

PARTS = {
    "exchange": "an exchange against its link's limit, and what of it hides behind computing",
    "balance": "unequal machines: balanced, even, and a peer: transformers' Trainer, a plain DDP script",
    "turns": "unequal machines, and each alone, in turns of some steps",
    "near_sum": "how near machines of pretended speeds come to their sum, in turns",
    "predict": "what a plan predicts, and what lab hosts then take",
    "slow_links": "exact sync and local steps over slow links",
    "pretrain": "a model from nothing, beside GPT-2's class on the same rows",
    "growth": "clusters of 5, 16 and 64 nodes, as far as they can be played",
    "rewards": "training by rewards at speeds 4:2:1, and each machine alone, in turns of some steps",
    "pieces": "work in pieces at speeds 4:2:1, and each machine alone",
    "serve": "eight requests at once to three unequal machines, and to each alone, in turns",
    "pipes": "a model cut over machines, beside its plan and beside a streamed base",
    "stream": "a step whose base is streamed, beside one whose base is held",
    "verdicts": "how long a model's proof takes, family by family",
    "prepare": "a data set into rows, beside the tokenizer alone",
    "look": "check-versions, doctor and a plan, of healthy machines",
    "launch": "from the command to the first step, with and without loading early",
    "bootstrap": "a second bootstrap, where every phase looks",
    "demo": "where the seconds of the demo go",
    "storm": "half an hour of faults on sixteen played machines: what reaches the curve",
    "engines": "five losses under our agent, torchrun elastic and torchft",
    "faults": "the three worst losses, again and again",
}


def main() -> int:
    listed = "\n".join(f"  {name:<10}{what}" for name, what in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    failed = []
    for part in args.parts or PARTS:
        since = time.monotonic()
        print(f"== {part}: {PARTS[part]}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.{part}", "--repeats", str(args.repeats)]
        if subprocess.run(command, check=False).returncode:
            failed.append(part)
        print(f"== {part}: {time.monotonic() - since:.0f} s", flush=True)
    subprocess.run([sys.executable, "-m", "tests.bench.tables"], check=True)
    if failed:
        print(f"failed: {', '.join(failed)}; alone: make bench PARTS={failed[0]}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    with may_be_unread():
        status = main()
    sys.exit(status)
