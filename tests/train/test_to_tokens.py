"""Templates: which tokens are the answer's, and that a model learns where to stop."""

import copy
import json
from dataclasses import replace

import pytest
from tokenizers.processors import TemplateProcessing

from train.data.convert_record import BadRecord, Example, convert
from train.data.to_tokens import PLAIN_TEMPLATE, Chat, answer_spans, asked_text, encode, load_chat, shown, with_system
from train.errors import BadInput
from train.plan.model.catalogue import resolve_model

TURNS = (
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": " Blue, perhaps. "},
    {"role": "user", "content": "Another?"},
    {"role": "assistant", "content": "Red."},
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# as some reasoning models do it: only the last answer keeps its (empty) thinking
THINKING = (
    "{% for m in messages %}[{{ m['role'] }}]{% if loop.last and m['role'] == 'assistant' %}<think></think>{% endif %}"
    "{{ m['content'] | trim }}[/]\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}<s>[INST] {{ m['content'] | trim }} [/INST]"
    "{% else %} {{ m['content'] | trim }} </s>{% endif %}{% endfor %}"
)


def test_a_models_own_code_is_neither_run_nor_asked_about(tiny, tmp_path, monkeypatch):
    """In a terminal the library would ask, and a y would run it."""
    tiny.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')\n")
    file = tmp_path / "tokenizer_config.json"
    map_to = {"auto_map": {"AutoTokenizer": [None, "mine.Tokens"]}, "tokenizer_class": "Tokens"}
    file.write_text(json.dumps(json.loads(file.read_text()) | map_to))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(BadInput, match="no tokenizer can be loaded"):
        load_chat(resolve_model(str(tmp_path)))


def with_template(chat, template):
    return Chat(chat.tokenizer, template, "", chat.specials, chat.date)


def trained_text(chat, example, answers_only=True):
    (sample,) = encode(chat, [example], answers_only)
    tokens, trained = sample
    return chat.tokenizer.decode([token for token, flag in zip(tokens, trained, strict=True) if flag])


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CHATML, " Blue, perhaps. <|im_end|>Red.<|im_end|>"),
        (THINKING, "Blue, perhaps.[/]<think></think>Red.[/]"),
        (LLAMA2, " Blue, perhaps. </s> Red. </s>"),
        (PLAIN_TEMPLATE, " Blue, perhaps. </s>Red.</s>"),
    ],
)
def test_answers_and_their_ends_are_found_in_any_template(tiny, template, text):
    chat = with_template(tiny, template)
    rendered = chat.render(TURNS)
    spans = answer_spans(chat, TURNS, rendered)
    assert "".join(rendered[start:end] for start, end in spans) == text


def test_a_template_that_refuses_without_a_word_is_named_by_its_error(tiny):
    with pytest.raises(BadRecord, match="the chat template refuses it: TemplateError"):
        with_template(tiny, "{{ raise_exception('') }}").render(TURNS)


def test_only_answers_are_targets(tiny):
    assert trained_text(tiny, Example(TURNS)) == " Blue, perhaps. </s>Red.</s>"
    assert "Name a colour" in trained_text(tiny, Example(TURNS), answers_only=False)


SAYS = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def test_an_answer_without_an_end_mark_gets_one(tiny):
    """Behind its own words, not where a question follows that nobody answers."""
    chat = with_template(tiny, SAYS)
    assert trained_text(chat, Example(TURNS[2:])) == "Red.</s>"
    assert rendered(chat, (*TURNS[2:], TURNS[0])) == "user: Another?\nassistant: Red.</s>"


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
@pytest.mark.parametrize("answer", ["Red", "red, or blue.", "12", "🙂", "é", "\n\nRed"])
def test_an_answer_is_learned_from_its_first_letter_on(name, answer):
    """Behind 'assistant: ' a tokenizer makes one token of the space and the first word: it would be nobody's."""
    chat = with_template(load_chat(resolve_model(name)), SAYS)
    turns = (TURNS[2], {"role": "assistant", "content": answer}, TURNS[0], {"role": "assistant", "content": "Blue"})
    ((tokens, trained),) = encode(chat, [Example(turns)], True)
    asked = chat.tokenizer(chat.render(turns[:1], answer_next=True), add_special_tokens=False)["input_ids"]
    assert tokens[: len(asked)] == asked and not any(trained[: len(asked)]), "as whoever asks it"
    learned = f"{answer.strip()}Blue{chat.tokenizer.eos_token}"
    assert trained_text(chat, Example(turns)).strip() == learned
    assert chat.tokenizer.decode(tokens[:-1]) == chat.render(turns).removesuffix("\n")


def test_of_several_templates_it_is_the_default_one(tiny, tmp_path):
    several = copy.deepcopy(tiny.tokenizer)
    several.chat_template = {"tool_use": KNOWS_CALLS, "default": CHATML}
    several.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert load_chat(resolve_model(str(tmp_path))).template == CHATML


