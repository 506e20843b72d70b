"""What keeps a node from taking and handing on files, and from being reached, is named with its fix."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from plugins.module_utils.motley import pass_files_on
from plugins.modules import artifacts, artifacts_info, mesh_probe


def test_a_folder_in_which_nothing_can_be_written_is_handed_on_all_the_same(tmp_path: Path) -> None:
    """A model in somebody else's folder, or on a disk that is read alone."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / f"{pass_files_on.MEMO}.new").mkdir()
    assert artifacts_info.facts(tmp_path)["config.json"]["size"] == 2


@pytest.mark.parametrize(
    ("module", "params", "said"),
    [
        (
            artifacts,
            {"files": {}, "address": "127.0.0.1", "after": {}, "place": 1},
            "is taken: .*another launch.*\nfix: the same again",
        ),
        (
            mesh_probe,
            {"name": "a", "peers": {"b": "127.0.0.2"}, "timeout_s": 1.0},
            "is taken there.*\nfix: .*sudo ss -ltnp 'sport = :",
        ),
    ],
)
def test_who_else_has_its_port_is_named(
    module: Any, params: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**result: Any) -> NoReturn:
        raise SystemExit(result["msg"])

    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        given = {"folder": str(tmp_path), "port": port, **params}
        made = SimpleNamespace(params=given, check_mode=False, fail_json=fails)
        monkeypatch.setattr(module, "module_of", lambda _: made)
        with pytest.raises(SystemExit, match=f"port {port} {said}"):
            module.main()
