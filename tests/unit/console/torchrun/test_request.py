"""What ./motley torchrun is given: the script and its folder, before anything is connected to."""

import argparse
from pathlib import Path
from unittest.mock import Mock

import pytest

from console import __main__ as console
from console.command_line.verbs import parser
from console.torchrun import request as torchrun_request
from console.torchrun.request import read
from train.errors import BadInput


@pytest.fixture
def script(tmp_path: Path) -> Path:
    for name in ("train.py", "parts/net.py", ".git/config", "__pycache__/net.pyc", "venv/pyvenv.cfg", "venv/big"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "train.py"


def test_the_script_travels_with_its_folder_but_not_with_what_is_made_again(script: Path) -> None:
    found = read([str(script), "--lr", "0.1"])
    assert found.name == "train.py" and found.arguments == ["--lr", "0.1"] and found.folder == str(script.parent)
    assert sorted(found.files) == ["parts/net.py", "train.py"]
    assert found.files["train.py"]["size"] == 8 and len(found.files["train.py"]["sha256"]) == 64


def test_what_is_wrong_is_said_before_anything_is_connected_to(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match=r"there is no script /.*/trian.py"):
        read([str(script.with_name("trian.py"))])
    with pytest.raises(BadInput, match="that is a folder"):
        read([str(script.parent)])
    with pytest.raises(BadInput, match=r"wants a script\n.*\./motley torchrun train.py"):
        read([])
    with pytest.raises(BadInput, match="cannot name a run"):
        read([str(script)], run="a b")
    with pytest.raises(BadInput, match="No closing quotation"):
        torchrun_request.split("train.py 'a")
    with monkeypatch.context() as patch, pytest.raises(BadInput, match="has your whole home folder in it"):
        patch.setenv("HOME", str(script.parent))
        read([str(script)])
    monkeypatch.setattr(torchrun_request, "LIMIT_BYTES", 10)
    with pytest.raises(BadInput, match=r"more than 0 MB or 5000 files, as \w+: a script's folder is brought"):
        read([str(script)])


def test_a_file_that_cannot_be_read_is_named(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = PermissionError(13, "Permission denied", "net.py")
    monkeypatch.setattr(torchrun_request, "size_and_hash", Mock(side_effect=locked))
    with pytest.raises(BadInput, match=r"net\.py cannot be read: Permission denied"):
        read([str(script)])


def test_what_stands_behind_the_script_is_its_own(script: Path) -> None:
    words = ["--nodes", "a,b", "train.py", "--nodes", "4", "-m", "--", "x"]
    args = parser("torchrun").parse_args(words)
    assert args.words == words[2:] and args.limit == "a,b" and args.module == ""
    console.from_where_it_was_called(args, set(), script.parent)
    assert args.words[0] == str(script)
    of_module = parser("torchrun").parse_args(["-m", "train", "bench", "collectives", "--json"])
    assert of_module.module == "train" and of_module.words == ["bench", "collectives", "--json"]
    console.from_where_it_was_called(of_module, set(), script.parent)
    assert of_module.words[0] == "bench"


def test_make_gives_it_as_one_word(script: Path) -> None:
    args: argparse.Namespace = parser("torchrun").parse_args(["--script=train.py --lr 0.1"])
    console.from_where_it_was_called(args, set(), script.parent)
    assert torchrun_request.split(args.script) == ["train.py", "--lr", "0.1"]
