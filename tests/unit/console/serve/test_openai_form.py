"""Requests as programs for OpenAI send them: what is understood, what is passed over, what is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from console.serve.machine import Answer
from console.serve.openai_form import Form, Refused, wanted

HI = [{"role": "user", "content": "Hi"}]


def asked(*, chat: bool = True, **body: Any) -> dict[str, Any]:
    usual = {"messages": HI} if chat else {"prompt": "Once"}
    return wanted(usual | body, "notes", chat=chat).request.what


def test_what_is_left_out_is_as_with_openai() -> None:
    found = asked()
    seed = found.pop("seed")
    assert found == {"messages": HI, "most": None, "temperature": 1.0, "top_p": 1.0, "stop": []}
    assert seed != asked()["seed"], "by lot, but known: who takes an answer over draws the same"
    assert asked(chat=False)["most"] == 16


def test_what_it_says_is_asked() -> None:
    found = asked(max_completion_tokens=5, max_tokens=9, temperature=0, top_p=0.5, seed=-3, stop="\n", model="notes")
    assert found == {"messages": HI, "most": 5, "temperature": 0.0, "top_p": 0.5, "seed": -3, "stop": ["\n"]}
    assert asked(max_tokens=9, stop=["a", ""])["most"] == 9
    assert asked(temperature=5e-324)["temperature"] == 0, "a score divided by it would be infinite"
    parts = [{"type": "text", "text": "How "}, {"type": "text", "text": "so?"}]
    assert asked(messages=[{"role": "user", "content": parts}])["messages"][0]["content"] == "How so?"
    assert asked(chat=False, prompt=["One"])["prompt"] == "One"


def test_what_asks_for_nothing_is_passed_over() -> None:
    asked(n=1, tools=[], presence_penalty=0.0, logprobs=False, response_format={"type": "text"}, suffix=None, user="me")
    asked(top_k=-1, min_p=0, repetition_penalty=1.0, reasoning_effort="none", tool_choice="auto")


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"messages": []}, "messages", "a list of at least one message"),
        ({"messages": "Hi"}, "messages", "a list"),
        ({"messages": [{"role": "boss", "content": "Hi"}]}, "messages[0]", "one of system, developer, user"),
        ({"messages": [*HI, {"role": "user", "content": [{"type": "image_url"}]}]}, "messages[1]", "must be text"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0]", "must be text"),
        ({"messages": [{"role": "user", "content": "Hi \ud83d"}]}, "messages[0]", "half a character"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "\ude00"}]}]}, "messages[0]", "half a"),
        ({"model": "gpt-4o"}, "model", "there is no model 'gpt-4o' here; there is 'notes'"),
        ({"n": 2}, "n", "n: is not done here"),
        ({"tools": [{}]}, "tools", "not done here"),
        ({"top_k": 5}, "top_k", "not done here"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs", "not done here"),
        ({"stop_token_ids": [2]}, "stop_token_ids", "not done here"),
        ({"tool_choice": "required"}, "tool_choice", "not done here"),
        ({"messages": [{"role": "assistant", "content": "", "function_call": {}}]}, "messages[0]", "calls of tools"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not done here"),
        ({"temperature": 2.5}, "temperature", "a number from 0 to 2"),
        ({"temperature": True}, "temperature", "a number"),
        ({"top_p": "high"}, "top_p", "a number from 0 to 1"),
        ({"max_tokens": 0}, "max_tokens", "a whole number of at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "a whole number"),
        ({"seed": 1 << 63}, "seed", "seed: must be a whole number of 64 bits"),
        ({"seed": "x"}, "seed", "seed: must be a whole number"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "at most 4"),
        ({"stop": 3}, "stop", "a text"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": 1}, "stream_options", "an object"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(body: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        asked(**body)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    error = refused.value.body["error"]
    assert error["param"] == param and error["type"] == "invalid_request_error"
    assert refused.value.status == (404 if param == "model" else 400)


def test_a_prompt_has_whole_characters() -> None:
    with pytest.raises(Refused, match="prompt: has half a character"):
        asked(chat=False, prompt="\ud83d")
    assert asked(chat=False, prompt="\U0001f600")["prompt"] == "\U0001f600"


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(Refused, match="no JSON object"):
        wanted([], "notes", chat=True)


def test_answers_have_openais_form() -> None:
    answer = Answer(tokens=[1, 2, 3], text="Yes.", ended="stop", asked=7)
    whole = Form.new("notes", chat=True).whole(answer)
    assert whole["object"] == "chat.completion" and whole["id"].startswith("chatcmpl-")
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Yes."}
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    form = Form.new("notes", chat=False)
    assert form.whole(answer)["choices"][0]["text"] == "Yes."
    assert {form.part("a")["object"], form.last(answer)["object"]} == {"text_completion"}
    part = Form.new("notes", chat=True)
    assert part.part("Y", first=True)["choices"][0]["delta"] == {"role": "assistant", "content": "Y"}
    assert part.part("es")["choices"][0]["delta"] == {"content": "es"}
    assert part.used(answer)["choices"] == [] and part.last(answer)["object"] == "chat.completion.chunk"
