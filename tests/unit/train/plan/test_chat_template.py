"""`chat_template=FILE`, as a launch sees it: looked at, and brought to the head."""

from pathlib import Path

import pytest
import yaml

from console.infra.kubernetes.objects import CONFIG, steps
from tests.support.plans import decided, files_of, handed_on, look, ran
from tests.unit.train.plan.test_adapters import make
from train.errors import BadInput
from train.files import file_hash
from train.plan.settings.read_settings import load_config

MINE = "{% for m in messages %}{{ m['content'] }}{% generation %}{% endgeneration %}{% break %}{% endfor %}"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.jinja").write_text(MINE)
    return tmp_path / "mine.jinja"


def test_it_goes_to_the_head_and_no_node_asks_for_it_later(mine):
    data = handed_on(decided({"model": "tiny", "chat_template": str(mine), "max_steps": 9}, look(), look()))
    place = f"/home/user/ai-cluster/data/raw/template-{file_hash(mine)[:12]}"
    assert data.template and data.template.place == place and set(data.template.files) == {"mine.jinja"}
    assert f"--chat-template={place}/mine.jinja" in data.prepare
    assert "chat_template" not in yaml.safe_load(files_of(data, "b")["config/training_config.yaml"])
    assert f"--chat-template={CONFIG}/mine.jinja" in steps(data)[-1]
    assert handed_on(decided({"model": "tiny", "max_steps": 9}, look())).template is None


def test_a_node_does_not_choose_a_file_of_this_computer(mine):
    there = ran(decided({"model": "tiny", "chat_template": str(mine), "max_steps": 9, "run": "x"}, look()))
    with pytest.raises(BadInput, match="chat_template: the nodes say that x was launched with"):
        decided({"resume": "x"}, there)


def test_a_message_goes_to_the_head_as_it_is():
    for recipe in ("sft", "grpo", "preference"):
        more = {"recipe": "grpo", "rewards": "length:9"} if recipe == "grpo" else {"recipe": recipe}
        asked = {"model": "tiny", "system": 'Be "kind".\nAlways.', "max_steps": 9, **more}
        found = handed_on(decided(asked, look()))
        assert '--system=Be "kind".\nAlways.' in found.prepare and '--system=Be "kind".\nAlways.' in steps(found)[-1]
        assert yaml.safe_load(files_of(found, "a")["config/training_config.yaml"])["system"] == asked["system"]
    assert "--train-on=last" in handed_on(decided({"model": "tiny", "train_on": "last"}, look())).prepare


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"system": " \n"}, "system: it is empty\nwrite it out: system="),
        ({"system": "x" * 10_001}, "system: it has more than 10000 characters"),
        ({"system": __file__}, "system: it is a file, and the message itself is wanted"),
        ({"system": "Hi", "format": "text"}, "system: format=text has no conversations\nleave one of the two out"),
        ({"train_on": "last", "recipe": "grpo", "rewards": "exact"}, "train_on: last does not go with recipe=grpo"),
    ],
)
def test_what_is_no_message_and_no_answer_is_one_sentence(values, said):
    with pytest.raises(BadInput, match=said) as refused:
        load_config({"model": "tiny", **values})
    assert len(str(refused.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"Hello", "it says nothing of `messages`, so it is no chat template"),
        (b"", "it is empty, or too large for a template"),
        (b"{{ messages }}" + b"x" * 200_000, "it is empty, or too large for a template"),
        (b"{% for m in messages %}", "chat_template: Unexpected end of template"),
        (b"messages \xff", "it is not UTF-8 text"),
    ],
)
def test_what_is_no_template_is_said_before_anything_is_sent(mine, text, said):
    mine.write_bytes(text)
    with pytest.raises(BadInput, match=said) as refused:
        load_config({"model": "tiny", "chat_template": str(mine)})
    assert len(str(refused.value).splitlines()) == 3


def test_a_run_that_begins_with_an_adapter_takes_its_template(tmp_path, mine):
    adapter = make(tmp_path / "manners/adapter")
    (adapter / "chat_template.jinja").write_text(MINE)
    asked = {"adapter": str(adapter), "dataset": "stdlib-qa", "max_steps": 9}
    assert decided(asked, look()).settings["chat_template"] == str(adapter / "chat_template.jinja")
    other = decided(asked | {"chat_template": str(mine)}, look())
    assert other.settings["chat_template"] == str(mine)
