"""What was before a change is kept once, put back exactly, and never over somebody's own edits."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.motley.errors import ModuleError
from plugins.module_utils.motley.undo_record import (
    BEGIN,
    Before,
    block_of,
    digest,
    of_others,
    read_text,
    with_block,
    without_block,
    without_own,
    write_file,
)


def me() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def changed(before: Before, path: Path, text: str, mode: int = 0o644) -> None:
    before.keep(path)
    write_file(path, text, mode, me())
    before.wrote(path)


def test_files_come_back_with_content_and_mode(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "made/deep/new"
    old.write_text("before\n")
    old.chmod(0o640)
    changed(Before("phase", tmp_path / "b"), old, "after\n", 0o600)
    changed(Before("phase", tmp_path / "b"), new, "after\n")
    changed(Before("phase", tmp_path / "b"), old, "after again\n", 0o600)  # a later run keeps the true beginning
    assert Before("phase", tmp_path / "b").restore() == []
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("before\n", 0o640)
    assert not (tmp_path / "made").exists()


def test_a_file_that_somebody_edited_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before\n")
    before = Before("phase", tmp_path / "b")
    changed(before, path, "after\n")
    path.write_text("mine\n")
    assert "edited since" in before.restore()[0]
    assert path.read_text() == "mine\n"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"files": {}}'])
def test_a_record_that_is_damaged_is_named(text: str, tmp_path: Path) -> None:
    Before("phase", tmp_path).save()
    (tmp_path / "phase/manifest.json").write_text(text)
    with pytest.raises(ModuleError, match=r"phase/manifest\.json is damaged\nfix: "):
        Before("phase", tmp_path)


def test_a_file_whose_copy_is_lost_is_not_removed(tmp_path: Path) -> None:
    """Such as a netplan of the installer, or /etc/hosts: what was in it is not known any more."""
    path, hosts, before = tmp_path / "file", tmp_path / "hosts", Before("phase", tmp_path / "b")
    path.write_text("before\n")
    hosts.write_text("theirs\n")
    changed(before, path, "after\n")
    changed(before, hosts, with_block("theirs\n", "ours"))
    for copy in (tmp_path / "b/phase").glob("0*"):
        copy.unlink()
    assert before.contents() == {}
    assert [remark.partition(": ")[2] for remark in before.restore()] == 2 * ["what it was is lost: it stays as it is"]
    assert path.read_text() == "after\n" and BEGIN in hosts.read_text()


def test_a_file_that_motley_made_and_somebody_edited_stays_as_private_as_it_is(tmp_path: Path) -> None:
    before = Before("phase", tmp_path / "b")
    for name, text in (("left", "secret\n"), ("authorized_keys", with_block("", "ssh-ed25519 AAAA one"))):
        changed(before, tmp_path / name, text, 0o600)
        (tmp_path / name).write_text(text + "mine\n")
    before.restore()
    assert (tmp_path / "authorized_keys").read_text() == "mine\n"
    for file in (tmp_path / "left", tmp_path / "authorized_keys"):
        found = file.stat()
        assert (found.st_mode & 0o777, (found.st_uid, found.st_gid)) == (0o600, me()), file.name


DESK, LAPTOP = "ssh-ed25519 AAAAdesk motley-controller@desk", "ssh-ed25519 AAAAlaptop motley-controller@laptop"
CONTROLLERS = ".* motley-controller@.*"


def test_the_keys_of_two_controllers_stay_whoever_comes_last() -> None:
    text = with_block("ssh-rsa AAAA mine\n", f"{DESK}\nssh-ed25519 AAAAhead motley@head", stay=CONTROLLERS)
    both = with_block(text, f"{LAPTOP}\nssh-ed25519 AAAAhead motley@head", stay=CONTROLLERS)
    assert [line.split("@")[-1] for line in block_of(both)] == ["desk", "head", "laptop"]
    assert with_block(both, f"{DESK}\nssh-ed25519 AAAAhead motley@head", stay=CONTROLLERS) == both
    renamed = DESK.replace("@desk", "@tower")  # the same key: it is the same controller
    assert [line.split("@")[-1] for line in block_of(with_block(text, renamed, stay=CONTROLLERS))] == ["tower"]


def test_of_two_controllers_each_takes_only_its_own_key_away() -> None:
    both = with_block("ssh-rsa AAAA mine\n", f"{DESK}\nssh-ed25519 AAAAhead motley@head\n{LAPTOP}")
    assert of_others(both, DESK, CONTROLLERS) == [LAPTOP] and of_others(both, "", CONTROLLERS) == [DESK, LAPTOP]
    alone = without_own(both, LAPTOP, CONTROLLERS)
    assert alone == with_block("ssh-rsa AAAA mine\n", f"{DESK}\nssh-ed25519 AAAAhead motley@head")
    assert without_own(alone, LAPTOP, CONTROLLERS) == alone
    assert without_own(alone, DESK, CONTROLLERS) == "ssh-rsa AAAA mine\n"


class PowerCut(BaseException):
    pass


@contextmanager
def power_cut_at(effect: int) -> Iterator[list[str]]:
    """Nothing more is done to the disk, and no program is started, from this effect on."""
    done: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [
            *((Path, word) for word in ("unlink", "replace", "rename", "rmdir")),
            (subprocess, "run"),
        ]:
            real = getattr(owner, name)

            def effective(*args: Any, real: Callable[..., Any] = real, name: str = name, **more: Any) -> Any:
                if len(done) >= effect:
                    raise PowerCut
                done.append(name)
                return real(*args, **more)

            patch.setattr(owner, name, effective)
        yield done


def a_phase(folder: Path) -> tuple[Before, dict[Path, str | None]]:
    """A unit that was made and switched on, a file of somebody's, and a file with our block; and how it was before."""
    folder.mkdir()
    unit, theirs, shared, on = (folder / name for name in ("units/made.service", "theirs", "hosts", "on"))
    theirs.write_text("before\n")
    shared.write_text("127.0.0.1 localhost\n")
    before = Before("phase", folder / "b")
    changed(before, unit, "unit\n")
    changed(before, theirs, "after\n")
    changed(before, shared, with_block(shared.read_text(), "10.0.0.1 one"))
    before.keep_undo(["sh", "-c", f"test -e {unit} && rm -f {on}"])  # as systemctl: no unit, no disable
    on.touch()
    was = {unit: None, unit.parent: None, theirs: "before\n", shared: "127.0.0.1 localhost\n", on: None}
    return before, was


