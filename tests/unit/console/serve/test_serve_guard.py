"""Who may ask the endpoint: no page of another site, and in the network only who has the token."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.datastructures import Headers

from console.serve import guard
from console.serve.guard import Guard, token_of

HOST = {"host": "127.0.0.1:7070"}


async def nothing(*_: object) -> None: ...


def refused(headers: dict[str, str], token: str = "") -> int:
    found = Guard(nothing, hosts=["127.0.0.1:7070", "localhost:7070"], token=token).refusal(Headers(headers))
    return found.status if found else 0


def test_who_asks_by_another_name_is_told_the_right_one() -> None:
    """As a program in a container does, which knows this machine as host.docker.internal."""
    guard = Guard(nothing, hosts=["127.0.0.1:7070", "localhost:7070"])
    said = "this endpoint is asked at http://127.0.0.1:7070/v1 or http://localhost:7070/v1, not at host.docker.internal"
    assert str(guard.refusal(Headers({"host": "host.docker.internal:7070"}))).startswith(said)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, 0),
        ({"authorization": "Bearer any"}, 0),
        ({"host": "LOCALHOST:7070"}, 0),
        ({"origin": "http://localhost:7070", "sec-fetch-site": "same-origin"}, 0),
        ({"host": "evil.example:7070"}, 421),
        ({"host": "127.0.0.1:7071"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_programs_of_this_machine_may_and_pages_of_other_sites_may_not(more: dict[str, str], status: int) -> None:
    assert refused(HOST | more) == status


@pytest.mark.parametrize(
    ("given", "status"),
    [("Bearer secret", 0), ("bearer secret", 0), ("Bearer secre", 401), ("secret", 401), ("Bearer é", 401), ("", 401)],
)
def test_with_a_token_only_who_has_it(given: str, status: int) -> None:
    assert refused(HOST | {"authorization": given}, token="secret") == status
    assert refused(HOST, token="secret") == 401


def test_a_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(guard.secrets, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    assert refused(HOST | {"authorization": "Bearer x"}, token="secret") == 401
    assert compared == [(b"x", b"secret")]


def test_the_token_is_made_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    made, is_new = token_of(tmp_path / "state")
    assert is_new and len(made) > 40 and token_of(tmp_path / "state") == (made, False)
    file = tmp_path / "state" / guard.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    assert token_of(tmp_path / "state")[0] != made
