"""./motley rent, rented and give-back as a person sees them, against the lab's market over HTTP. The machine itself and
its watcher are the lab's business (tests/roles/test_rent.py)."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from console import __main__ as without_environment
from console import launch_commands, rent_commands, rented_machine, while_rented
from console.inventory.check import check
from console.rent import asleep, clore, timer, watcher
from console.rent import lease as leases
from console.rent.give_back_from_home import Kept
from console.rent.lease import Book, Lease, folder
from lab.market import KEY, Books
from tests.support import ROOT, pace
from tests.support.rented import served_market
from train.errors import BadInput, CheckFailed

WISH = {"gpu": "RTX 4090", "hours": 2.0, "usd_h": 0.50, "model": "tiny", "settings": [], "vault": ""}


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Books]:
    monkeypatch.setenv("MOTLEY_RENTED", str(tmp_path / "rented"))
    monkeypatch.setenv("CLORE_API_KEY", KEY)
    monkeypatch.setattr(clore, "RETRY_S", 0.0)
    monkeypatch.setattr(watcher, "start", lambda lease, key, place: None)
    monkeypatch.setattr(rented_machine, "prepare", lambda lease: "")
    with served_market(books=Books()) as (books, market):
        monkeypatch.setenv("MOTLEY_MARKET", market.url)
        yield books


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    market = rent_commands.shop.market

    def quick(key: str, timeout_s: float = 5.0) -> clore.Clore:
        made = market(key, timeout_s)
        assert isinstance(made, clore.Clore)
        made.pace_s = 0.0
        return made

    monkeypatch.setattr(rent_commands.shop, "market", quick)


def rent(**other: object) -> int:
    return rent_commands.rent(
        **{**WISH, "yes": True, "timer": False, "keeper": "", "inventory": "inventory/rented", **other}
    )  # type: ignore[arg-type]


def test_without_a_yes_the_plan_is_shown_and_nothing_ordered(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    assert rent(yes=False) == 1
    shown = capsys.readouterr().out
    assert books.orders == {}
    assert "server 7, 1x NVIDIA GeForce RTX 4090: its driver carries CUDA 12.4" in shown
    for words in ("2 h are 0.76 $ at most", "worst ", "a stranger's machine", "its one card trains", "tiny fits"):
        assert words in shown


def test_what_is_rented_is_a_machine_of_its_inventory_and_is_given_back_with_a_bill(
    books: Books, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rent() == 0
    (order,) = books.orders.values()
    assert order["ssh_key"].startswith("ssh-ed25519 ")
    inventory = check(ROOT / "inventory/rented")
    assert inventory.findings == []
    assert inventory.nodes["rented-1000"]["ansible_port"] == 2222
    program = Path(sys.executable).with_name("ansible-inventory")
    seen = json.loads(pace.run(program, "-i", "inventory/rented", "--host", "rented-1000", cwd=ROOT).stdout)
    assert (seen["ansible_host"], seen["ansible_user"], seen["motley_manage_host"]) == ("127.0.0.1", "root", False)
    assert rent_commands.show_rented(vault="", as_json=True) == 0
    shown = capsys.readouterr()
    assert KEY not in shown.out + shown.err
    assert [one["name"] for one in json.loads(shown.out.splitlines()[-1])["rented"]] == ["rented-1000"]
    assert rent_commands.give_back(vault="", yes=True) == 0
    assert order["ended"] is not None
    shown = capsys.readouterr()
    assert "given back" in shown.out and KEY not in shown.out + shown.err
    assert check(ROOT / "inventory/rented").nodes == {}
    for file in folder().rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_an_order_without_an_answer_is_said_to_be_looked_for(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    books.faults["create_order"] = ["lost"]
    assert rent() == 0
    assert "it is not sent again, but looked for by its mark" in capsys.readouterr().out
    assert len(books.orders) == 1


def test_the_bill_is_of_the_wallet_that_the_plan_names(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    rent()
    (order,) = books.orders.values()
    order["born"] -= 1800
    rent_commands.give_back(vault="", yes=True)
    shown = capsys.readouterr().out
    assert "account   210.00 CLORE-Blockchain" in shown
    assert "the account: CLORE-Blockchain 210.00 → 205.2" in shown


def test_a_second_one_is_refused_while_the_first_is_there(books: Books) -> None:
    rent()
    with pytest.raises(BadInput, match="rented-1000 is rented already"):
        rent()
    assert len(books.orders) == 1


def test_one_that_cannot_be_proven_is_given_back_at_once_and_says_once_why(
    books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rented_machine, "prepare", lambda lease: "bootstrap failed:\n  its disk is broken")
    with pytest.raises(CheckFailed, match="its disk is broken"):
        rent()
    (order,) = books.orders.values()
    assert order["ended"] is not None
    shown = capsys.readouterr().out
    assert shown.rstrip().splitlines()[-3].endswith("· bootstrap failed")
    assert "its disk is broken" not in shown
    assert "the account" not in shown, "what cost nothing to speak of has changed nothing"


def test_stopped_before_it_is_proven_it_is_given_back(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rented_machine, "prepare", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        rent()
    assert [order["ended"] is None for order in books.orders.values()] == [False]


def test_on_a_full_disk_it_is_given_back_without_its_bill(
    books: Books, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rent()
    monkeypatch.setattr(leases, "_write", Mock(side_effect=OSError(28, "No space left on device")))
    monkeypatch.setattr(rent_commands, "PATIENCE_S", 0.2)
    monkeypatch.setattr(rent_commands, "RETRY_S", 0.05)
    assert rent_commands.give_back(vault="", yes=True) == 1
    assert [order["status"] for order in books.orders.values()] == ["terminated"]
    assert "No space left on device" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"gpu": ""}, "rent needs --gpu"),
        ({"hours": 0.0}, "rent needs --hours"),
        ({"hours": 1000.0}, "hours: 1000 is not below 1000"),
        ({"usd_h": -1.0}, "rent needs --max"),
        ({"model": "lama2-7b"}, "llama2-7b"),
        ({"settings": ["max_stps=4"]}, "max_steps"),
        ({"gpu": "RTX 5090"}, "none has that name"),
        ({"usd_h": 0.1}, "each is left out"),
        ({"keeper": "inventory/loopback:gpu-mister"}, "there is no node 'gpu-mister'"),
    ],
)
def test_bad_input_orders_nothing(other: dict[str, object], says: str, books: Books) -> None:
    with pytest.raises(BadInput, match=says):
        rent(**other)
    assert books.orders == {}


def test_what_it_is_rented_for_may_be_json_as_with_a_launch() -> None:
    wish = ("RTX 4090", 3, 0.5, "")
    named = rent_commands.wanted_of(*wish, ["model=tiny"])
    assert named == rent_commands.wanted_of(*wish, ['{"model": "tiny"}']) != rent_commands.wanted_of(*wish, [])


def test_an_account_without_enough_dollars_is_said_before_anything_is_ordered(books: Books) -> None:
    books.wallets = {"USD-Blockchain": 0.1, "CLORE-Blockchain": 0.0}
    for server in books.servers:
        server["allowed_coins"] = ["USD-Blockchain"]
    with pytest.raises(BadInput, match=r"the account has 0.10 \$"):
        rent()


def test_every_later_command_gives_back_what_no_lease_knows(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    rent()
    for lease in Book(folder()).leases():
        (folder() / f"{lease.mark}.json").unlink()
    while_rented.before_any("status")
    assert "order 1000 is given back: no lease here knows it" in capsys.readouterr().err
    asked = len(books.asked)
    while_rented.before_any("status")
    assert len(books.asked) == asked, "it looks once a minute"


def test_whatever_breaks_in_a_look_is_no_error_of_another_command(
    books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rent()
    monkeypatch.setattr(clore, "order_of", lambda _: 1 / 0)
    while_rented.before_any("status")
    assert "rented-1000 is rented, and the market does not answer" in capsys.readouterr().err


def test_no_key_and_no_lease_means_no_market(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLORE_API_KEY")
    while_rented.before_any("status")
    assert books.asked == []
    with pytest.raises(BadInput, match="the market needs a key"):
        rent()


@pytest.mark.parametrize("host", ["market.example", "127.evil.example", "10.77.evil.example", "127.0.0.1@evil.example"])
def test_the_key_travels_in_the_clear_to_nobody(books: Books, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTLEY_MARKET", f"http://{host}/v1")
    with pytest.raises(BadInput, match="unencrypted"):
        rent()


def test_a_rented_node_means_its_inventory_and_mixes_with_none_at_home() -> None:
    assert while_rented.inventory_of("rented-1000", "inventory/homelab") == "inventory/rented"
    assert while_rented.inventory_of("gpu-master", "inventory/homelab") == "inventory/homelab"
    with pytest.raises(BadInput, match="cannot train together"):
        while_rented.inventory_of("rented-1000,gpu-master", "inventory/homelab")


def test_an_inventory_of_rented_machines_with_another_name_stays(books: Books, tmp_path: Path) -> None:
    own = tmp_path / "evening"
    shutil.copytree(ROOT / "inventory/rented", own)
    rent(inventory=str(own))
    assert while_rented.inventory_of("rented-1000", str(own)) == str(own)
    assert while_rented.inventory_of("rented-1000", "inventory/homelab") == "inventory/rented"


def test_a_market_that_is_away_disturbs_nobody_who_rents_nothing(
    books: Books, capsys: pytest.CaptureFixture[str]
) -> None:
    books.faults["my_orders"] = ["500"] * 20
    while_rented.before_any("status")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("outlives", "says"), [(False, "in the memory of gpu-master alone"), (True, "in a file on gpu-master (0600)")]
)
def test_a_keeper_is_tried_before_anything_is_ordered_and_has_the_order_after(
    outlives: bool, says: str, books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int]] = []

    def kept_by(node: object, market: object, lease: Lease | None) -> Kept:
        asked.append(("order" if lease else "try", len(books.orders)))
        return Kept("", outlives)

    monkeypatch.setattr(rented_machine, "kept_by", kept_by)
    assert rent(keeper="inventory/loopback:gpu-master") == 0
    assert asked == [("try", 0), ("order", 1)]
    shown = capsys.readouterr().out
    assert "gpu-master gives it back" in shown
    assert says in shown


def test_a_keeper_that_cannot_means_no_order(books: Books) -> None:
    books.faults["my_orders"] = ["", "500", "500", "500", "500"]
    with pytest.raises(BadInput, match="cannot give it back: the market"):
        rent(keeper="inventory/loopback:gpu-master")
    assert books.orders == {}


def test_a_lease_without_a_watcher_gets_one_from_the_next_command(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    rent()
    started: list[str] = []
    monkeypatch.setattr(watcher, "start", lambda lease, key, place: started.append(lease.name))
    (lease,) = Book(folder()).leases()
    with Book(folder()).part(lease, "watched"):
        while_rented.before_any("status")
    assert started == []
    (folder() / "looked").unlink()
    while_rented.before_any("status")
    assert started == ["rented-1000"]


def test_rent_is_reached_by_its_front_door(books: Books) -> None:
    """It has an inventory of its own, and none of the words that other verbs have for one."""
    words = ["rent", "--gpu", "RTX 5090", "--hours", "1", "--max", "0.5"]
    done = pace.run(sys.executable, "-m", "console", *words, cwd=ROOT)
    assert (done.returncode, "none has that name" in done.stderr) == (1, True), done.stderr


# -- a laptop, which will be closed ----------------------------------------------------------------------------------


def sits_at(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Somebody at the terminal of a laptop that has a systemd; the questions that were asked."""
    left, asked = list(answers), list[str]()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or left.pop(0))
    monkeypatch.setattr(asleep, "is_a_laptop", lambda: True)
    monkeypatch.setattr(timer, "possible", lambda: True)
    monkeypatch.setattr(timer, "prove", lambda book, key: asked.append("proven"))
    monkeypatch.setattr(timer, "arm", lambda book, lease, key: asked.append("armed"))
    return asked


