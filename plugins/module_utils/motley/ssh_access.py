"""Who can log in on a node: what its sshd would accept (`sshd -T -C …`), and which lines of its key files open a shell.

Pure. What cannot be judged from here (AuthorizedKeysCommand, certificates, other machines'
host keys) counts as closed: it is asked before a key is taken away.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import ipaddress
import re
import time
from pathlib import Path

RSA_SIGNATURES = {"rsa-sha2-256", "rsa-sha2-512", "ssh-rsa"}
EXPIRY = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def settings_of(printed: str) -> dict[str, list[str]]:
    """What `sshd -T` prints: a setting a line, several lines for some."""
    settings: dict[str, list[str]] = {}
    for line in printed.splitlines():
        name, *values = line.split()
        settings.setdefault(name.lower(), []).extend(values)
    return settings


def logins(settings: dict[str, list[str]], keys: int, *, password: bool, root: bool) -> list[str]:
    """How one can log in, with this many keys and with or without a password of the account's."""
    roots = settings.get("permitrootlogin", ["no"])[0] if root else "yes"
    typed = password and roots == "yes"
    by_pam = is_on(settings, "kbdinteractiveauthentication") and is_on(settings, "usepam")
    by_key = is_on(settings, "pubkeyauthentication") and roots not in ("no", "forced-commands-only")
    words = {
        "password": "a password" if typed and is_on(settings, "passwordauthentication") else "",
        "keyboard-interactive": "a password" if typed and by_pam else "",
        "publickey": f"{keys} key{'s' if keys > 1 else ''}" if by_key and keys else "",
    }
    methods = settings.get("authenticationmethods", ["any"])
    chains = [[word] for word in words] if methods == ["any"] else [method.split(",") for method in methods]
    steps = [[step.split(":")[0] for step in chain] for chain in chains]
    whole = [chain for chain in steps if all(words.get(step) for step in chain) and chain.count("publickey") <= keys]
    return list(dict.fromkeys(" and ".join(dict.fromkeys(words[step] for step in chain)) for chain in whole))


def why_none(settings: dict[str, list[str]], lines: int, keys: int) -> str:
    """The sentence where nobody can log in: so many lines that are not Motley's, so many real keys in them."""
    if not settings:
        return "its sshd does not report what it accepts (sshd -T)"
    if keys:
        others = f"AuthenticationMethods asks for more than the {keys} other key{'s' if keys > 1 else ''}"
    elif lines:
        others = "no other key opens a shell from here (command=, restrict, from=, expired, …)"
    else:
        others = "no other key is known"
    return f"no password opens a session there, and {others}"


def is_on(settings: dict[str, list[str]], name: str) -> bool:
    return settings.get(name) == ["yes"]


def has_password(user: str, shadow: str) -> bool:
    """Locked or empty is none; an account that is kept elsewhere (LDAP) may have one."""
    for line in shadow.splitlines():
        name, hashed, *_ = [*line.split(":"), ""]
        if name == user:
            return not hashed.startswith(("!", "*")) and hashed != ""
    return True


def key_files(settings: dict[str, list[str]], user: str, home: str, uid: int) -> list[Path]:
    tokens = {"%h": home, "%u": user, "%U": str(uid), "%%": "%"}
    names = [name for name in settings.get("authorizedkeysfile", []) if name != "none"]
    return [Path(home, re.sub("%[huU%]", lambda found: tokens[found[0]], name)) for name in names]


def real_keys(text: str, settings: dict[str, list[str]], address: str, now: float) -> list[str]:
    """The keys of an authorized_keys file that open a shell for somebody at this address."""
    accepted = set(",".join(settings.get("pubkeyacceptedalgorithms", [])).split(","))
    keys = []
    for line in text.splitlines():
        options, kind, body = key_of(line)
        signs = RSA_SIGNATURES if kind == "ssh-rsa" else {kind}
        if is_key(kind, body) and signs & accepted and opens_shell(options, address, now):
            keys.append(f"{kind} {body}")
    return keys


def lines_with_keys(text: str) -> int:
    return sum(is_key(*key_of(line)[1:]) for line in text.splitlines())


def key_of(line: str) -> tuple[list[tuple[str, str]], str, str]:
    """A line's options (name, value), kind and key; nothing for what is none."""
    words = [word for word in split_unquoted(line.strip(), " \t") if word]
    if len(words) < 2 or line.lstrip().startswith("#"):
        return [], "", ""
    if is_key(*words[:2]) or len(words) < 3:
        return [], words[0], words[1]
    return [option_of(option) for option in split_unquoted(words[0], ",")], words[1], words[2]


def split_unquoted(text: str, at: str) -> list[str]:
    """Splits as sshd reads options: what separates does not do so between double quotes, and a quote in them is \\"."""
    parts, start, quoted, place = [], 0, False, 0
    while place < len(text):
        if text.startswith('\\"', place):
            place += 1
        elif text[place] == '"':
            quoted = not quoted
        elif not quoted and text[place] in at:
            parts.append(text[start:place])
            start = place + 1
        place += 1
    return [*parts, text[start:]]


def option_of(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name.lower(), value.strip('"').replace('\\"', '"')


def is_key(kind: str, body: str) -> bool:
    """Whether it is a key of this kind: its body says itself of which kind it is."""
    try:
        content = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return False
    return content[4 : 4 + int.from_bytes(content[:4], "big")].decode("ascii", "replace") == kind


def opens_shell(options: list[tuple[str, str]], address: str, now: float) -> bool:
    terminal = True
    for name, value in options:
        if name in ("command", "cert-authority"):
            return False
        if name == "from" and not is_from(value, address):
            return False
        if name == "expiry-time" and now > expiry(value):
            return False
        terminal = {"restrict": False, "no-pty": False, "pty": True}.get(name, terminal)
    return terminal


def is_from(patterns: str, address: str) -> bool:
    """One of the patterns fits, and none of those with a ! before it."""
    fits = False
    for pattern in patterns.split(","):
        if fits_one(pattern.strip().removeprefix("!"), address):
            if pattern.strip().startswith("!"):
                return False
            fits = True
    return fits


def fits_one(pattern: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(wild, address, re.IGNORECASE) is not None


def expiry(value: str) -> float:
    """In the machine's own time, or with a Z in UTC; what cannot be read is over."""
    digits = value.removesuffix("Z")
    try:
        when = time.strptime(digits, EXPIRY[len(digits)])
    except (KeyError, ValueError):
        return 0.0
    return calendar.timegm(when) if value.endswith("Z") else time.mktime(when)
