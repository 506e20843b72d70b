"""How Ollama asks, by its Modelfile: the same text as the template that was trained with, for whole conversations. What
Ollama runs of the Modelfile's template is done here in ten lines: a turn after the other, by role."""

import re
from dataclasses import replace

import pytest

from train.data.to_tokens import CONTINUED, PLAIN_TEMPLATE, load_chat, with_system
from train.plan.model.catalogue import resolve_model
from train.results.modelfile import modelfile

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
THINKS = (  # writes the last answer otherwise than those before it, as Qwen3's does
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
    "{{ m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (  # the system message within the first question, as Mistral's
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + (system if loop.first else '') + m['content'] "
    "+ ' [/INST]' }}{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)
SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So."},
    {"role": "user", "content": "And 2 + 2?"},
]


def as_ollama(text, turns):
    """What it runs: SYSTEM stands before a conversation that brings no such message."""
    template = re.search(r'TEMPLATE """(.*?)"""', text, re.S)[1]
    system = re.search(r'SYSTEM """(.*?)"""', text, re.S)
    turns = [{"role": "system", "content": system[1]}, *turns] if system and turns[0]["role"] != "system" else turns
    begin, loop, answer = re.fullmatch(r"(.*?){{ range .Messages }}(.*){{ end }}{{ end }}(.*)", template, re.S).groups()
    pieces = re.findall(r'if eq .Role "(\w+)" }}(.*?){{ .Content }}(.*?)(?={{ else|\Z)', loop, re.S)
    around = {role: (before, behind) for role, before, behind in pieces}
    said = [around[turn["role"]][0] + turn["content"] + around[turn["role"]][1] for turn in turns]
    return begin + "".join(said) + answer


@pytest.mark.parametrize("turns", [TALK[:1], TALK, [SYSTEM, *TALK]], ids=["first", "later", "system"])
@pytest.mark.parametrize("template", ["its own", PLAIN_TEMPLATE, CONTINUED, CHATML, THINKS])
def test_ollama_asks_as_was_trained(tiny, template, turns):
    chat = tiny if template == "its own" else replace(tiny, template=template)
    assert as_ollama(modelfile("a.gguf", chat), turns) == chat.render(turns, answer_next=True)


def test_a_message_that_the_template_brings_is_said(tiny):
    smollm2 = load_chat(resolve_model("smollm2-135m"))
    for chat in (smollm2, with_system(tiny, "Be brief."), with_system(replace(tiny, template=THINKS), "Be brief.")):
        assert as_ollama(modelfile("a.gguf", chat), TALK) == chat.render(TALK, answer_next=True)
    assert 'SYSTEM """You are a helpful AI assistant named SmolLM' in modelfile("a.gguf", smollm2)


def test_one_that_cannot_be_written_out_is_left_to_ollama(tiny):
    text = modelfile("a.gguf", replace(tiny, template=INST))
    assert text == 'FROM ./a.gguf\nPARAMETER stop "</s>"\n'


def test_an_answer_ends_where_it_was_trained_to(tiny):
    ends = {
        "its own": ["</s>"],
        PLAIN_TEMPLATE: ["</s>", "### Instruction:"],  # a heading is text: the model might write the next question
        tiny.template.replace("</s>", "<pad>"): ["<pad>", "</s>"],
    }
    for template, stops in ends.items():
        chat = tiny if template == "its own" else replace(tiny, template=template)
        assert re.findall(r'PARAMETER stop "(.*)"', modelfile("a.gguf", chat)) == stops
