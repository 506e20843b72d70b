"""The comparison of the catalogue with the hub, which the lab's stands for."""

import json

from tests.gpu.weights import config_of
from tests.support.local_hub import local_hub
from train.plan.model.catalogue import catalogue, resolve_model

WHOLE, SPOILT, MISSING = "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"


def put(hub, name, **changed):
    """The two repositories of a model, as the catalogue has them but for what is changed."""
    entry = catalogue()["models"][name]
    config = config_of(resolve_model(name).facts).to_dict() | changed
    for repository in (entry["hub"], entry["hub_4bit"]):
        (hub.folder / repository).mkdir(parents=True)
        (hub.folder / repository / "config.json").write_text(json.dumps(config))


def about(name, **changed):
    entry = catalogue()["models"][name]
    return {entry["hub"]: {"gated": False, "cardData": {"license": entry["licence"]}} | changed}


def compared(hub, *names):
    done = hub.asked_by("-m", "tests.support.compare_hub", *names)
    return done.returncode, done.stdout.splitlines()


def test_what_differs_from_the_hub_is_named_and_what_does_not_is_as_it_has_it(tmp_path):
    with local_hub(tmp_path / "hub") as hub:
        put(hub, WHOLE)
        put(hub, SPOILT, hidden_size=1536)
        own = about(SPOILT, gated="manual", cardData={"license": "other", "license_name": "its own"})
        hub.behave(about=about(WHOLE) | own)
        code, (whole, spoilt, made, missing) = compared(hub, WHOLE, SPOILT, "tiny", MISSING)
        assert code == 1 and compared(hub, WHOLE)[0] == 0
    assert whole.split(maxsplit=1) == [WHOLE, "as the hub has it"]
    assert made.split(maxsplit=1) == ["tiny", "as the hub has it"]
    differs = "hidden 2048, there 1536; gated False, there True; licence apache-2.0, there its own"
    assert f"Qwen/Qwen3-1.7B: {differs}" in spoilt
    assert "unsloth/Qwen3-1.7B-bnb-4bit: hidden 2048, there 1536" in spoilt
    assert "Qwen/Qwen3-4B could not be fetched" in missing
