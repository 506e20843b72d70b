"""`system=` and `train_on=last`: a message before each conversation that has none, and one answer to learn from."""

import json
from dataclasses import replace

import pytest

from tests.train import cluster
from train.data.convert_record import BadRecord
from train.data.prepare import prepare
from train.data.rows import open_rows
from train.data.to_tokens import PLAIN_TEMPLATE, load_chat, with_system, without_system
from train.plan.model import adapters
from train.plan.model.catalogue import resolve_model
from train.plan.settings.read_settings import GrpoConfig, PreferenceConfig, SftConfig
from train.recipes.grpo.rows import open_prompts
from train.recipes.grpo.rows import prepare as prepare_prompts
from train.recipes.preference.rows import open_pairs
from train.recipes.preference.rows import prepare as prepare_pairs
from train.results.export import chat_with
from train.results.gguf import with_known_template
from train.results.modelfile import modelfile

TEXT = 'Say "hé" 😀 %} {{ x }}\nin one line.'
USER, SAID = {"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": "Blue."}
MORE, LAST = {"role": "user", "content": "Another?"}, {"role": "assistant", "content": "Red."}
OWN = {"role": "system", "content": "Be blunt."}
STRICT = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
)
SILENT = (
    "{% for m in messages %}{% if m['role'] != 'system' %}[{{ m['role'] }}]{{ m['content'] }}{% endif %}{% endfor %}"
)


def test_it_stands_before_a_conversation_that_has_none(tiny):
    chat = load_chat(resolve_model("tiny"), system=TEXT)
    assert chat.render([USER, SAID]) == tiny.render([{"role": "system", "content": TEXT}, USER, SAID])
    assert chat.render([OWN, USER]) == tiny.render([OWN, USER])
    assert without_system(chat)[1] == TEXT and without_system(chat)[0].template == tiny.template
    assert "your system message" in chat.reason and chat.hash() != tiny.hash()
    again = with_system(chat, "Another.")
    assert "in one line" not in again.template
    assert again.render([USER]) == tiny.render([{"role": "system", "content": "Another."}, USER])


@pytest.mark.parametrize("template", [STRICT, SILENT])
def test_where_the_template_writes_none_it_is_before_the_first_question(template, tiny):
    chat = with_system(replace(tiny, template=template), "Be brief.")
    assert chat.render([USER, SAID, MORE]) == ("[user]Be brief.\n\nName a colour.[assistant]Blue.[user]Another?")
    assert without_system(chat)[0].template == template and without_system(tiny) == (tiny, "")
    if template == STRICT:
        with pytest.raises(BadRecord, match="no system"):
            chat.render([OWN, USER])


def test_a_developer_is_one_as_well_and_becomes_what_the_template_knows(tiny):
    developer = {"role": "developer", "content": "Be blunt."}
    chat = with_system(tiny, "Be brief.")
    assert "Be brief." not in chat.render([developer, USER])
    assert "developer" not in chat.template, "or a template that knows none would be given some"


def test_a_template_that_ollama_must_know_by_its_text_stays_as_it_is_published(tiny):
    """The message is in the Modelfile. One that can be written out for Ollama opens with it, for llama.cpp."""
    unreadable = replace(tiny, template="{{ messages | length }}" + tiny.template)
    assert with_known_template(with_system(unreadable, "Be brief.")).template == unreadable.template
    opened = with_known_template(with_system(tiny, "Be brief."))
    assert opened.render([USER]) == with_system(tiny, "Be brief.").render([USER])
    assert opened.render([OWN, USER]) == tiny.render([OWN, USER])


def test_ollama_asks_with_it(tiny):
    for template in (tiny.template, PLAIN_TEMPLATE):
        chat = replace(tiny, template=template)
        said = modelfile("x.gguf", chat)
        assert modelfile("x.gguf", with_system(chat, "Be brief.")) == said.replace(
            'PARAMETER stop "</s>"', 'SYSTEM """Be brief."""\nPARAMETER stop "</s>"'
        )


RECORDS = [{"messages": [USER | {"content": f"{n}: name a colour."}, SAID, MORE, LAST]} for n in range(30)]
RECORDS += [{"messages": [OWN, USER, SAID]}]


def made(folder, config=SftConfig, make=prepare, records=RECORDS, **settings):
    folder.mkdir(exist_ok=True)
    data = cluster.write_records(folder / "data.jsonl", records)
    settings = {"dataset": str(data), "max_seq_length": 96, **settings}
    return make(config(**settings), lambda _: None, out=str(folder / "rows"))


