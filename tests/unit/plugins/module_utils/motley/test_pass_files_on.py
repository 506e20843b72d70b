"""The relay, over real sockets on this machine: every node holds the same bytes, whatever breaks in between."""

import hashlib
import random
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from plugins.module_utils.motley import pass_files_on
from plugins.module_utils.motley.errors import ModuleError
from plugins.module_utils.motley.pass_files_on import Broken, File, Store, Target
from tests.support import pace

TOKEN = "known to the chain alone"
WAIT_S = 4.0


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def source(tmp_path: Path) -> tuple[Path, list[File]]:
    folder = tmp_path / "controller"
    (folder / "sub").mkdir(parents=True)
    pieces = {"a.whl": 3_000_000, "sub/b.bin": 70_000, "empty": 0, "one": 1}
    for name, size in pieces.items():
        (folder / name).write_bytes(random.Random(name).randbytes(size))
    facts = {n: {"size": s, "sha256": pass_files_on.file_hash(folder / n)} for n, s in pieces.items()}
    return folder, pass_files_on.listed(facts)


class Node:
    """One member of the chain, as the module runs it."""

    def __init__(self, number: int, folder: Path, files: list[File], after: list[Target], port: int) -> None:
        self.store, self.after, self.port = Store(folder, files), after, port
        self.address, self.error = f"127.0.0.{number}", ""
        self.is_open = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        assert self.is_open.wait(20)

    def run(self) -> None:
        self.store.folder.mkdir(parents=True, exist_ok=True)
        with pass_files_on.open_door(self.address, self.port) as door:
            self.is_open.set()
            self.store.look(verify=False)
            ask = (self.store, self.after, self.port, TOKEN, WAIT_S)
            follower = threading.Thread(target=pass_files_on.hand_on, args=ask, daemon=True)
            follower.start()
            try:
                pass_files_on.receive(door, self.store, TOKEN, WAIT_S * (int(self.address[-1])))
                self.store.remember()
                follower.join()
            except ModuleError as why:
                self.error = str(why)
                self.store.stop(self.error)


def chain(tmp_path: Path, files: list[File], port: int, numbers: tuple[int, ...] = (11, 12, 13)) -> list[Node]:
    targets = [Target(str(n), f"127.0.0.{n}") for n in numbers]
    return [Node(n, tmp_path / str(n), files, targets[i + 1 :], port) for i, n in enumerate(numbers)]


def feed(source: tuple[Path, list[File]], nodes: list[Node], port: int, wait_s: float = WAIT_S) -> Store:
    store = Store.whole(*source)
    pass_files_on.hand_on(store, [Target(node.address, node.address) for node in nodes], port, TOKEN, wait_s)
    for node in nodes:
        node.thread.join(20)
        assert not node.thread.is_alive()
    return store


def same(source: tuple[Path, list[File]], folder: Path) -> bool:
    return all((folder / file.name).read_bytes() == (source[0] / file.name).read_bytes() for file in source[1])


def test_all_nodes_hold_the_same_and_each_byte_came_once(source, tmp_path, port) -> None:
    nodes = chain(tmp_path, source[1], port)
    store = feed(source, nodes, port)
    total = sum(file.size for file in source[1])
    assert store.given == store.to_give == total
    for node in nodes:
        assert not node.error and same(source, node.store.folder) and node.store.received == total
        assert not list(node.store.folder.rglob("*.part"))


def test_a_second_time_nothing_travels_and_nothing_is_read(source, tmp_path, port, monkeypatch) -> None:
    feed(source, chain(tmp_path, source[1], port), port)
    monkeypatch.setattr(pass_files_on, "file_hash", lambda path: f"{path} is read again")
    nodes = chain(tmp_path, source[1], port)
    feed(source, nodes, port)
    assert [node.store.received for node in nodes] == [0, 0, 0]


def test_a_node_that_has_half_gets_the_other_half(source, tmp_path, port) -> None:
    half = (source[0] / "a.whl").read_bytes()[:2_000_000]
    (tmp_path / "12").mkdir()
    (tmp_path / "12/.a.whl.part").write_bytes(half)
    nodes = chain(tmp_path, source[1], port)
    feed(source, nodes, port)
    assert all(same(source, node.store.folder) for node in nodes)
    assert nodes[1].store.received == nodes[0].store.received - 2_000_000


def test_a_damaged_half_is_thrown_away(source, tmp_path, port) -> None:
    for name in ("11", "12"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".a.whl.part").write_bytes(b"\0" * 2_000_000)
    nodes = chain(tmp_path, source[1], port)
    feed(source, nodes, port)
    assert all(not node.error and same(source, node.store.folder) for node in nodes)