def undo(before: Before) -> None:
    if before.recorded:
        before.run_undo()
        before.restore()
        before.forget()


def test_an_undo_that_broke_off_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    effect, broke_off = 0, True
    while broke_off:
        before, was = a_phase(tmp_path / str(effect))
        with power_cut_at(effect) as done, suppress(PowerCut):
            undo(before)
        broke_off = len(done) >= effect
        undo(Before("phase", before.folder.parent))
        now = {path: path.read_text() if path.is_file() else path.name if path.exists() else None for path in was}
        assert now == was, f"after {done}"
        assert not Before("phase", before.folder.parent).recorded, f"after {done}"
        effect += 1
    assert effect > 8


def test_a_record_without_its_copies_is_no_record(tmp_path: Path) -> None:
    """Else a file whose copy went first would be taken for one that was not there, and removed."""
    path = tmp_path / "file"
    path.write_text("before\n")
    for effect in range(1, 4):
        before = Before("phase", tmp_path / f"b{effect}")
        before.keep(path)
        with power_cut_at(effect), suppress(PowerCut):
            before.forget()
        undo(Before("phase", tmp_path / f"b{effect}"))
        assert path.read_text() == "before\n"


LIVED_IN = (
    b"127.0.0.1\tlocalhost\r\n127.0.1.1\tdebian\r\n\r\n# stra\xdfe\x0b\n"
    b"10.77.0.40 gpu-worker-2  oldname # old box\r\n10.77.0.41 GPU-Master\n::1 ip6-localhost"
)
STALE = {"block": "10.77.0.102 gpu-worker-2\n", "drop": r"127\.0\.1\.1\s.*", "names": ["gpu-master", "gpu-worker-2"]}


