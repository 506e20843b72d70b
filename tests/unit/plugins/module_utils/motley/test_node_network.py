"""What a node tells of its network: cards by name and MAC, netplan's three folders, Wi-Fi, name servers, ifupdown."""

from collections.abc import Callable
from pathlib import Path

import pytest

from plugins.module_utils.motley import ifupdown, lan, node_network

MAC = "3c:7c:3f:00:00:01"


def answers(**said: str) -> Callable[..., str]:
    """A machine on which these programs answer, and no others; __ stands for a space."""
    return lambda *command: next(
        (text for key, text in said.items() if " ".join(command).startswith(key.replace("__", " "))), ""
    )


def card(net: Path, name: str, mac: str = MAC, lower: str = "") -> None:
    (net / name).mkdir(parents=True)
    (net / name / "address").write_text(f"{mac}\n")
    if lower:
        (net / name / f"lower_{lower}").symlink_to(net / lower)


def test_a_card_is_found_by_name_and_mac(tmp_path: Path) -> None:
    for name, lower in (("br0", "enp5s0"), ("enp5s0", ""), ("enp5s0.10", "enp5s0")):
        card(tmp_path, name, lower=lower)
    for name in ("br0", "enp5s0", "enp5s0.10"):
        assert lan.nic_by_mac(MAC.upper(), name, tmp_path) == name


def test_a_renamed_card_is_found_by_its_mac_and_not_what_lies_on_it(tmp_path: Path) -> None:
    card(tmp_path, "br0", lower="enp9s0")
    card(tmp_path, "enp9s0")
    card(tmp_path, "enp5s0", "3c:7c:3f:00:00:02")  # another card has its name now
    assert lan.nic_by_mac(MAC, "enp5s0", tmp_path) == "enp9s0"
    assert lan.nic_by_mac("3c:7c:3f:00:00:09", "enp5s0", tmp_path) == ""


@pytest.mark.parametrize(
    ("found", "left", "right"),
    [
        (["192.168.1.31/24"], "192.168.1.31", True),
        (["192.168.1.31/24"], "192.168.1.50", True),
        (["192.168.1.31/24", "10.20.0.5/32"], "192.168.1.50", True),  # of keepalived, or of a script of the owner's
        (["192.168.1.31/24", "192.168.1.50/24"], "192.168.1.50", False),
        (["192.168.1.31/16", "10.20.0.5/32"], "192.168.1.50", False),
        ([], "", False),
    ],
)
def test_the_one_it_is_to_have_is_there_and_the_one_it_leaves_is_not(
    monkeypatch: pytest.MonkeyPatch, found: list[str], left: str, right: bool
) -> None:
    shown = [{"local": one.split("/")[0], "prefixlen": int(one.split("/")[1])} for one in found]
    monkeypatch.setattr(lan, "ip", lambda *_: [{"addr_info": shown}])
    assert lan.carries("enp5s0", "192.168.1.31/24", left) is right


