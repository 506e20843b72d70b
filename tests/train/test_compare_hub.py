"""The comparison of the catalogue with the hub, against a small HTTP server that stands for the hub."""

import json
import threading
from http.server import ThreadingHTTPServer

import pytest

from tests.gpu.weights import config_of
from tests.train.test_hub import Hub, python
from train.plan.model.catalogue import catalogue, resolve_model

WHOLE, SPOILT = "qwen3-0.6b", "qwen3-1.7b"


class Compared(Hub):
    files = {}  # noqa: RUF012
    about = {}  # noqa: RUF012

    def tree(self, repo):
        return json.dumps({"id": repo, **self.about[repo]}) if repo in self.about else super().tree(repo)


def serve(name, *, hidden=None, **about):
    entry, facts = catalogue()["models"][name], resolve_model(name).facts
    config = config_of(facts).to_dict() | ({"hidden_size": hidden} if hidden else {})
    for repo in (entry["hub"], entry["hub_4bit"]):
        Compared.files[repo] = {"config.json": json.dumps(config)}
    Compared.about[entry["hub"]] = {"gated": False, "cardData": {"license": entry["licence"]}} | about


@pytest.fixture
def compared(tmp_path):
    Compared.files.clear()
    Compared.about.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Compared)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    yield lambda *names: python(where, "-m", "tests.support.compare_hub", *names)[:2]
    server.shutdown()


def test_what_differs_from_the_hub_is_named_and_what_does_not_is_as_it_has_it(compared):
    serve(WHOLE)
    serve(SPOILT, hidden=1536, gated="manual", cardData={"license": "other", "license_name": "its own"})
    code, out = compared(WHOLE, SPOILT, "tiny")
    whole, spoilt, made = out.splitlines()
    assert code == 1
    assert whole.split(maxsplit=1) == [WHOLE, "as the hub has it"]
    assert made.split(maxsplit=1) == ["tiny", "as the hub has it"]
    assert (
        "Qwen/Qwen3-1.7B: hidden 2048, there 1536; gated False, there True; licence apache-2.0, there its own" in spoilt
    )
    assert "unsloth/Qwen3-1.7B-bnb-4bit: hidden 2048, there 1536" in spoilt


def test_all_as_listed_is_success_and_a_name_that_the_hub_does_not_have_is_not(compared):
    serve(WHOLE)
    assert compared(WHOLE)[0] == 0
    code, out = compared("qwen3-4b")
    assert code == 1 and "Qwen/Qwen3-4B could not be fetched" in out
