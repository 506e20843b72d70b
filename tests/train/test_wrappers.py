"""A wrapper with pictures around a text model: its text is trained, and the adapter is the wrapper's. Its curve over
machines, and how it is asked: test_launched_models.py."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, Gemma3Config, Mistral3Config

from tests.train import cluster
from tests.train.families import SIZES
from train.__main__ import main
from train.models import hf
from train.models.backends import ModelSpec
from train.models.model_files import model_folder, shape_of

TOKENS = torch.arange(3, 40)[None]
TOWER = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14},
}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return wrapper(tmp_path_factory.mktemp("base") / "gemma3")


def wrapper(folder: Path) -> Path:
    """gemma3, as the hub has it: of text and pictures, and with the names that its files had first."""
    torch.manual_seed(5)
    text = SIZES | {"sliding_window": 16, "query_pre_attn_scalar": 16, "pad_token_id": 0}
    model = AutoModelForImageTextToText.from_config(
        Gemma3Config(text_config=text, vision_config=TOWER, mm_tokens_per_image=4)
    )
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.1)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    first = {"model.language_model": "language_model.model", "model.vision_tower": "vision_tower"}
    held = {renamed(name, first): weight for name, weight in load_file(file).items()}
    assert any(name.startswith("language_model.model.") for name in held)
    save_file(held, file, metadata={"format": "pt"})
    return with_tokenizer(folder)


def with_tokenizer(folder: Path) -> Path:
    for name in TOKENIZER:
        if (Path(model_folder("tiny")) / name).is_file():
            shutil.copy(Path(model_folder("tiny")) / name, folder)
    return folder


def renamed(name: str, prefixes: dict[str, str]) -> str:
    return next((to + name.removeprefix(now) for now, to in prefixes.items() if name.startswith(now)), name)


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    options = {"model": base, "dataset": cluster.make_rows(folder / "data", 40, 4), "device": "cpu", "lora_r": 4}
    options |= {"max_steps": 4, "rows_per_step": 8, "learning_rate": 2e-3, "max_seq_length": cluster.ROW_LENGTH}
    return cluster.train(folder, options).result()


def whole(base: Path, adapter: Path | None = None) -> torch.Tensor:
    """The scores of the whole wrapper, as others load it."""
    model = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, str(adapter)) if adapter else model
    with torch.no_grad():
        return model.eval()(input_ids=TOKENS).logits


def test_its_adapter_is_the_whole_wrappers(adapter, base):
    """Plain PEFT on the class with pictures takes it, and the text's scores are those of what was trained."""
    model = hf.build(ModelSpec(folder=str(base), adapter=adapter)).eval()
    with torch.no_grad():
        own = model(input_ids=TOKENS).logits
    found = whole(base, adapter)
    assert (found - own).norm() <= 1e-5 * own.norm()
    assert (found - whole(base)).norm() > 1e-2 * own.norm()
    around = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base), str(adapter))
    adapted = {name for name, _ in around.named_parameters() if ".lora_" in name}
    assert {name.replace(".default", "") for name in adapted} == load_file(adapter / "adapter_model.safetensors").keys()
    told = json.loads((adapter / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(base)
    card = (adapter / "README.md").read_text()
    assert "AutoModelForImageTextToText" in card and "AutoPeftModelForCausalLM" not in card


def test_the_merged_wrapper_has_its_towers(adapter, base, tmp_path):
    (base / "preprocessor_config.json").write_text("{}")
    flags = ["--model", str(base), "--adapter", str(adapter), "--out", str(tmp_path / "m"), "--json"]
    assert main(["export", "merged", *flags]) == 0
    wanted, found = whole(base, adapter), whole(tmp_path / "m")
    assert (found - wanted).norm() <= 1e-4 * wanted.norm()
    towers = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "m"))
    kept, now = ({n: w for n, w in held.items() if "vision" in n} for held in towers)
    assert kept.keys() == now.keys() != set() and all(torch.equal(kept[name], now[name]) for name in kept)
    assert (tmp_path / "m/preprocessor_config.json").is_file()


def test_its_layers_are_streamed_from_files_with_the_names_that_they_had_first(tmp_path):
    sizes = SIZES | {"model_type": "mistral", "sliding_window": None}
    config = Mistral3Config(
        text_config=sizes, vision_config=TOWER | {"model_type": "pixtral"}, tie_word_embeddings=False
    )
    AutoModelForImageTextToText.from_config(config).save_pretrained(tmp_path)
    first = {"model.language_model": "language_model.model", "lm_head": "language_model.lm_head"}
    file = tmp_path / "model.safetensors"
    held = {renamed(name, first): weight for name, weight in load_file(file).items()}
    assert not any(name.startswith("model.language_model.layers") for name in held)
    save_file(held, file, metadata={"format": "pt"})
    batch = {"input_ids": TOKENS, "labels": TOKENS, "position_ids": torch.arange(TOKENS.shape[1])[None]}
    found = [
        float(hf.loss_sum(hf.build(ModelSpec(folder=str(tmp_path), weights=weights)), batch).detach())
        for weights in ("gpu", "stream")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_its_shape_is_that_of_its_text(base):
    """What a file leaves out (gemma-3-4b-it its heads) the proof tells the plan."""
    found = shape_of(base)
    assert found and (found.hidden, found.vocab, found.family, found.wrapper) == (64, 1024, "gemma3_text", True)
