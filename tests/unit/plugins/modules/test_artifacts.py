"""Files that a node takes and hands on: what keeps it from that is named with its fix."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from plugins.module_utils.motley import pass_files_on
from plugins.modules import artifacts, artifacts_info


def test_a_folder_in_which_nothing_can_be_written_is_handed_on_all_the_same(tmp_path: Path) -> None:
    """A model in somebody else's folder, or on a disk that is read alone."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / f"{pass_files_on.MEMO}.new").mkdir()
    assert artifacts_info.facts(tmp_path)["config.json"]["size"] == 2


def test_a_second_launch_at_the_same_moment_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**result: Any) -> NoReturn:
        raise SystemExit(result["msg"])

    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        params = {"folder": str(tmp_path), "files": {}, "address": "127.0.0.1", "port": port, "after": {}, "place": 1}
        module = SimpleNamespace(params=params, check_mode=False, fail_json=fails)
        monkeypatch.setattr(artifacts, "module_of", lambda _: module)
        with pytest.raises(SystemExit, match=f"port {port} is taken: .*another launch.*\nfix: the same again"):
            artifacts.main()