def texts(tiny, folder, split="train"):
    """Of each sample all of it, and what is trained on."""
    rows = open_rows(folder, split)
    bounds = [slice(a, b) for a, b in zip(rows.samples, rows.samples[1:], strict=False)]
    decode = tiny.tokenizer.decode
    samples = [(rows.tokens[at], rows.trained[at] == 1) for at in bounds]
    return [(decode(tokens.tolist()), decode(tokens[trained].tolist())) for tokens, trained in samples]


def test_the_last_answer_alone_is_learned_from(tiny, tmp_path):
    found = texts(tiny, made(tmp_path / "last", train_on="last", eval_fraction=0))
    usual = texts(tiny, made(tmp_path / "usual", eval_fraction=0))
    assert [whole for whole, _ in found] == [whole for whole, _ in usual]
    assert sorted({trained for _, trained in found}) == ["Blue.</s>", "Red.</s>"]
    assert sorted({trained for _, trained in usual}) == ["Blue.</s>", "Blue.</s>Red.</s>"]


def test_the_first_sample_is_shown_with_what_is_learned_from(tmp_path):
    said = []
    (tmp_path / "data.jsonl").write_text(json.dumps(RECORDS[0]) + "\n")
    config = SftConfig(dataset=str(tmp_path / "data.jsonl"), system="Be brief.", train_on="last", eval_fraction=0)
    prepare(config, said.append, out=str(tmp_path / "rows"))
    wanted = (
        r"example   <s>system\nBe brief.</s><s>user\n0: name a colour.</s><s>assistant\nBlue.</s>"
        r"<s>user\nAnother?</s><s>assistant\n«Red.</s>»  (trained on: what stands in « »)"
    )
    assert wanted in said


def test_a_text_is_learned_from_as_a_whole_still(tiny, tmp_path):
    records = [{"text": f"Once upon a time there were {n}."} for n in range(20)]
    made_of = {how: made(tmp_path / how, records=records, train_on=how, eval_fraction=0) for how in ("last", "answers")}
    assert texts(tiny, made_of["last"]) == texts(tiny, made_of["answers"])


def test_the_rows_have_the_message_and_the_same_ones_are_held_out(tiny, tmp_path):
    with_it = made(tmp_path / "with", system="Be brief.", eval_fraction=0.3)
    without = made(tmp_path / "without", eval_fraction=0.3)
    opening = "<s>system\nBe brief.</s>"
    for split in ("train", "eval"):
        found, usual = texts(tiny, with_it, split), texts(tiny, without, split)
        assert len(found) > 5
        assert sorted(whole.removeprefix(opening) for whole, _ in found) == sorted(whole for whole, _ in usual)
        assert all(whole.startswith(opening) or "Be blunt." in whole for whole, _ in found)
        assert not any("brief" in trained for _, trained in found)


def test_rewards_and_preferences_ask_with_it(tiny, tmp_path):
    prompts = made(tmp_path / "grpo", GrpoConfig, prepare_prompts, system="Be brief.", rewards="length:9",
                   max_seq_length=256, eval_fraction=0)  # fmt: skip
    rows = open_prompts(prompts, "train", 8)
    decode = tiny.tokenizer.decode
    assert decode(rows.prompt(0)).startswith("<s>system\nBe brief.</s><s>user\n0: name")
    assert rows.record(0)["prompt"][0]["content"] == "0: name a colour.", "a reward sees what the data asks"
    pairs = [{"prompt": f"{n}?", "chosen": "It is so.", "rejected": "So."} for n in range(6)]
    folder = made(tmp_path / "pairs", PreferenceConfig, prepare_pairs, pairs, system="Be brief.", eval_fraction=0)
    for which in (0, 1):
        [(tokens, own)] = open_pairs(folder, "train", paired=True).sequences([0], which)
        assert decode(tokens.tolist()).startswith("<s>system\nBe brief.</s><s>user\n0?")
        assert "brief" not in decode(tokens[own == 1].tolist())


def test_the_message_stays_with_the_adapter(tiny, tmp_path):
    rows = made(tmp_path / "data", system="Be brief.", train_on="last", eval_fraction=0.3)
    run = cluster.train(tmp_path, {"model": "tiny", "dataset": rows, "max_steps": 1, "rows_per_step": 6, "lora_r": 2})
    asked = chat_with(resolve_model("tiny"), run.result()).render([USER])
    assert asked == tiny.render([{"role": "system", "content": "Be brief."}, USER])
    goes_on = SftConfig(**adapters.asked({"adapter": str(run.result())}, tmp_path))
    found = made(tmp_path / "next", records=RECORDS[:1], eval_fraction=0, chat_template=goes_on.chat_template)
    assert texts(tiny, found)[0][0].startswith("<s>system\nBe brief.</s>"), "a run that begins with it asks so as well"
