"""Who could still log in without Motley's keys, by what sshd says of itself and by each line of its key files."""

import base64
import time

import pytest

from plugins.module_utils.motley import ssh_access

CONTROLLER = "192.168.1.10"
NOW = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))


def key(name: str = "ssh-ed25519", filling: str = "A") -> str:
    """A public key as ssh-keygen writes it: the body begins with the length of its kind, and the kind."""
    return f"{name} {base64.b64encode(len(name).to_bytes(4, 'big') + name.encode() + filling.encode() * 32).decode()}"


KEY = key()
SSHD = """\
permitrootlogin without-password
pubkeyauthentication yes
passwordauthentication yes
kbdinteractiveauthentication no
usepam yes
authenticationmethods any
authorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2
pubkeyacceptedalgorithms ssh-ed25519,ecdsa-sha2-nistp256,sk-ssh-ed25519@openssh.com,rsa-sha2-512,rsa-sha2-256
"""


def counts(line: str, address: str = CONTROLLER) -> bool:
    return bool(ssh_access.real_keys(line + "\n", ssh_access.settings_of(SSHD), address, NOW))


@pytest.mark.parametrize(
    ("line", "real"),
    [
        (f"{KEY} anna@desk", True),
        (f"  {KEY}", True),
        (f"{key('ssh-rsa')} anna", True),
        (f"{key('sk-ssh-ed25519@openssh.com')} anna", True),
        (f"# {KEY} anna", False),
        ("", False),
        ("ssh-ed25519 AAAAthis-is-no-key anna", False),
        ("ssh-ed25519", False),
        (f"ssh-rsa {KEY.split()[1]} another kind inside", False),
        (f"{key('ssh-dss')} sshd does not take these any more", False),
        (f'command="/usr/bin/backup --from \\"a b\\" # {KEY}" {KEY} backup', False),
        (f'no-pty,command="x",no-X11-forwarding {KEY}', False),
        (f"restrict {KEY} opens no terminal", False),
        (f"no-pty {KEY}", False),
        (f"restrict,pty {KEY}", True),
        (f"pty,restrict {KEY}", False),
        (f'environment="A=command",no-port-forwarding {KEY}', True),
        (f'environment="A=b, c" {KEY} a comment with "quotes', True),
        (f'cert-authority,principals="anna" {KEY}', False),
        (f'expiry-time="20261121" {KEY}', False),
        (f'expiry-time="20261123" {KEY}', True),
        (f'expiry-time="202611221159" {KEY}', False),
        (f'expiry-time="202611221201" {KEY}', True),
        (f'expiry-time="20261230000000Z" {KEY}', True),
        (f'expiry-time="19700101Z" {KEY}', False),
        (f'expiry-time="some day" {KEY}', False),
        (f'from="192.168.1.0/24" {KEY}', True),
        (f'from="10.0.0.0/8,192.168.1.1?" {KEY}', True),
        (f'from="192.168.*,!192.168.1.10" {KEY}', False),
        (f'FROM="10.0.0.0/8" {KEY}', False),
        (f'from="desk.example" {KEY}', False),
        (f'from="[192].168.1.10" {KEY}', False),
    ],
)
def test_only_a_key_that_opens_a_shell_from_here_counts(line: str, real: bool) -> None:
    assert counts(line) is real


@pytest.mark.parametrize(
    ("settings", "keys", "password", "user", "logins"),
    [
        ({}, 0, True, "anna", ["a password"]),
        ({}, 2, True, "anna", ["a password", "2 keys"]),
        ({}, 0, False, "anna", []),
        ({}, 1, False, "anna", ["1 key"]),
        ({}, 0, True, "root", []),
        ({}, 1, True, "root", ["1 key"]),
        ({"permitrootlogin": "yes"}, 0, True, "root", ["a password"]),
        ({"permitrootlogin": "forced-commands-only"}, 1, True, "root", []),
        ({"passwordauthentication": "no"}, 0, True, "anna", []),
        ({"passwordauthentication": "no", "kbdinteractiveauthentication": "yes"}, 0, True, "anna", ["a password"]),
        (
            {"passwordauthentication": "no", "kbdinteractiveauthentication": "yes", "usepam": "no"},
            *(0, True, "anna", []),
        ),
        ({"authenticationmethods": "publickey"}, 0, True, "anna", []),
        ({"authenticationmethods": "publickey"}, 1, True, "anna", ["1 key"]),
        ({"authenticationmethods": "publickey,password"}, 0, True, "anna", []),
        ({"authenticationmethods": "publickey,password"}, 1, True, "anna", ["1 key and a password"]),
        ({"authenticationmethods": "publickey,publickey"}, 1, True, "anna", []),
        ({"authenticationmethods": "publickey,keyboard-interactive:pam password"}, 0, True, "anna", ["a password"]),
        ({"authenticationmethods": "gssapi-with-mic hostbased"}, 1, True, "anna", []),
        ({"pubkeyauthentication": "no"}, 1, True, "anna", ["a password"]),
    ],
)
def test_a_way_in_is_a_whole_method_that_is_open(
    settings: dict[str, str], keys: int, password: bool, user: str, logins: list[str]
) -> None:
    effective = ssh_access.settings_of(SSHD) | {name: value.split() for name, value in settings.items()}
    assert ssh_access.logins(effective, keys, password=password, root=user == "root") == logins


@pytest.mark.parametrize(
    ("value", "files"),
    [
        (".ssh/authorized_keys .ssh/authorized_keys2", ["/h/a/.ssh/authorized_keys", "/h/a/.ssh/authorized_keys2"]),
        ("none", []),
        ("/etc/ssh/keys/%u %h/keys-of-%U /a%%b", ["/etc/ssh/keys/anna", "/h/a/keys-of-1000", "/a%b"]),
    ],
)
def test_keys_are_looked_for_where_sshd_looks(value: str, files: list[str]) -> None:
    effective = ssh_access.settings_of(SSHD) | {"authorizedkeysfile": value.split()}
    assert [str(path) for path in ssh_access.key_files(effective, "anna", "/h/a", 1000)] == files


@pytest.mark.parametrize(
    ("line", "has"),
    [
        *(("anna:$y$j9T$x:20000:0:99999:7:::", True), ("anna:!:1:::::", False), ("anna:*:1:::::", False)),
        *(("anna:!$y$j9T$x:1:::::", False), ("anna::1:::::", False), ("berta:!:1:::::", True)),
    ],
)
def test_a_locked_account_has_no_password_and_one_kept_elsewhere_may_have_one(line: str, has: bool) -> None:
    assert ssh_access.has_password("anna", f"root:*:1:::::\n{line}\n") is has