def test_from_a_laptop_it_is_asked_who_gives_back_and_a_timer_is_made_after_the_yes(
    books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = sits_at(monkeypatch, "t", "n")
    assert rent(yes=False) == 1
    assert asked == ["who? ", "rent it? [y/N] "]
    assert "closed, it cannot give the rented machine back" in capsys.readouterr().out
    asked = sits_at(monkeypatch, "t", "y")
    assert rent(yes=False) == 0
    assert asked[-1] == "armed"
    shown = capsys.readouterr().out
    assert "its timer gives it back when it wakes" in shown
    assert "in .motley/rented/key" in shown


@pytest.mark.parametrize(
    ("answer", "worst"),
    [("", "until it wakes it is billed at 0.38 $/h"), ("inventory/loopback:gpu-master", "gpu-master")],
)
def test_nobody_or_a_machine_at_home_may_be_the_answer(
    answer: str, worst: str, books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sits_at(monkeypatch, answer, "n")
    monkeypatch.setattr(rented_machine, "kept_by", lambda node, market, lease: Kept(""))
    rent(yes=False)
    assert worst in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("worst"))


def test_without_a_battery_or_with_a_keeper_nobody_is_asked_who(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = sits_at(monkeypatch, "n")
    monkeypatch.setattr(rented_machine, "kept_by", lambda node, market, lease: Kept(""))
    rent(yes=False, keeper="inventory/loopback:gpu-master")
    assert asked == ["rent it? [y/N] "]
    asked = sits_at(monkeypatch, "n")
    monkeypatch.setattr(asleep, "is_a_laptop", lambda: False)
    rent(yes=False)
    assert asked == ["rent it? [y/N] "]


def test_a_laptop_is_known_by_its_own_battery(tmp_path: Path) -> None:
    for name, kind, scope in (("AC", "Mains", ""), ("mouse", "Battery", "Device")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(kind + "\n")
        (tmp_path / name / "scope").write_text(scope + "\n")
    assert not asleep.is_a_laptop(tmp_path)
    (tmp_path / "BAT0").mkdir()
    (tmp_path / "BAT0/type").write_text("Battery\n")
    assert asleep.is_a_laptop(tmp_path)


def test_all_cards_of_the_machine_train_in_one_run(books: Books, capsys: pytest.CaptureFixture[str]) -> None:
    books.servers[0]["rented"] = True
    rent(yes=False, usd_h=0.8)
    shown = capsys.readouterr().out
    assert "all 2 cards of it train in one run" in shown
    assert "one rented machine per run" in shown


@pytest.mark.parametrize("verb", ["launch", "torchrun"])
def test_a_script_uses_a_rented_machine_as_a_launch_does(
    verb: str, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    rent()
    ended: list[str] = []
    monkeypatch.setattr(without_environment.interrupt, "listen_to_sigterm", lambda: None)
    monkeypatch.setattr(launch_commands.launch_playbook, "launch", lambda *words, **named: 0)
    monkeypatch.setattr(launch_commands.launch_playbook, "started_by", lambda *words: 0)
    monkeypatch.setattr(while_rented, "end_of_use", lambda book, lease: ended.append(lease.name))
    words = ["--model", "tiny"] if verb == "launch" else ["--module", "mine"]
    assert without_environment.run_verb(verb, ["--nodes", "rented-1000", *words]) == 0
    assert ended == ["rented-1000"]