LEAVES_OUT = (
    "{% for m in messages %}{% if m['role'] in ('user', 'assistant') %}[{{ m['role'] }}]{{ m['content'] }}</s>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


MISTRAL = (
    "{% if messages[0]['role'] == 'system' %}{% set said = messages[0]['content'] %}{% set messages = messages[1:] %}"
    "{% endif %}{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ said ~ '\n\n' if said and loop.last }}"
    "{{ m['content'] }}[/INST]{% else %}{{ m['content'] }}</s>{% endif %}{% endfor %}"
)


def test_a_system_message_that_a_template_writes_only_where_one_asks_is_trained_with(tiny):
    """Mistral 7B's stands before the last turn, if that is a question: no row would have it, and each request."""
    told = ({"role": "system", "content": "Be brief."}, *TURNS[2:])
    for chat, turns in (
        (with_template(tiny, MISTRAL), told),
        (with_system(with_template(tiny, MISTRAL), "Be brief."), told[1:]),
    ):
        assert asked_text(chat, turns[:-1]) == "[INST]Be brief.\n\nAnother?[/INST]"
        assert rendered(chat, turns) == "[INST]Be brief.\n\nAnother?[/INST]Red.</s>"


def test_what_a_template_leaves_out_without_a_word_is_arranged_for_it_or_refused(tiny):
    """TinyLlama's and Phi-4's write nothing of what a tool has answered."""
    chat = with_template(tiny, LEAVES_OUT)
    told = ({"role": "system", "content": "Be brief."}, *TURNS[2:])
    assert rendered(chat, told) == "[user]Be brief.\n\nAnother?</s>[assistant]Red.</s>"
    assert asked_text(chat, told[:2]) == "[user]Be brief.\n\nAnother?</s>[assistant]"
    (bad,) = encode(chat, [Example((TURNS[0], CALLING, RESULT, TURNS[3]))], True)
    assert str(bad) == "the chat template writes no turn of the role 'tool'"


@pytest.mark.parametrize("answers_only", [True, False])
def test_an_end_mark_with_a_line_break_behind_it_is_enough(tiny, answers_only):
    chat = with_template(tiny, "{% for m in messages %}{{ m['content'] }}</s>\n{% endfor %}")
    assert trained_text(chat, Example(TURNS[2:]), answers_only).endswith("Red.</s>")


def test_a_text_begins_as_the_tokenizer_itself_begins_one(tiny):
    """Not every tokenizer with a first mark puts it there: SmolLM2's is that of a turn in a conversation."""
    bos, eos = tiny.tokenizer.bos_token_id, tiny.tokenizer.eos_token_id
    own = tiny.tokenizer("once upon", add_special_tokens=False)["input_ids"]
    assert encode(tiny, [Example(text="once upon")], True) == [([*own, eos], b"\1" * (len(own) + 1))]
    llama = copy.deepcopy(tiny)
    llama.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[
        ("<s>", bos), ("</s>", eos)])  # fmt: skip
    assert encode(llama, [Example(text="once upon")], True) == [([bos, *own, eos], b"\0" + b"\1" * (len(own) + 1))]


def test_smollm2_is_taught_its_end_of_turn_and_a_text_is_no_turn_of_a_conversation():
    chat = load_chat(resolve_model("smollm2-135m"))
    assert trained_text(chat, Example(TURNS[2:])) == "Red.<|im_end|>"
    ((tokens, _),) = encode(chat, [Example(text="The lighthouse keeper counted the ships.")], True)
    assert chat.tokenizer.decode(tokens) == "The lighthouse keeper counted the ships.<|im_end|>"


def test_the_tokens_are_those_of_the_whole_text(tiny):
    """Marking the answer must not change how the text is cut into tokens."""
    ((tokens, _),) = encode(tiny, [Example(TURNS)], True)
    assert tokens == tiny.tokenizer(tiny.render(TURNS), add_special_tokens=False)["input_ids"]


def test_a_template_that_refuses_or_alters_makes_a_bad_record(tiny):
    refuses = with_template(tiny, "{{ raise_exception('roles must alternate') }}")
    (bad,) = encode(refuses, [Example(TURNS)], True)
    assert isinstance(bad, BadRecord)
    assert "roles must alternate" in str(bad)
    upper = with_template(tiny, "{% for m in messages %}{{ m['content'] | upper }}{% endfor %}")
    (bad,) = encode(upper, [Example(TURNS)], True)
    assert "changes the answer" in str(bad)