@pytest.mark.parametrize(
    ("wireless", "up"), [(True, "connection up uuid 11-22 ifname wlp2s0"), (False, "device connect wlp2s0")]
)
def test_a_radio_goes_back_to_the_network_it_was_in(
    wireless: bool, up: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def nmcli(*words: str) -> str:
        said.append(" ".join(words))
        return "11-22" if "GENERAL.CON-UUID" in words else "30 (disconnected)"

    monkeypatch.setattr(lan, "nmcli", nmcli)
    monkeypatch.setattr(lan, "nic_by_mac", lambda mac, name: "wlp2s0")
    monkeypatch.setattr(lan, "NET", tmp_path)
    monkeypatch.setattr(lan, "WIFI", tmp_path / "wifi")
    (tmp_path / "wlp2s0" / ("wireless" if wireless else "device")).mkdir(parents=True)
    lan.let_go(MAC, "wlp2s0")
    lan.take_up(MAC, "wlp2s0")
    assert said[-1].endswith(up) and "device disconnect wlp2s0" in said


def test_netplan_files_shadow_each_other_and_go_by_name(tmp_path: Path) -> None:
    for path in (
        "usr/lib/netplan/00-a",
        "usr/lib/netplan/50-b",
        "etc/netplan/50-b",
        "etc/netplan/60-c",
        "run/netplan/60-c",
    ):
        file = tmp_path / f"{path}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"# " + path.encode() + b" \xdf\r\n")
    (tmp_path / "etc/netplan/99.yaml.bak").write_text("")
    (tmp_path / "etc/netplan/.50-b.yaml").write_text("hidden")
    (tmp_path / "etc/netplan/.#60-c.yaml").symlink_to("anna@desktop.4711:1732260000")  # as an editor locks a file
    (tmp_path / "etc/netplan/70-gone.yaml").symlink_to("/opt/gone.yaml")
    found = node_network.netplan_files(tmp_path)
    assert list(found) == ["/usr/lib/netplan/00-a.yaml", "/etc/netplan/50-b.yaml", "/run/netplan/60-c.yaml"]


@pytest.mark.parametrize(
    ("said", "network"),
    [
        (
            {"nmcli__-e__no__-g__GENERAL.CON-UUID": "11-22\n", "nmcli__-e__no__-g__802-11": "Café: 5\n"},
            ("11-22", "Café: 5"),
        ),
        ({"iw__dev__wlp2s0": "Connected to aa:bb (on wlp2s0)\n\tSSID: Caf\\xc3\\xa9\n\tfreq: 5180\n"}, ("", "Café")),
        ({"iw__dev__wlp2s0": "Not connected.\n", "wpa_cli": "bssid=aa:bb\nssid=Home 5\nid=0\n"}, ("", "Home 5")),
        ({"networkctl": "   Type: wlan\nWiFi access point: Home (5) (aa:bb:cc:dd:ee:ff)\n"}, ("", "Home (5)")),
        ({"nmcli__-e__no__-g__GENERAL.CON-UUID": "--\n"}, ("", "")),
    ],
)
def test_the_wifi_network_in_use_is_known(said: dict[str, str], network: tuple[str, str]) -> None:
    found = node_network.wifi_in_use("wlp2s0", answers(**said))
    assert (found["uuid"], found["ssid"]) == network


def test_name_servers_are_those_behind_a_stub(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/resolv.conf").write_text("nameserver 127.0.0.53\nnameserver ::1\nsearch home lan\n")
    resolved = answers(
        resolvectl__dns__enp5s0="Link 2 (enp5s0): 192.168.1.1 9.9.9.9#dns.quad9.net fe80::1%2 fd00::1 2003:e1::1\n",
        resolvectl__domain__enp5s0="Link 2 (enp5s0): home ~. ~corp\n",
    )
    assert node_network.name_servers("enp5s0", resolved, tmp_path) == {
        "servers": ["192.168.1.1", "9.9.9.9", "fd00::1"],
        "search": ["home"],
    }
    manager = answers(**{"nmcli__-g__IP4": "192.168.1.1 | 192.168.1.2\nhome\n"})
    assert node_network.name_servers("enp5s0", manager, tmp_path) == {
        "servers": ["192.168.1.1", "192.168.1.2"],
        "search": ["home"],
    }
    assert node_network.name_servers("enp5s0", answers(), tmp_path) == {"servers": [], "search": ["home", "lan"]}
    (tmp_path / "etc/resolv.conf").write_text("# by hand\nnameserver 192.168.1.5 # box\n")
    assert node_network.name_servers("enp5s0", answers(), tmp_path) == {"servers": ["192.168.1.5"], "search": []}
    assert node_network.usable(["2003:e1::1"]) == ["2003:e1::1"], "better than none"


INTERFACES = """# The loopback network interface
auto lo enp6s0 enp5s0
iface lo inet loopback
source-directory interfaces.d

# The primary network interface
allow-hotplug enp5s0
iface enp5s0 inet static
\taddress 192.168.1.23/24
# an old one
#\taddress 10.0.0.1/24
\tgateway 192.168.1.1
\tdns-nameservers 192.168.1.5 \\
\t  9.9.9.9

iface enp6s0 inet dhcp
"""
SIX = "iface enp5s0 inet6 auto\n\n# the owner's\niface enp5s0.10 inet static\n\taddress 10.9.0.5/24\n"


def write_interfaces(root: Path) -> None:
    (root / "etc/network/interfaces.d").mkdir(parents=True)
    (root / "etc/network/interfaces").write_text(INTERFACES)
    (root / "etc/network/interfaces.d/six").write_text(SIX)
    (root / "etc/network/interfaces.d/six~").write_text(SIX)


def test_what_ifupdown_has_is_read_with_all_that_it_includes(tmp_path: Path) -> None:
    write_interfaces(tmp_path)
    found = ifupdown.stanzas(tmp_path)
    assert list(found) == ["lo", "enp5s0", "enp6s0", "enp5s0.10"]
    assert [(stanza["family"], stanza["method"]) for stanza in found["enp5s0"]] == [
        ("inet", "static"),
        ("inet6", "auto"),
    ]
    assert found["enp5s0"][0]["options"] == [
        ["address", "192.168.1.23/24"],
        ["gateway", "192.168.1.1"],
        ["dns-nameservers", "192.168.1.5 9.9.9.9"],
    ]


def test_a_card_is_taken_out_of_ifupdowns_files_and_the_others_stay(tmp_path: Path) -> None:
    write_interfaces(tmp_path)
    without = ifupdown.without("enp5s0", tmp_path)
    main, six = without["/etc/network/interfaces"], without["/etc/network/interfaces.d/six"]
    assert "auto lo enp6s0\n" in main and "enp5s0" not in main.replace(ifupdown.NOTE.format(nic="enp5s0"), "")
    assert "# The primary network interface\n" in main and "iface enp6s0 inet dhcp\n" in main
    assert "source-directory interfaces.d\n" in main and "192.168.1" not in main
    assert six.endswith("\n# the owner's\niface enp5s0.10 inet static\n\taddress 10.9.0.5/24\n") and "inet6" not in six


def test_a_machine_without_ifupdown_has_none(tmp_path: Path) -> None:
    assert ifupdown.stanzas(tmp_path) == {} == ifupdown.without("enp5s0", tmp_path)


def test_a_program_whose_name_the_kernel_cut_within_a_letter_is_read() -> None:
    """comm has 15 bytes: of a Russian name, seven letters and a half."""
    told = node_network.ask("printf", r'users:(("\320\274\320\276\321","pid=7"))')
    assert told == 'users:(("мо\ufffd","pid=7"))'
