"""A reward model (recipe=preference, loss=reward) as its owner meets it: others load it and get the scores that were
trained, and what cannot be done with it is refused with its reason. Its numbers while it trains are compared in
test_preference.py."""

import json
import shutil
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from tests.train import families, preferred
from train import recipes
from train.__main__ import main
from train.data.to_tokens import load_chat
from train.engine.run import train_run
from train.errors import BadInput
from train.models.backends import to_tensors
from train.models.model_files import model_folder
from train.models.weights import trained_weights, write_weights
from train.plan.model import adapters
from train.plan.model.catalogue import resolve_model
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import load_config
from train.proof import miniature
from train.recipes.answers_as_rows import Compared
from train.recipes.preference import reward_head

OPTIONS = {
    "recipe": "preference", "loss": "reward", "model": "tiny", "max_steps": 3, "rows_per_step": 8, "lora_r": 4,
    "max_seq_length": 96, "learning_rate": 5e-3, "warmup_steps": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a finished run, as a launch leaves it."""
    home = tmp_path_factory.mktemp("home")
    data = preferred.make_data(home / "data", paired=True)
    run, _ = train_run(configured(dataset=data, home=home), None)
    asked = {**OPTIONS, "dataset": str(data)}
    launched = {"all": asked, "model": {"name": "tiny", "hub": None, "folder_name": "tiny"}, "rows": None}
    (run.config.log_folder / "launch.json").write_text(json.dumps(launched))
    return home


@pytest.fixture(scope="module")
def adapter(home) -> Path:
    return home / "results/run/adapter"


@pytest.fixture
def questions():
    """Each with two answers, as a person has them."""

    def told(i, said):
        return [{"role": "user", "content": f"What is {i} plus {i}?"}, {"role": "assistant", "content": said}]

    return [[told(i, f"It is {2 * i}, gladly."), told(i, f"{2 * i}!")] for i in range(30, 34)]


def configured(**more):
    return load_config({name: str(value) for name, value in {**OPTIONS, **more}.items()})


def built(**more):
    """The model as a run builds it."""
    config = configured(dataset="x", **more)
    decisions = Decisions(backend="hf", precision="fp32", load_in="16bit", gradient_checkpointing="false", whys={})
    recipe = recipes.of(config)
    return recipe, recipe.build(config, decisions, model_folder(config.model), "cpu", config.max_seq_length)


def loaded(adapter, base=""):
    """As its card says."""
    load = AutoModelForSequenceClassification.from_pretrained
    found = load(base or model_folder("tiny"), num_labels=1, dtype="float32")
    return peft.PeftModel.from_pretrained(found, str(adapter)).eval()


def scores(model, conversations, tokenizer=None):
    tokenizer = tokenizer or load_chat(resolve_model("tiny")).tokenizer
    given = [tokenizer.apply_chat_template(one, return_tensors="pt", return_dict=True) for one in conversations]
    with torch.no_grad():
        return [model(**tokens).logits.item() for tokens in given]


def as_trained(adapter, home, base="tiny"):
    """Of the held-out rows the score of both answers, as the product computes it."""
    recipe, module = built(model=base)
    weights, named = load_file(adapter / adapters.WEIGHTS), trained_weights(module.model)
    assert weights.keys() == named.keys()
    with torch.no_grad():
        for name, weight in named.items():
            weight.copy_(weights[name])
        rows = recipe.rows(configured(dataset=home / "data/rows"), print)[1]
        of = list(range(len(rows)))
        compared = Compared(config=recipe.config, rows=rows, of=of, base_log_p=torch.zeros(len(of), 2).numpy())
        found = reward_head.rewards(module.model.eval(), to_tensors(compared.batch(of), "cpu"))
    return rows, found.chunk(2)


def test_others_load_it_and_get_the_scores_that_were_trained(adapter, home):
    told = json.loads((adapter / "adapter_config.json").read_text())
    assert (told["task_type"], told["modules_to_save"]) == ("SEQ_CLS", ["score"])
    rows, ours = as_trained(adapter, home)
    model = loaded(adapter)
    for which in (0, 1):
        given = [torch.tensor(tokens.astype(int))[None] for tokens, _ in rows.sequences(list(range(len(rows))), which)]
        with torch.no_grad():
            theirs = torch.cat([model(input_ids=tokens).logits[0] for tokens in given])
        assert torch.allclose(theirs, ours[which], atol=1e-5)
    assert float((ours[0] - ours[1]).min()) > 0.1, "it has learned nothing that could be lost"


def test_kind_answers_score_higher(adapter, questions):
    kind, curt = (scores(loaded(adapter), [both[which] for both in questions]) for which in (0, 1))
    assert all(one > other for one, other in zip(kind, curt, strict=True))


def test_a_pad_token_that_ends_an_answer_is_passed_over_as_transformers_does(adapter, home, tmp_path):
    base = shutil.copytree(model_folder("tiny"), tmp_path / "tiny")
    end = load_chat(resolve_model("tiny")).tokenizer.convert_tokens_to_ids("</s>")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"pad_token_id": end}))
    rows, ours = as_trained(adapter, home, base)
    tokens = torch.tensor(rows.sequences([0], 0)[0][0].astype(int))[None]
    assert tokens[0, -1] == end
    with torch.no_grad():
        theirs = loaded(adapter, base)(input_ids=tokens).logits[0, 0]
    assert torch.isclose(theirs, ours[0][0], atol=1e-5)
    assert abs(ours[0][0] - as_trained(adapter, home)[1][0][0]) > 1e-3, "it makes no difference here"


def test_the_heads_first_values_follow_from_the_seed_alone():
    def head(**more):
        torch.manual_seed(torch.initial_seed() + 1)
        [found] = [w for name, w in trained_weights(built(**more)[1].model).items() if name.endswith("score.weight")]
        return found.detach()

    first = head()
    assert torch.equal(first, head(weights="stream")) and torch.equal(first, head(lora_r=2, lora_targets="q_proj"))
    assert not torch.equal(first, head(seed=5)) and float(first.std()) == pytest.approx(0.02, rel=0.3)
    assert torch.equal(first, preferred.first_head(3407, first.shape[1]).weight)


def test_with_lora_plus_the_head_learns_at_the_runs_rate():
    recipe, module = built(loraplus_lr_ratio=16)
    named = trained_weights(module.model)
    slow, fast = recipe.optimized(recipe.config, named)
    head = named["base_model.model.score.weight"]
    assert any(weight is head for weight in slow["params"]) and fast["faster"] == 16
    assert len(slow["params"]) == len(fast["params"]) + 1


def test_it_begins_with_an_adapter_of_a_language_model_but_none_goes_on_with_it(adapter, home, tmp_path):
    data = home / "data/rows"
    first, _ = train_run(configured(dataset=data, home=tmp_path, loss="dpo", run="first"), None)
    wanted = {name: weight.detach() for name, weight in first.trained.named.items()}
    found = trained_weights(built(adapter=tmp_path / "results/first/adapter")[1].model)
    assert found.keys() - wanted.keys() == {"base_model.model.score.weight"}
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())
    with pytest.raises(BadInput, match="adapter: it gives answers a score"):
        adapters.asked({"adapter": str(adapter)}, home)


def test_one_that_begins_as_parts_of_its_base_loads_as_well(questions, tmp_path):
    """Before its first step its scores are those of its base, as with any other adapter."""

    def first(**more):
        _, module = built(**more)
        write_weights(tmp_path, module.model, trained_weights(module.model))
        return scores(loaded(tmp_path), [one for both in questions for one in both])

    plain = first()
    assert first(lora_init="pissa") == pytest.approx(plain, abs=1e-4)


def test_a_merged_one_is_a_model_that_scores(adapter, home, questions, tmp_path, capsys):
    assert main(["export", "merged", "--run", "run", "--home", str(home), "--out", str(tmp_path / "m")]) == 0
    capsys.readouterr()
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    assert (model.config.num_labels, type(model).__name__) == (1, "LlamaForSequenceClassification")
    every = [one for both in questions for one in both]
    found = scores(model, every, AutoTokenizer.from_pretrained(tmp_path / "m"))
    assert found == pytest.approx(scores(loaded(adapter), every), abs=1e-4)


def test_its_card_says_how_to_get_a_score(adapter):
    card = (adapter / "README.md").read_text()
    assert "A reward model, which gives an answer a score: a LoRA adapter with a head for `tiny`" in card
    assert "held-out loss (reward)" in card and "pairs the right way round" in card
    assert "AutoModelForSequenceClassification" in card and "pipeline_tag: text-classification" in card
    assert "ollama" not in card and "./motley ask" not in card


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ask", "--run", "run", "--question", "a"], "it gives an answer a score and writes none"),
        (["eval", "--run", "run"], "its held-out pairs are compared while it trains"),
        (["export", "gguf", "--run", "run"], "a reward model cannot be written as gguf"),
    ],
)
def test_what_it_cannot_do_is_said(words, said, home, capsys):
    assert main([*words, "--home", str(home)]) == 2
    error = capsys.readouterr().err
    assert said in error and "motley ask" not in error


@pytest.mark.parametrize("family", ["gemma3", "gpt2", "qwen3_moe", "qwen3_5"])
def test_other_families_give_the_same_score_there(family, tmp_path):
    """A wrapper, a class that names its parts otherwise, experts that are one weight, and states beside attention."""
    miniature.write(AutoConfig.for_model(family), tmp_path)
    _, module = built(model=tmp_path, max_seq_length=64)
    named, noise = trained_weights(module.model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in named.values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=noise))
    (tmp_path / "adapter").mkdir()
    write_weights(tmp_path / "adapter", module.model, named)
    tokens = torch.randint(1, 200, (2, 9), generator=noise)
    given = {"input_ids": tokens, "position_ids": torch.arange(9).expand(2, 9), "length": torch.tensor([9, 9])}
    model = loaded(tmp_path / "adapter", tmp_path)
    with torch.no_grad():
        ours = reward_head.rewards(module.model.eval(), given)
        theirs = torch.cat([model(input_ids=line[None]).logits[0] for line in tokens])
    assert torch.allclose(theirs, ours, atol=1e-5) and float(ours.diff().abs()) > 0.01


def test_a_family_that_nobody_could_load_as_one_is_refused(tmp_path):
    base = families.make("granite", tmp_path)
    with pytest.raises(BadInput, match="for granite transformers has no class that gives a text a score"):
        built(model=base)
