"""What keeps a file of the hub from coming, in three lines: the hub itself, the name, or this machine."""

import errno
import os
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.utils import filter_repo_objects, validate_repo_id

from train.errors import BadInput
from train.hub import explained, hub_model


def raise_os_error(number: int) -> Callable[[], None]:
    return Mock(side_effect=OSError(number, os.strerror(number), "/home/me/.cache/huggingface/hub"))


def not_there() -> None:
    raise LocalEntryNotFoundError("not found")


@pytest.mark.parametrize(
    ("fails", "what", "fix"),
    [
        (not_there, r"not in this machine's hub cache, and the hub cannot be reached", "check the name"),
        (raise_os_error(errno.ENETUNREACH), r"the hub cannot be reached \(OSError\)", "check the name"),
        (raise_os_error(errno.ENOSPC), r"on this machine: No space left on device\nfile: /home/me/", "make room"),
        (raise_os_error(errno.EACCES), r"on this machine: Permission denied\nfile: /home/me/", "user write there"),
        (lambda: validate_repo_id("me/my--model"), "the hub has no such names: Cannot have -- or ..", "check the name"),
        (lambda: validate_repo_id("me/model."), "the hub has no such names", "check the name"),
    ],
)
def test_what_was_in_the_way_is_said_with_its_fix(fails, what, fix):
    with pytest.raises(BadInput, match=what) as said, explained("me/small", "model"):
        fails()
    lines = str(said.value).splitlines()
    assert len(lines) == 3 and fix in lines[2], lines


def test_a_second_copy_of_the_weights_is_not_fetched(tmp_path, monkeypatch):
    names = ["config.json", "model.safetensors", "consolidated.safetensors", "optimizer.safetensors", "model.bin"]

    def download(_, **patterns):
        for name in filter_repo_objects(names, **patterns):
            (tmp_path / name).touch()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert sorted(file.name for file in hub_model("a/model").iterdir()) == ["config.json", "model.safetensors"]
