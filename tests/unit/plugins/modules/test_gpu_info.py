"""What a look at a machine's firmware says."""

from pathlib import Path

import pytest

from plugins.modules import gpu_info


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({"SecureBoot": b"\6\0\0\0\1"}, True),
        ({"SecureBoot": b"\6\0\0\0\0"}, False),
        # mokutil --sb-state: "SecureBoot enabled" and "SecureBoot validation is disabled in shim".
        ({"SecureBoot": b"\6\0\0\0\1", "MokSBStateRT": b"\6\0\0\0\1"}, False),
    ],
)
def test_secure_boot_that_shim_was_told_not_to_check_is_off(
    variables: dict[str, bytes], on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, constant in {"SecureBoot": "SECURE_BOOT", "MokSBStateRT": "NOT_CHECKED"}.items():
        monkeypatch.setattr(gpu_info, constant, tmp_path / name)
        if name in variables:
            (tmp_path / name).write_bytes(variables[name])
    assert gpu_info.secure_boot() == on
