"""Each verb's options are what its function takes."""

import errno
import inspect
import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from unittest.mock import Mock

import pytest

from console import __main__ as main
from console.__main__ import ROOT, does, from_where_it_was_called, typed
from console.command_line.verbs import VERBS, parser
from tests.support import pace


@pytest.fixture(autouse=True)
def without_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in ("sigint", "sigterm"):
        monkeypatch.setattr(main.interrupt, f"listen_to_{signal}", lambda: None)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_options_are_its_functions_parameters(verb: str) -> None:
    args = vars(parser(verb).parse_args([]))
    if "inventory" in args:
        args.pop("infra", None)  # a word for one
    inspect.signature(does(verb)).bind(*(["an inventory"] if args.pop("inventory", None) else []), **args)


def test_a_checkout_that_others_may_write_works_and_says_so(tmp_path: Path) -> None:
    """Ansible leaves the ansible.cfg of such a folder out: Windows' disks in WSL, some others."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for path in ROOT.iterdir():
        (checkout / path.name).symlink_to(path)
    checkout.chmod(0o777)
    words = ["undo", "--phase", "workspace", "--nodes", "gpu-master", "--inventory", folders(tmp_path)]
    done = pace.run(sys.executable, "-m", "console", *words, cwd=checkout)
    assert done.returncode == 0 and "was not found" not in done.stdout, done.stdout + done.stderr
    assert f"others may change what Motley runs: fix: chmod o-w {checkout}" in done.stderr, done.stderr


def folders(tmp_path: Path) -> str:
    """An inventory of three folders of this machine."""
    shutil.copytree(ROOT / "inventory/loopback", tmp_path / "inventory")
    hosts = tmp_path / "inventory/hosts.yml"
    hosts.write_text(hosts.read_text().replace("cluster:\n", f"cluster:\n  vars: {{motley_state: {tmp_path}/state}}\n"))
    return str(tmp_path / "inventory")


def test_a_phase_that_is_none_is_refused_and_an_undo_wants_one(tmp_path: Path) -> None:
    """Typed at Ansible itself, as ./motley says so before."""
    inventory = folders(tmp_path)

    def plays(*words: str) -> tuple[int, str]:
        program = Path(sys.executable).parent / "ansible-playbook"
        done = pace.run(program, "-i", inventory, f"playbooks/{words[0]}.yml", *words[1:], cwd=ROOT)
        return done.returncode, done.stdout + done.stderr

    code, said = plays("bootstrap", "--tags", "hostnme")
    assert code == 2 and "there is no such phase: hostnme" in said, said
    code, said = plays("undo")
    assert code == 2 and "undo wants a phase" in said and "./motley undo --phase all" in said, said
    assert plays("undo", "--tags", "workspce")[0] == 2
    assert plays("undo", "--tags", "workspace", "--check", "--limit", "gpu-master")[0] == 0
    code, said = plays("bootstrap", "--list-tasks", "--tags", "hostname")
    assert code == 0 and "motley_hostname : Give the machine its name" in said and "motley_clock" not in said, said


def test_ctrl_d_at_a_question_is_a_stop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main, "act", Mock(side_effect=EOFError))
    assert main.run_verb("rented", []) == main.interrupt.CODE
    assert "stopped; nothing was changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--results", "a" * 300], f"/tmp/{'a' * 35}… is too long for a file's name\nfix: "),
        (
            ["generate", "--prompts", "q.jsonl", "--out", "~nobody-here/a.jsonl"],
            "a path begins with ~NAME, and there is no such user\nfix: ",
        ),
    ],
)
def test_a_path_that_cannot_be_is_bad_input(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOTLEY_CALLED_IN", "/tmp")
    assert main.run_verb(words[0], words[1:]) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EROFS, errno.ENOSPC])
def test_a_place_where_nothing_can_be_written_is_named(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as results/ that an earlier sudo has made."""
    monkeypatch.setattr(main, "act", Mock(side_effect=OSError(number, os.strerror(number), "results/notes")))
    assert main.run_verb("rented", []) == 2
    assert f"results/notes: {os.strerror(number)}\nfix: " in capsys.readouterr().err


def call(folder: Path, *words: str) -> Namespace:
    verb, *options = words
    args = parser(verb).parse_args(options)
    from_where_it_was_called(args, typed(verb, options), folder)
    return args


def test_what_was_typed_lies_where_one_stands(tmp_path: Path) -> None:
    """Also what is still to be written; an inventory of the checkout can be named from anywhere."""
    long = "{% for message in messages %}" * 20
    assert call(tmp_path, "plan", "--set", f"chat_template={long}").settings == [f"chat_template={long}"]
    for file in ("my.jsonl", "my.yml", "mine.py", "mylab", "mytok"):
        (tmp_path / file).touch()
    assert call(tmp_path, "fetch", "--results", "out").results == tmp_path / "out"
    assert call(tmp_path, "inventory", "--inventory", "new").inventory == str(tmp_path / "new")
    assert call(tmp_path, "status", "--inventory", "mylab").inventory == str(tmp_path / "mylab")
    assert call(tmp_path, "status", "--inventory", "inventory/loopback").inventory == "inventory/loopback"
    words = [f"--set={word}" for word in ("dataset=my.jsonl", "recipe=./mine.py", "tokenizer=mytok", "@my.yml")]
    moved = call(tmp_path, "launch", "--dataset", "my.jsonl", *words)
    assert moved.dataset == f"{tmp_path}/my.jsonl"
    here = ("dataset=HERE/my.jsonl", "recipe=HERE/mine.py", "tokenizer=HERE/mytok", "@HERE/my.yml")
    assert moved.settings == [setting.replace("HERE", str(tmp_path)) for setting in here]


def test_what_was_not_typed_and_what_the_catalogue_has_stay(tmp_path: Path) -> None:
    for folder in ("results", "inventory/homelab", "tiny", "stdlib-qa", "images", "bytes", "mine.py"):
        (tmp_path / folder).mkdir(parents=True)
    assert call(tmp_path, "fetch") == parser("fetch").parse_args([])
    settings = ["dataset=stdlib-qa", "recipe=images", "tokenizer=bytes", "tokenizer=tiny", "run=mine.py"]
    found = call(tmp_path, "launch", "--model", "tiny", *(f"--set={setting}" for setting in settings))
    assert found.model == "tiny" and found.settings == settings
