"""Files of the Hugging Face hub, where a node is online; offline, an answer that says so."""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from train.errors import BadInput, Gated, first_line, last_line
from train.files import DISK_FULL

MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
"""The files of a model that are loaded: none that would have to be unpickled."""
NOT_NEEDED = ("consolidated*", "training_args*", "optimizer*")
"""The files among them that nobody reads, such as a second copy of the weights."""
LOUD = ("huggingface_hub.utils._http", "huggingface_hub.file_download")
"""The loggers that would print each try."""
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)


def hub_file(repo: str, name: str, kind: str = "model", revision: str | None = None) -> Path:
    from huggingface_hub import hf_hub_download

    with explained(repo, kind):
        return Path(hf_hub_download(repo, name, repo_type=kind, revision=revision))


def hub_model(repo: str) -> Path:
    from huggingface_hub import snapshot_download

    with explained(repo, "model"):
        folder = Path(snapshot_download(repo, allow_patterns=[*MODEL_FILES], ignore_patterns=[*NOT_NEEDED]))
    if not any(folder.glob("*.safetensors")):
        raise no_safetensors(repo)
    return folder


def hub_adapter(repo: str, files: Sequence[str]) -> Path:
    """Fetches these files of an adapter; the hub's cache keeps them."""
    from huggingface_hub import HfApi

    with explained(repo, "model"):
        info = HfApi().model_info(repo)
    names = {entry.rfilename for entry in info.siblings or []}
    if files[0] not in names:
        raise BadInput(
            f"adapter: {repo} is no adapter: it has no {files[0]}",
            f"model: https://huggingface.co/{repo}",
            "a whole model is named as model=",
        )
    fetched = [hub_file(repo, name, revision=info.sha) for name in files if name in names]
    return fetched[0].parent


def no_safetensors(repo: str) -> BadInput:
    return BadInput(
        f"{repo} has no weights as .safetensors, and pickled ones are not loaded",
        f"model: https://huggingface.co/{repo}",
        "choose a variant that has them",
    )


def pip(*words: str) -> str:
    """Runs pip with hashes as its lock has them; why it failed, or nothing."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    command += ["--quiet", "--no-input", "--no-deps", "--require-hashes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return last_line(done.stderr) if done.returncode else ""


@contextmanager
def calm(repo: str) -> Iterator[None]:
    """Puts one line in place of all warnings of the library: that it tries again, and what may help meanwhile."""
    loggers, said = [logging.getLogger(name) for name in LOUD], list[str]()

    def one_line(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        error, fails, _ = message.partition(" thrown while requesting")
        error = error.strip("'")
        if (fails or "Rate limited" in message) and not said:
            said.append(message)
            what, fix = "the hub wants fewer questions", "HF_TOKEN=… allows more"
            if fails:
                what = f"the hub does not answer ({error})"
                fix = "check the connection, and HTTPS_PROXY where there is a proxy"
            print(f"{repo}: {what} · trying again for half a minute; {fix}", file=sys.stderr, flush=True)
        return record.levelno >= logging.ERROR

    for logger in loggers:
        logger.addFilter(one_line)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(one_line)


@contextmanager
def explained(repo: str, kind: str) -> Iterator[None]:
    """What keeps a file from coming, in words: the hub, the name that was given, or this machine's disk."""
    from httpx import TransportError
    from huggingface_hub import errors

    try:
        with calm(repo):
            yield
    except errors.GatedRepoError:
        raise Gated(
            f"{repo} is gated: its owner wants the licence accepted first",
            f"{kind}: https://huggingface.co/{repo}",
            "accept it there with your account, then set HF_TOKEN on the controller",
        ) from None
    except errors.HFValidationError as error:
        raise _unreachable(repo, kind, f"the hub has no such names: {error}") from None
    except errors.HfHubHTTPError as error:
        raise _unreachable(repo, kind, first_line(error)) from None
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError, TransportError, OSError) as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL + NO_RIGHT:
            raise _not_kept(repo, error) from None
        reason = f"not in this machine's hub cache, and the hub cannot be reached ({type(error).__name__})"
        raise _unreachable(repo, kind, reason) from None


def _not_kept(repo: str, error: OSError) -> BadInput:
    where = f"file: {error.filename}" if error.filename else ""
    fix = "make room on this machine's disk (df -h)" if error.errno in DISK_FULL else "let this user write there"
    return BadInput(f"{repo} cannot be kept on this machine: {error.strerror}", where, fix)


def _unreachable(repo: str, kind: str, reason: str) -> BadInput:
    return BadInput(
        f"{repo} could not be fetched: {reason}",
        f"{kind} of the Hugging Face hub",
        "check the name and the connection, or give a local folder or file instead",
    )
