"""What the hub holds, and what a machine without it answers."""

import json
import logging
import re
import shutil
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.local_hub import local_hub
from train.hub import calm
from train.models.model_files import model_folder

PREPARE = ("-m", "train", "prepare", "--dataset", "me/qa", "--model", "tiny")
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


@pytest.fixture
def hub(tmp_path):
    data, model = tmp_path / "hub/me/qa", tmp_path / "hub/me/small"
    for folder in (data, model):
        folder.mkdir(parents=True)
    records = [json.dumps({"prompt": f"q{n}", "completion": f"a{n}"}) + "\n" for n in range(50)]
    for name, text in {"train.jsonl": "".join(records), "test.jsonl": "not for training", "README.md": ""}.items():
        (data / name).write_text(text)
    shutil.copy(Path(model_folder("tiny")) / "config.json", model)
    with local_hub(tmp_path / "hub") as found:
        yield found


def test_a_data_set_of_the_hub_is_prepared(hub, tmp_path):
    done = hub.asked_by(*PREPARE, "--out", str(tmp_path / "rows"), "--json")
    assert done.returncode == 0 and "hub id" in done.stderr, done.stderr
    made = json.loads(done.stdout)
    assert made["files"] == ["train.jsonl"] and made["records"]["records"] == 50


def test_a_model_of_the_hub_is_planned_from_its_config_alone(hub):
    done = pace.went_well(hub.asked_by("-c", PLAN, "me/small"))
    assert json.loads(done.stdout)["parameters"] == 1_049_728
    assert done.stderr == ""


def test_a_hub_that_does_not_answer_at_once_is_asked_again_and_one_calm_line_says_so(hub):
    hub.behave(busy=2)
    done = pace.went_well(hub.asked_by("-c", PLAN, "me/small"))
    assert [entry["status"] for entry in hub.requests()].count(503) == 2
    calm_line = r"me/small: the hub does not answer \(.*\) · trying again for half a minute; check the .*\n"
    assert re.fullmatch(calm_line, done.stderr)


def test_what_else_the_library_warns_of_is_not_shown_but_its_errors_are(capsys):
    log = logging.getLogger("huggingface_hub.utils._http")
    with calm("me/small"):
        shown = [log.filter(record(log, level, "no token")) for level in (logging.WARNING, logging.ERROR)]
        for _ in range(2):
            log.filter(record(log, logging.WARNING, "Rate limited. Waiting 3s before retry"))
    assert [bool(one) for one in shown] == [False, True]
    told = "me/small: the hub wants fewer questions · trying again for half a minute; HF_TOKEN=… allows more\n"
    assert capsys.readouterr().err == told, "once"
    assert not log.filters


def record(log, level, text):
    return log.makeRecord(log.name, level, __file__, 1, text, (), None)


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (("-c", PLAN, "me/gated"), {}, "its owner wants the licence accepted first"),
        (("-c", PLAN, "me/nothing"), {}, "me/nothing could not be fetched"),
        (PREPARE, {"HF_HUB_OFFLINE": "1"}, "me/qa could not be fetched"),
    ],
)
def test_what_the_hub_refuses_is_said_in_three_lines(hub, words, env, said):
    (hub.folder / "me/gated").mkdir()
    hub.behave(gated=["me/gated"], token="of another")
    done = hub.asked_by(*words, **env)
    message = [line for line in done.stderr.splitlines() if not line.startswith(("data ", "model "))]
    assert done.returncode == 2 and said in done.stderr
    assert len(message) <= 3, done.stderr