def test_a_file_that_rotted_on_a_node_is_replaced(source, tmp_path, port) -> None:
    feed(source, chain(tmp_path, source[1], port), port)
    victim = tmp_path / "13/a.whl"
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    nodes = chain(tmp_path, source[1], port)
    feed(source, nodes, port)
    assert same(source, tmp_path / "13") and nodes[2].store.received == 3_000_000


def test_a_file_with_another_hash_is_refused_by_every_node(source, tmp_path, port) -> None:
    folder, files = source
    (folder / "a.whl").write_bytes(random.Random("evil").randbytes(3_000_000))
    nodes = chain(tmp_path, files, port)
    feed(source, nodes, port, wait_s=0.5)
    assert all("a.whl is refused" in node.error for node in nodes), [node.error for node in nodes]
    assert not any((node.store.folder / "a.whl").exists() for node in nodes)


def test_a_file_is_refused_only_where_it_came_damaged_from_its_beginning(source, tmp_path) -> None:
    """Else half of it is from an earlier try, here or at the sender."""
    store = Store(tmp_path, source[1])
    for resumed, wrong in ((True, Broken), (True, Broken), (False, ModuleError)):
        store.part(0).touch()
        with pytest.raises(wrong):
            store.finish(0, "another hash", resumed)


def test_a_lost_node_is_passed_over(source, tmp_path, port) -> None:
    """Nobody listens in the middle: the first node serves the third."""
    targets = [Target(str(n), f"127.0.0.{n}") for n in (11, 12, 13)]
    nodes = [Node(11, tmp_path / "11", source[1], targets[1:], port), Node(13, tmp_path / "13", source[1], [], port)]
    store = Store.whole(*source)
    pass_files_on.hand_on(store, targets, port, TOKEN, WAIT_S)
    for node in nodes:
        node.thread.join(20)
    assert same(source, tmp_path / "11") and same(source, tmp_path / "13")


def test_a_caller_without_the_token_gets_nothing(source, tmp_path, port) -> None:
    nodes = chain(tmp_path, source[1], port, (11,))
    pass_files_on.hand_on(Store.whole(*source), [Target("x", "127.0.0.11")], port, "guessed", 1.0)
    assert nodes[0].store.received == 0
    feed(source, nodes, port)
    assert same(source, nodes[0].store.folder)


def test_callers_who_say_nothing_delay_nobody(source, tmp_path, port) -> None:
    nodes = chain(tmp_path, source[1], port, (11,))
    silent = [socket.create_connection((nodes[0].address, port), 5) for _ in range(20)]
    start = pace.now()
    feed(source, nodes, port)
    assert same(source, nodes[0].store.folder)
    assert pace.now() - start < 2
    for line in silent:
        line.close()


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "", "a/../../b"])
def test_no_file_lands_outside(name: str) -> None:
    with pytest.raises(ModuleError):
        pass_files_on.listed({name: {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}})


def test_it_is_pipelined(source, tmp_path, port, monkeypatch) -> None:
    """With a slow first link the last node is done soon after the first, not twice as late."""
    real = socket.socket.sendfile
    monkeypatch.setattr(pass_files_on, "CHUNK", 1 << 16)

    def slowly(line: socket.socket, stream, offset: int, count: int) -> int:
        count = min(count, 1 << 16)
        time.sleep(0.01)  # 6.5 MB/s: half a second for the set
        return int(real(line, stream, offset, count) or 0)

    monkeypatch.setattr(socket.socket, "sendfile", slowly)
    nodes, done = chain(tmp_path, source[1], port), dict[str, float]()
    start = time.monotonic()

    def watch() -> None:
        while len(done) < len(nodes):
            for node in nodes:
                if node.store.complete:
                    done.setdefault(node.address, time.monotonic() - start)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    feed(source, nodes, port)
    watcher.join(5)
    assert max(done.values()) < 1.6 * min(done.values()), done


def test_the_first_node_may_give_what_the_controller_has_not(source, tmp_path, port) -> None:
    """What was made on the head: the controller knows the hashes alone, and has nothing to give."""
    folder, files = source
    folder.rename(tmp_path / "11")
    store = feed(source, chain(tmp_path, files, port, (11, 12)), port)
    assert (store.to_give, store.given) == (0, 0)
    has = {str(path.relative_to(tmp_path / "12")) for path in (tmp_path / "12").rglob("*") if path.is_file()}
    assert has == {file.name for file in files} | {pass_files_on.MEMO}


def test_a_source_that_is_gone_is_given_up(source, tmp_path, port) -> None:
    shutil.rmtree(source[0])
    nodes = chain(tmp_path, source[1], port, (11,))
    start = pace.now()
    feed(source, nodes, port, wait_s=0.5)
    assert "nothing came" in nodes[0].error and pace.now() - start < 20
