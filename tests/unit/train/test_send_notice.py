"""What leaves for ntfy, for another webhook and for a command, and what is reported when it does not arrive."""

import base64
import json
import socket
from collections.abc import Iterator

import pytest

from tests.support.webhook import Webhook, webhook
from train import send_notice
from train.send_notice import Notice, send

LOST = Notice("lost", "notes", "gpu-worker-1 is lost since 10 minutes · ⚡", "3-gpu-worker-1")


@pytest.fixture
def server() -> Iterator[Webhook]:
    with webhook() as found:
        yield found


def test_ntfy_gets_title_priority_and_tags(server):
    assert send(f"ntfy+{server.address}", LOST) == ""
    ((path, headers, body),) = server.got
    assert (path, body.decode()) == ("/secret", LOST.text)
    assert (headers["Title"], headers["Priority"], headers["Tags"]) == ("notes: a machine is lost", "high", "zap")


@pytest.mark.parametrize("address", ["https://ntfy.sh/x", "https://ntfy.example:8443/x", "https://me:pw@my.ntfy.sh/x"])
def test_ntfy_is_known_by_its_name(address):
    assert send_notice.request(address, LOST).get_header("Title")
    assert not send_notice.request("https://example.org/ntfy/x", LOST).get_header("Title")


@pytest.mark.parametrize("kind", ["ntfy+http", "http", "HTTP", "NTFY+HTTP"])
def test_a_login_in_the_address_goes_as_basic_authentication(server, kind):
    assert send(server.address.replace("http://", f"{kind}://me:p%40ss:word@"), LOST) == ""
    ((path, headers, _),) = server.got
    assert path == "/secret" and "@" not in headers["Host"]
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'me:p@ss:word').decode()}"


def test_an_address_of_nothing_is_not_sent_to():
    assert [send(nothing, LOST) for nothing in ("", " \n")] == ["the address is empty"] * 2


def test_an_address_without_a_host_is_said_to_be_one():
    assert send("https:///secret", LOST, pauses_s=(60,)) == "the address names no host"


def test_another_webhook_gets_json_that_chats_understand(server):
    assert send(server.address, LOST) == ""
    ((_, headers, body),) = server.got
    facts = json.loads(body)
    assert headers["Content-Type"] == "application/json"
    assert (facts["event"], facts["run"], facts["message"]) == ("lost", "notes", LOST.text)
    assert facts["text"] == facts["content"] == f"{LOST.title}\n{LOST.text}"


def test_a_long_text_is_cut_to_what_chats_and_ntfy_take(server):
    """As the reason of a run that failed: some libraries give a screenful."""
    failed = Notice("failed", "notes", "run notes failed: " + "Größe " * 400)
    assert send(server.address, failed) == "" == send(f"ntfy+{server.address}", failed)
    (_, _, chat), (_, _, ntfy) = server.got
    assert len(json.loads(chat)["content"]) <= 2000 and len(ntfy) <= 4096
    assert ntfy.decode().startswith("run notes failed: Größe") and ntfy.decode().endswith(" …")


def test_a_command_gets_the_text_on_stdin_and_in_its_environment(tmp_path):
    command = f'cat > {tmp_path}/stdin; echo "$MOTLEY_EVENT $MOTLEY_RUN $MOTLEY_TEXT" > {tmp_path}/env'
    command += f'; tr "\\0" " " < /proc/$$/cmdline > {tmp_path}/words; env | grep -c MOTLEY_NOTIFY > {tmp_path}/left'
    assert send(f"{command}; true", LOST) == ""
    assert (tmp_path / "stdin").read_text() == f"{LOST.text}\n"
    assert (tmp_path / "env").read_text() == f"lost notes {LOST.text}\n"
    assert str(tmp_path) not in (tmp_path / "words").read_text(), "the process list shows no part of it"
    assert (tmp_path / "left").read_text() == "0\n"
    assert send("echo secret; exit 3", LOST) == "the command ended with exit code 3"


def test_a_command_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(send_notice, "TIMEOUT_S", 0.3)
    assert "had not ended" in send("sleep 60", LOST)


def test_what_may_pass_is_tried_again(server):
    server.answers = [503, 429]
    assert send(server.address, LOST, pauses_s=(0, 0)) == "" and len(server.got) == 3
    server.answers = [404]
    assert send(server.address, LOST, pauses_s=(0, 0)) == "it answered HTTP 404" and len(server.got) == 4
    server.answers = [301]
    assert "it redirects" in send(server.address, LOST, pauses_s=(0, 0)) and len(server.got) == 5


def test_no_reason_has_a_part_of_the_address(monkeypatch):
    monkeypatch.setattr(send_notice, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert send(f"http://127.0.0.1:{port}/secret", LOST, pauses_s=()) == "no answer within 0 s"
    for address in (
        f"http://127.0.0.1:{port}/secret",
        "http://secret:secret/",
        "https://[secret/",
        "http://a b/secret",
    ):
        why = send(address, LOST, pauses_s=())
        assert why and "secret" not in why, why
