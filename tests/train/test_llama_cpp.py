"""What `export gguf` writes is loaded and asked by llama.cpp itself: it answers as transformers does."""

import os
import sys

import gguf
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support import llama_cpp
from tests.support.stand_ins import program
from train.__main__ import main
from train.data.to_tokens import load_chat
from train.models.model_files import model_folder
from train.plan.model import adapters
from train.plan.model.catalogue import resolve_model
from train.plan.settings.gguf_quants import QUANTS
from train.results.gguf import QUANTISER

QUESTION, MOST = "Name 3 colours of 2024, please.", 12
FORMS = [
    *(("tiny", form) for form in ("q4_0", "q4_k_m")),
    *(pytest.param("smollm2-135m", form, marks=pytest.mark.long) for form in ("f16", "q8_0", "q4_0", "q4_k_m")),
]

pytestmark = pytest.mark.skipif(not llama_cpp.IS_HERE, reason=llama_cpp.NOT_HERE)


@pytest.fixture(scope="module")
def adapter_of(tmp_path_factory):
    """Another answer than the base's: an adapter that was not trained, but drawn."""

    def made(name):
        torch.manual_seed(1)
        base = AutoModelForCausalLM.from_pretrained(model_folder(name))
        drawn = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
        folder = tmp_path_factory.mktemp(name)
        get_peft_model(base, drawn).save_pretrained(folder)
        return folder

    return made


@pytest.fixture(scope="module", params=["tiny", pytest.param("smollm2-135m", marks=pytest.mark.long)])
def exported(request, adapter_of, tmp_path_factory):
    """The folder of a form of it; merged: as transformers loads it."""
    name, adapter, folders = request.param, adapter_of(request.param), tmp_path_factory.mktemp("exports")

    def made(form):
        words = ["gguf", "--quant", form] if form in QUANTS else [form]
        flags = ["--model", name, "--adapter", str(adapter), "--out", str(folders / form)]
        if not (folders / form).exists():
            assert main(["export", *words, *flags]) == 0
        return folders / form

    made.model = name
    return made


@pytest.fixture
def quantiser(tmp_path, monkeypatch):
    """A machine with the program of llama.cpp; it does its work with the same function."""
    program(tmp_path / QUANTISER, f'#!/bin/sh\nexec "{sys.executable}" -m tests.support.llama_cpp "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(llama_cpp.ROOT))


def answer_of_transformers(folder, prompt):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    asked = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(input_ids=asked, max_new_tokens=MOST, do_sample=False, pad_token_id=0)
    answer = out[0, asked.shape[1] :].tolist()
    return asked[0].tolist(), [token for token in answer if token != tokenizer.eos_token_id]


def test_it_answers_as_transformers_does(exported):
    """The question as well: the same text by the template, and the same tokens, digits among them."""
    found = llama_cpp.ask(next(exported("f16").glob("*.gguf")), QUESTION, MOST)
    chat = load_chat(resolve_model(exported.model))
    assert found["prompt"] == chat.render([{"role": "user", "content": QUESTION}], answer_next=True)
    asked, answer = answer_of_transformers(exported("merged"), found["prompt"])
    assert found["asked"] == asked
    assert found["answer"] == answer and len(answer) > 3


@pytest.mark.parametrize(("exported", "form"), FORMS, indirect=["exported"])
def test_each_form_is_loaded_and_is_as_small_as_it_says(exported, form, quantiser):
    file = next(exported(form).glob("*.gguf"))
    assert llama_cpp.ask(file, QUESTION, 2)["answer"]
    names = {"f16": 1, "q4_0": 2, "q8_0": 7, "q4_k_m": 15}
    shares = {"f16": 1.03, "q8_0": 0.6, "q4_0": 0.45, "q4_k_m": 0.52}
    whole = (exported("merged") / "model.safetensors").stat().st_size / (2 if exported.model == "tiny" else 1)
    assert file.stat().st_size < shares[form] * whole
    assert gguf_says(file, "general.file_type") == names[form]


def gguf_says(file, name):
    return int(gguf.GGUFReader(file).get_field(name).contents())


def test_a_template_of_ones_own_is_the_one_that_llama_cpp_gets(adapter_of, tmp_path):
    """A system message; and an end of a turn that is not the tokenizer's, as after training a base model."""
    adapter, own = adapter_of("tiny"), load_chat(resolve_model("tiny"), system='Be "brief".')
    (adapter / adapters.TEMPLATE).write_text(own.template.replace("</s>", "<pad>"))
    flags = ["--model", "tiny", "--adapter", str(adapter), "--out", str(tmp_path / "out")]
    assert main(["export", "gguf", "--quant", "f16", *flags]) == 0
    found = llama_cpp.ask(tmp_path / "out/tiny.gguf", QUESTION, 2)
    wanted = own.render([{"role": "user", "content": QUESTION}], answer_next=True)
    assert found["prompt"] == wanted.replace("</s>", "<pad>") and 'Be "brief".' in wanted
    assert (found["end"], found["end_of_turn"]) == (2, 0)
    assert 'PARAMETER stop "<pad>"' in (tmp_path / "out/Modelfile").read_text()


def test_without_the_program_q4_k_m_is_refused_before_any_work(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_config.json").write_text("{}")
    flags = ["--model", "tiny", "--adapter", str(tmp_path / "adapter"), "--out", str(tmp_path / "out")]
    assert main(["export", "gguf", "--quant", "q4_k_m", *flags]) == 2
    said = capsys.readouterr().err
    assert "only llama.cpp's llama-quantize makes it" in said and "--quant q4_0" in said
    assert not (tmp_path / "out").exists()
