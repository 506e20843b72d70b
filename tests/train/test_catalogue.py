"""Names: what they mean, and what a machine without the hub answers. A small HTTP server stands for the hub."""

import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support import pace
from tests.train.cluster import ROOT, environment
from train.cache import build_once
from train.errors import BadInput
from train.hub import training_files
from train.models.model_files import model_folder
from train.plan.catalogue import facts_of, model_facts, resolve_dataset, resolve_model

COMMIT = "c" * 40


def test_every_entry_is_complete_and_readable_for_ansible():
    entries = yaml.safe_load((ROOT / "train/plan/catalogue.yml").read_text())
    for name, entry in entries["models"].items():
        assert resolve_model(name).facts, name
        assert ("embedded" in entry) or ("/" in entry["hub"]), name
        assert isinstance(entry["gated"], bool), name
        assert entry["licence"], name
    names = [*entries["models"], *(alias for e in entries["models"].values() for alias in e.get("aliases", []))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_facts_of_an_embedded_model_are_those_of_its_config(name):
    config = json.loads((Path(model_folder(name)) / "config.json").read_text())
    assert facts_of(config, name) == resolve_model(name).facts


def test_a_name_says_what_it_was_taken_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    assert resolve_model("mistral").name == "mistral-7b"
    assert resolve_model("Qwen/Anything-7B").source == "hub"
    folder = tmp_path / "models" / "base" / "llama2-7b"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((Path(model_folder("tiny")) / "config.json").read_text())
    copied = resolve_model("llama2-7b")
    assert (copied.source, copied.folder) == ("catalogue", folder)
    mine = resolve_model(str(folder))
    assert (mine.source, model_facts(mine).hidden) == ("folder", 128)


@pytest.mark.parametrize(
    ("resolve", "name", "said"),
    [
        (resolve_model, "mistrall", "did you mean mistral-7b?"),
        (resolve_model, "/", "no config.json"),
        (resolve_model, "zzz", "the catalogue has: llama2-7b"),
        (resolve_dataset, "/", "a data set is one file"),
        (resolve_dataset, "/no/such.csv", "there is no file"),
        (resolve_dataset, "stdlibqa", "did you mean stdlib-qa?"),
    ],
)
def test_an_unknown_name_gets_the_nearest(resolve, name, said):
    with pytest.raises(BadInput) as error:
        resolve(name)
    assert said in str(error.value)


def test_an_unknown_architecture_is_not_guessed():
    with pytest.raises(BadInput, match="memory of a 'mamba' model is not known"):
        facts_of({"model_type": "mamba"}, "x/y")


def test_training_files_of_a_repository():
    assert training_files(["README.md", "data/train-0.parquet", "data/test-0.parquet"]) == ["data/train-0.parquet"]
    assert training_files(["b.jsonl", "a.jsonl", "a_test.jsonl", "dataset_infos.json"]) == ["a.jsonl", "b.jsonl"]
    assert training_files(["train.jsonl", "extra.jsonl"]) == ["train.jsonl"]
    assert training_files(["x.csv", "x.jsonl"]) == ["x.jsonl"]
    assert training_files(["model.bin", "LICENSE.txt"]) == []


def test_a_build_that_fails_leaves_nothing_and_the_next_succeeds(tmp_path):
    def half(folder):
        (folder / "part").touch()
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        build_once(tmp_path / "thing", half)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    calls = []
    for _ in range(2):
        build_once(tmp_path / "thing", calls.append)
    assert len(calls) == 1


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

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, with_body):
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
    command = [sys.executable, "-m", "train", *flags]
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


def test_a_model_of_the_hub_is_planned_from_its_config_alone(hub):
    code, out, err = train(hub, "plan", "--model", "me/small", "--nodes", "a=8", "--json")
    assert code == 0, err
    assert json.loads(out)["parameters"] == 1_049_728


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        (("plan", "--model", "me/gated"), {}, "its owner wants the licence accepted first"),
        (("plan", "--model", "me/nothing"), {}, "me/nothing could not be fetched"),
        (("prepare", "--dataset", "me/qa", "--model", "tiny"), {"HF_HUB_OFFLINE": "1"}, "me/qa could not be fetched"),
    ],
)
def test_what_the_hub_refuses_is_said_in_three_lines(hub, flags, env, said):
    code, _, err = train(hub | env, *flags)
    message = [line for line in err.splitlines() if not line.startswith(("Warning", "data ", "model "))]
    assert code == 2
    assert said in err
    assert len(message) <= 3, err
