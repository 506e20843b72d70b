"""`./motley export --to hub:USER/NAME`: a fetched result goes to the Hugging Face hub, after a question. From here, as
the token stays here; as a private repository unless there is one of that name already.

python -m console.push FOLDER USER/NAME      (what does it, with the token in its environment)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console import hub
from console.report.read_run import NothingHappened, newest_run
from console.text_layout import agreed, counted, say
from train.errors import BadInput, CheckFailed
from train.files import file_hash
from train.runlog.paths import MADE

HUB = "hub:"
NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*", re.ASCII)
NEEDED = ("hub: nobody is known there without a token", "", "fix: HF_TOKEN=… before the command; of the type Write")


def push(to: str, run: str, results: Path, variables: Mapping[str, Any], *, yes: bool) -> int:
    """`variables`: of a machine, which may have the token locked."""
    repo = to.removeprefix(HUB)
    if not NAME.fullmatch(repo):
        raise BadInput(f"to: '{repo}' names no repository of the hub", fix="fix: --to hub:USER/NAME")
    folder = result_of(run, results)
    if not (token := hub.token(variables)):
        raise BadInput(*NEEDED)
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    say(f"{folder} → https://huggingface.co/{repo}, private unless it is there already")
    for path in files:
        say(f"{path.stat().st_size / 1e6:10.1f} MB  {path.name}")
    if not yes and not agreed("send it?"):
        say("nothing was sent (without a terminal: --yes)")
        return 1
    command = [sys.executable, "-m", "console.push", str(folder), repo]
    env = hub.environment() | token | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, cwd=hub.ROOT)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise CheckFailed(f"the hub did not take {repo}: {why}", fix="fix: may the token write there? Then again")
    say(f"sent: {counted(len(files), 'file')}, each with its hash there   https://huggingface.co/{repo}")
    return 0


def result_of(run: str, results: Path) -> Path:
    try:
        folder = results / run if run else newest_run(results)
    except NothingHappened as nothing:
        raise BadInput(str(nothing)) from None
    made = next((folder / name for name in MADE if (folder / name).is_dir()), None)
    if made is None:
        raise BadInput(
            f"the result of {folder.name} is not here", f"folder: {folder}", f"fix: ./motley fetch {folder.name}"
        )
    return made


def send(folder: Path, repo: str) -> None:
    """Sends all files in one commit, and reads back what the hub has of each."""
    from huggingface_hub import HfApi  # noqa: PLC0415  half a second, for this alone

    api = HfApi()
    api.create_repo(repo, private=True, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"{folder.parent.name}, trained by Motley")
    there = {one.rfilename: one for one in api.model_info(repo, files_metadata=True).siblings or []}
    for path in folder.iterdir():
        found = there.get(path.name)
        if found is None or found.size != path.stat().st_size or (found.lfs and found.lfs.sha256 != file_hash(path)):
            raise CheckFailed(f"{path.name} is not there as it was sent")


def main() -> int:
    try:
        send(Path(sys.argv[1]), sys.argv[2])
    except Exception as error:  # the hub's own words, in one line
        print(" ".join(str(error).split())[:300] or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ.pop("HF_HUB_OFFLINE", None)
    sys.exit(main())
