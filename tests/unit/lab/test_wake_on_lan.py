"""Which frames on the lab's switch are magic packets, and for whom."""

import pytest

from lab.wake_on_lan import meant
from plugins.module_utils.motley.waking import packet

MAC = "02:77:00:00:00:02"
ETHERNET = b"\xff" * 6 + bytes.fromhex("027700000001") + b"\x08\x00"


@pytest.mark.parametrize(
    ("frame", "mac"),
    [
        (ETHERNET + b"\x45" * 28 + packet(MAC), MAC),
        (ETHERNET[:12] + b"\x08\x42" + packet(MAC) + b"password", MAC),
        (ETHERNET + packet(MAC)[:-1], ""),
        (ETHERNET + b"\x45" * 28 + b"hello", ""),
    ],
)
def test_a_magic_packet_is_found_wherever_it_stands(frame: bytes, mac: str) -> None:
    assert meant(frame) == mac