REFUSES_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}[{{ m['role'] }}]{{ m['content'] }}</s>"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
KNOWS_CALLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
GREETING = {"role": "assistant", "content": "Hello!"}
CALLS = ({"type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}},)
CALLING = {"role": "assistant", "content": "", "tool_calls": list(CALLS)}
RESULT = {"role": "tool", "content": "12"}


def rendered(chat, messages, tools=()):
    ((tokens, _),) = encode(chat, [Example(messages, tools=tools)], True)
    return chat.tokenizer.decode(tokens)


def test_what_a_strict_template_refuses_is_arranged_for_it(tiny):
    strict = with_template(tiny, REFUSES_SYSTEM)
    told = ({"role": "developer", "content": "Be brief."}, GREETING, *TURNS[:2])
    assert rendered(strict, told) == "[user]Be brief.\n\nName a colour.</s>[assistant] Blue, perhaps. </s>"
    assert trained_text(strict, Example(told)) == " Blue, perhaps. </s>"
    assert rendered(strict, TURNS) == "".join(f"[{turn['role']}]{turn['content']}</s>" for turn in TURNS)


def test_a_greeting_is_trained_where_the_template_takes_it(tiny):
    chat = with_template(tiny, CHATML)
    assert trained_text(chat, Example((GREETING, *TURNS[2:]))) == "Hello!<|im_end|>Red.<|im_end|></s>"
    told = ({"role": "developer", "content": "Be brief."}, *TURNS[2:])
    assert rendered(chat, told).startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_a_call_of_a_tool_is_trained_in_the_templates_words_or_in_the_usual_ones(tiny):
    messages = (TURNS[0], CALLING, RESULT, TURNS[3])
    knows = with_template(tiny, KNOWS_CALLS)
    text = rendered(knows, messages, CALLS)
    assert text.startswith('[{"type": "function"') and "[tool]12</s>" in text
    called = '<call>{"name": "weather", "arguments": {"town": "Ulm"}}</s>'
    assert trained_text(knows, Example(messages, tools=CALLS)) == f"{called}Red.</s>"
    plain = trained_text(with_template(tiny, CHATML), Example(messages))
    assert plain.startswith('<tool_call>\n{"name": "weather"')
    assert plain.endswith("</tool_call><|im_end|>Red.<|im_end|></s>")


def test_tools_stand_in_the_system_message_or_the_first_question_of_a_template_that_knows_none(tiny):
    told = '<tools>\n{"type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm"}}}\n</tools>\n\n'
    strict, system = with_template(tiny, REFUSES_SYSTEM), {"role": "system", "content": "Be brief."}
    asked = f"[user]{told}Name a colour.</s>"
    assert rendered(strict, TURNS[:2], CALLS).startswith(asked)
    assert rendered(strict, (system, *TURNS[:2]), CALLS).startswith(f"[user]{told}Be brief.\n\nName a colour.</s>")
    assert asked_text(strict, TURNS[:1], CALLS) == f"{asked}[assistant]", "who asks later asks so, too"
    greeted = rendered(with_template(tiny, CHATML), (GREETING,), CALLS)
    assert greeted.startswith(f"<|im_start|>system\n{told.strip()}<|im_end|>\n<|im_start|>assistant\nHello!")


def test_an_answer_without_weight_is_read_and_not_trained_on(tiny):
    turns = [TURNS[0], {"role": "assistant", "content": "Blue.", "weight": 0}, *TURNS[2:4]]
    assert trained_text(with_template(tiny, CHATML), convert("chat", {"messages": turns})) == "Red.<|im_end|></s>"
    turns[3] = turns[3] | {"weight": 0}
    turns[1] |= {"weight": 1}
    (bad,) = encode(tiny, [replace(convert("chat", {"messages": turns}), trained_turns=1)], True)
    assert str(bad) == "none of its answers is to be trained on (weight: 0)"
    assert trained_text(with_template(tiny, CHATML), convert("chat", {"messages": turns})).startswith("Blue.")


def test_what_was_thought_before_an_answer_is_trained_where_the_template_writes_it(tiny):
    writes = CHATML.replace("{{ m['content'] }}", "{{ '(%s)' % m.thinking if m.thinking else '' }}{{ m['content'] }}")
    turns = [TURNS[2], TURNS[3] | {"thinking": "Not blue."}]
    example = convert("chat", {"messages": turns})
    assert trained_text(with_template(tiny, writes), example) == "(Not blue.)Red.<|im_end|></s>"
    assert trained_text(with_template(tiny, CHATML), example) == "Red.<|im_end|></s>"


def test_the_words_of_an_answer_in_its_question_are_not_taken_for_it(tiny):
    """A template that puts something before the last question alone, as Mistral's its tools."""
    last = (
        "{% for m in messages %}{% if loop.index0 == (messages | selectattr('role', 'eq', 'user') | list | length - 1)"
        " * 2 %}[TOOLS]{% endif %}[{{ m['role'] }}]{{ m['content'] }}</s>{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    asked = {"role": "user", "content": "Red or blue?"}
    told = (asked, {"role": "assistant", "content": "Red"}, asked, {"role": "assistant", "content": "blue"})
    chat = with_template(tiny, last)
    ((tokens, trained),) = encode(chat, [Example(told)], True)
    assert shown(chat, tokens, trained).startswith(
        "[user]Red or blue?</s>[assistant]«Red</s>»[TOOLS][user]Red or blue?"
    )


def test_the_system_message_that_a_template_writes_by_itself_is_known(tiny):
    default = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are kind.<|im_end|>\n{% endif %}"
    assert with_template(tiny, default + CHATML).default_system() == "You are kind."
    for none in (CHATML, LLAMA2, REFUSES_SYSTEM, PLAIN_TEMPLATE):
        assert with_template(tiny, none).default_system() == ""
    smollm2 = load_chat(resolve_model("smollm2-135m"))
    assert smollm2.default_system() == "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
