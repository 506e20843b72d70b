"""A file that is written is the old one or the new one, whatever happens meanwhile, and nobody's whom it is not for."""

import hashlib
import os
from pathlib import Path

import pytest

from train.files import size_and_hash, whole_folder, write_atomic


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_it_has_its_folder_and_its_mode(tmp_path):
    plain, secret = tmp_path / "a/plain", tmp_path / "b/secret"
    write_atomic(plain, b"one")
    write_atomic(secret, b"two", mode=0o640)
    plain.chmod(0o600)
    write_atomic(plain, b"three")
    assert (plain.read_bytes(), secret.read_bytes()) == (b"three", b"two")
    (tmp_path / "as usual").touch()
    assert (mode_of(plain), mode_of(secret)) == (mode_of(tmp_path / "as usual"), 0o640)


def test_a_write_that_fails_leaves_the_old_one_and_no_draft(tmp_path, monkeypatch):
    file, seen = tmp_path / "token", []
    write_atomic(file, b"old", mode=0o600)

    def full(handle):
        seen.extend(path.name for path in tmp_path.iterdir() if mode_of(path) == 0o600)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, b"new", mode=0o600)
    assert sorted(seen) == [f".token.{os.getpid()}", "token"], "the draft is as private"
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_draft_that_somebody_has_laid_there_leads_nowhere(tmp_path):
    (tmp_path / f".file.{os.getpid()}").symlink_to(tmp_path / "elsewhere")
    write_atomic(tmp_path / "file", b"new")
    assert not (tmp_path / "elsewhere").exists() and not (tmp_path / "file").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root can give files away")
def test_it_is_its_owners(tmp_path):
    write_atomic(tmp_path / "file", b"", mode=0o600, owner=(12345, 54321))
    found = (tmp_path / "file").stat()
    assert (found.st_uid, found.st_gid) == (12345, 54321)


def test_a_folder_has_its_name_once_all_that_is_below_it_is_on_the_disk(tmp_path, monkeypatch):
    """Prepared rows lie in folders of their own in it: after a power cut they would be empty."""
    on_disk, fsync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (on_disk.add(os.fstat(handle).st_ino), fsync(handle)))
    with whole_folder(tmp_path / "rows") as draft:
        (draft / "train").mkdir()
        (draft / "train/tokens.bin").write_bytes(b"12")
        (draft / "index.json").write_text("{}")
    found = [tmp_path / "rows", *(tmp_path / "rows").rglob("*")]
    assert [path.name for path in found if path.stat().st_ino not in on_disk] == []


def test_size_and_hash(tmp_path):
    (tmp_path / "file").write_bytes(b"word" * 100_000)
    sha256 = hashlib.sha256(b"word" * 100_000).hexdigest()
    assert size_and_hash(tmp_path / "file") == {"size": 400_000, "sha256": sha256}
