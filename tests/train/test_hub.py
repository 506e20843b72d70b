"""What the hub holds, and what a machine without it answers. A small HTTP server stands for the hub."""

import hashlib
import json
import logging
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support import pace
from tests.train.cluster import ROOT, environment
from train.hub import calm
from train.models.model_files import model_folder

COMMIT = "c" * 40


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as a data set and a config.json need."""

    files = {  # noqa: RUF012
        "datasets/me/qa": {
            "train.jsonl": "".join(json.dumps({"prompt": f"q{n}", "completion": f"a{n}"}) + "\n" for n in range(50)),
            "test.jsonl": "not for training",
            "README.md": "",
        },
        "me/small": {"config.json": ""},
    }

    busy = 0
    """How many requests for files it will not answer yet."""

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, with_body):
        if Hub.busy and "/resolve/" in self.path:
            Hub.busy -= 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path = self.path.split("?")[0].lstrip("/")
        if path.startswith("api/"):
            body = self.tree(path.removeprefix("api/").partition("/tree/")[0].removeprefix("models/"))
        elif "/resolve/" in path:
            repo, _, rest = path.partition("/resolve/")
            body = self.files.get(repo, {}).get(rest.partition("/")[2])
        else:
            body = None
        if body is None or "gated" in path:
            code, message = ("403", "GatedRepo") if "gated" in path else ("404", "RepoNotFound")
            self.send_response(int(code))
            self.send_header("X-Error-Code", message)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = body.encode()
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def tree(self, repo):
        names = self.files.get(repo)
        return names and json.dumps([{"type": "file", "path": n, "size": 1, "oid": "0" * 40} for n in names])

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    Hub.files["me/small"]["config.json"] = (Path(model_folder("tiny")) / "config.json").read_text()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
    }
    server.shutdown()


def train(env, *flags):
    return python(env, "-m", "train", *flags)


def python(env, *words):
    command = [sys.executable, *words]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = pace.run(*command, cwd=ROOT, env=clean | environment() | env)
    return done.returncode, done.stdout, done.stderr


def test_a_data_set_of_the_hub_is_prepared(hub, tmp_path):
    code, out, err = train(
        hub, "prepare", "--dataset", "me/qa", "--model", "tiny", "--out", str(tmp_path / "rows"), "--json"
    )
    assert code == 0, err
    assert json.loads(out)["files"] == ["train.jsonl"]
    assert json.loads(out)["records"]["records"] == 50
    assert "hub id" in err


PLAN = """\
import json, sys
from train.errors import BadInput
from train.plan.launch.plan_cards import what_if
try:
    print(json.dumps(what_if("8", {"model": sys.argv[1]}).data))
except BadInput as wrong:
    print(wrong, file=sys.stderr)
    sys.exit(2)
"""


def test_a_model_of_the_hub_is_planned_from_its_config_alone(hub):
    code, out, err = python(hub, "-c", PLAN, "me/small")
    assert code == 0, err
    assert json.loads(out)["parameters"] == 1_049_728
    assert err == ""


def test_a_hub_that_does_not_answer_at_once_is_asked_again_and_one_calm_line_says_so(hub):
    Hub.busy = 2
    code, out, err = python(hub, "-c", PLAN, "me/small")
    assert (code, Hub.busy) == (0, 0), err
    assert json.loads(out)["parameters"] == 1_049_728
    assert re.fullmatch(
        r"me/small: the hub does not answer \(.*\) · trying again for half a minute; check the .*\n", err
    )


def test_what_else_the_library_warns_of_is_not_shown_but_its_errors_are(capsys):
    log = logging.getLogger("huggingface_hub.utils._http")
    with calm("me/small"):
        shown = [log.filter(record(log, level, "no token")) for level in (logging.WARNING, logging.ERROR)]
        log.filter(record(log, logging.WARNING, "Rate limited. Waiting 3s before retry"))
    assert [bool(one) for one in shown] == [False, True]
    assert capsys.readouterr().err.endswith(
        "fewer questions · trying again for half a minute; HF_TOKEN=… allows more\n"
    )
    assert not log.filters


def record(log, level, text):
    return log.makeRecord(log.name, level, __file__, 1, text, (), None)


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        (("-c", PLAN, "me/gated"), {}, "its owner wants the licence accepted first"),
        (("-c", PLAN, "me/nothing"), {}, "me/nothing could not be fetched"),
        (
            ("-m", "train", "prepare", "--dataset", "me/qa", "--model", "tiny"),
            {"HF_HUB_OFFLINE": "1"},
            "me/qa could not be fetched",
        ),
    ],
)
def test_what_the_hub_refuses_is_said_in_three_lines(hub, flags, env, said):
    code, _, err = python(hub | env, *flags)
    message = [line for line in err.splitlines() if not line.startswith(("data ", "model "))]
    assert code == 2
    assert said in err
    assert len(message) <= 3, err