def bootstrapped(before: Before, path: Path, **more: str) -> None:
    before.keep(path)
    write_file(path, with_block(read_text(path) or "", **{**STALE, **more}), 0o644, me())
    before.wrote(path)


def test_a_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(LIVED_IN)
    bootstrapped(Before("phase", tmp_path / "b"), path)
    assert b"localhost\r\n" in path.read_bytes(), "lines that are not ours stay as they are"
    assert Before("phase", tmp_path / "b").restore() == []
    assert path.read_bytes() == LIVED_IN


def test_an_edited_file_comes_back_byte_for_byte_with_the_edit(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(LIVED_IN)
    bootstrapped(Before("phase", tmp_path / "b"), path)
    path.write_bytes(b"10.0.0.8 first\r\n" + path.read_bytes() + b"10.0.0.9 last\n")
    assert "edited since" in Before("phase", tmp_path / "b").restore()[0]
    assert path.read_bytes() == b"10.0.0.8 first\r\n" + LIVED_IN + b"\n10.0.0.9 last\n"


def test_what_somebody_added_between_two_bootstraps_stays_after_an_undo(tmp_path: Path) -> None:
    path = tmp_path / "authorized_keys"
    path.write_text("ssh-ed25519 AAAA old\n")
    bootstrapped(Before("phase", tmp_path / "b"), path)
    path.write_text(path.read_text() + "ssh-ed25519 BBBB mine\n")
    bootstrapped(Before("phase", tmp_path / "b"), path, block="10.77.0.103 gpu-worker-2\n")
    Before("phase", tmp_path / "b").restore()
    assert path.read_text() == "ssh-ed25519 AAAA old\nssh-ed25519 BBBB mine\n"


def test_names_are_taken_out_of_foreign_lines() -> None:
    text = LIVED_IN.decode("utf-8", "surrogateescape")
    new = with_block(text, **STALE)
    live = [line.split("#")[0].split() for line in new.splitlines()]
    assert [words for words in live if "gpu-worker-2" in words] == [["10.77.0.102", "gpu-worker-2"]]
    assert ["10.77.0.40", "oldname"] in live and not any("GPU-Master" in words for words in live)
    assert not any("127.0.1.1" in words for words in live), "what is dropped"
    assert with_block(new, **STALE) == new and without_block(new) == text and new.count(BEGIN) == 1


@pytest.mark.parametrize("text", ["", "\n", "one", "one\n", "one\r\n\r\ntwo\r"])
def test_a_block_goes_without_a_trace(text: str) -> None:
    assert without_block(with_block(text, "10.0.0.1 one\n", names=["two"])) == text


# -- links on the way to a file, whose rights count there, modes of folders ------------------------------------------

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give files away, and be led by a link")


@pytest.fixture
def home() -> Iterator[Path]:
    """Of another user, who laid links in it."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@AS_ROOT
def test_root_goes_no_further_by_a_persons_link_than_they_get_themselves(home: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    theirs, secret = home / ".ssh/authorized_keys", tmp_path / "secret"
    secret.write_text("root's\n")
    theirs.parent.symlink_to(tmp_path)
    for path in (theirs, theirs.with_name("secret")):
        before = Before("phase", tmp_path / "b")
        with pytest.raises(PermissionError):
            read_text(path)
        with pytest.raises(PermissionError):
            before.keep(path)
        with pytest.raises(PermissionError):
            write_file(path, "theirs\n", 0o644, (NOBODY, NOBODY))
    before.data["files"] = {str(theirs.with_name("secret")): {"existed": False, "after": digest(secret)}}
    with pytest.raises(PermissionError):
        before.restore()
    assert secret.read_text() == "root's\n" and os.geteuid() == os.getegid() == 0
    assert {path.name for path in tmp_path.iterdir()} <= {"secret", "b"}


@AS_ROOT
def test_what_root_writes_in_a_home_is_its_persons_and_goes_again(home: Path, tmp_path: Path) -> None:
    path = home / ".ssh/authorized_keys"
    changed(Before("phase", tmp_path / "b"), path, "ours\n", 0o600)
    assert (path.stat().st_uid, path.stat().st_mode & 0o777, path.parent.stat().st_uid) == (NOBODY, 0o600, NOBODY)
    assert Before("phase", tmp_path / "b").restore() == [] and not path.parent.exists()


@pytest.mark.parametrize("there", [True, False], ids=["a file", "nothing yet"])
@pytest.mark.parametrize("target", ["dotfiles/keys", "../dotfiles/keys"], ids=["whole", "relative"])
def test_what_a_link_leads_to_is_written_and_comes_back_and_the_link_stays(
    tmp_path: Path, target: str, there: bool
) -> None:
    kept, path = tmp_path / "dotfiles/keys", tmp_path / "ssh/authorized_keys"
    path.parent.mkdir()
    path.symlink_to(target if target.startswith("..") else tmp_path / target)
    if there:
        kept.parent.mkdir()
        kept.write_text("ssh-ed25519 AAAA mine\n")
    link = path.readlink()
    changed(Before("phase", tmp_path / "b"), path, "ours\n", 0o600)
    assert (kept.read_text(), path.readlink(), kept.is_symlink()) == ("ours\n", link, False)
    assert Before("phase", tmp_path / "b").restore() == []
    assert path.readlink() == link and kept.exists() == kept.parent.exists() == there
    assert not there or kept.read_text() == "ssh-ed25519 AAAA mine\n"


@AS_ROOT
@pytest.mark.parametrize("through", ["their link", "roots link to theirs", "roots folder link to theirs"])
def test_a_link_that_a_person_laid_anywhere_on_the_way_is_followed_as_that_person(
    home: Path, tmp_path: Path, through: str
) -> None:
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret/shadow"
    secret.parent.mkdir()
    secret.write_text("root's\n")
    secret.chmod(0o600)
    (home / "shadow").symlink_to(secret)
    (home / "folder").symlink_to(secret.parent)
    path = home / "shadow"
    if through == "roots link to theirs":
        (path := tmp_path / "hosts").symlink_to(home / "shadow")
    elif through == "roots folder link to theirs":
        (tmp_path / "conf").symlink_to(home / "folder")
        path = tmp_path / "conf/shadow"
    before = Before("phase", tmp_path / "b")
    for does in (read_text, digest, before.keep, lambda path: write_file(path, "theirs\n", 0o644, me())):
        with pytest.raises(PermissionError):
            does(path)
    before.data["files"] = {str(path): {"existed": False, "after": "x"}}
    with pytest.raises(PermissionError):
        before.restore()
    assert (secret.read_text(), list(secret.parent.iterdir()), os.geteuid()) == ("root's\n", [secret], 0)


@AS_ROOT
def test_keys_that_lie_among_a_persons_dotfiles_stay_theirs(home: Path, tmp_path: Path) -> None:
    kept, path = home / "dotfiles/keys", home / ".ssh/authorized_keys"
    for folder in (kept.parent, path.parent):
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    kept.write_text("mine\n")
    os.chown(kept, NOBODY, NOBODY)
    path.symlink_to(kept)
    changed(Before("phase", tmp_path / "b"), path, "ours\n", 0o600)
    assert (kept.read_text(), kept.stat().st_uid, path.readlink()) == ("ours\n", NOBODY, kept)
    assert Before("phase", tmp_path / "b").restore() == []
    assert (kept.read_text(), kept.stat().st_uid, path.readlink()) == ("mine\n", NOBODY, kept)


def test_a_link_to_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """As systemctl mask lays it to /dev/null."""
    (device := tmp_path / "null").mkdir()
    (path := tmp_path / "made.service").symlink_to(device)
    before = Before("phase", tmp_path / "b")
    before.keep(path)
    with pytest.raises(PermissionError, match=r"made\.service"):
        write_file(path, "unit\n", 0o644, me())
    assert before.restore() == [] and path.readlink() == device and device.is_dir()


def test_a_folder_gets_its_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_file(tmp_path / "etc/network/50.d/motley.conf", "x\n", 0o644, (0, 0) if os.geteuid() == 0 else me())
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "etc").rglob("*") if path.is_dir()}
    assert modes == ({0o755} if os.geteuid() == 0 else {0o700})
