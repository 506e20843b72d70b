"""Links on the way to a file that is kept, written and brought back; whose rights count there; modes of folders."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugins.module_utils.motley.undo_record import Before, digest, read_text, write_file


def me() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def changed(before: Before, path: Path, text: str, mode: int = 0o644) -> None:
    before.keep(path)
    write_file(path, text, mode, me())
    before.wrote(path)


NOBODY = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """Of another user, who laid links in it."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can be led by somebody's link")
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


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give files away")
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


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can be led by somebody's link")
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


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give files away")
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
