"""`python -m train serve`: each answer follows from its request, whatever is answered beside it, whoever began it."""

import json
import queue
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.train.test_vllm import install
from train.data.to_tokens import end_ids, load_chat
from train.errors import CheckFailed
from train.models import hf
from train.models.backends import ModelSpec
from train.models.model_files import model_folder
from train.plan.model.catalogue import model_facts, resolve_model
from train.results.answer_question import Questioner
from train.results.finished_run import FinishedRun
from train.serve.batch import Batch
from train.serve.by_vllm import ByVllm, can_serve, serving
from train.serve.conversation import HANGS_S, Conversations, seconds_for_a_token
from train.serve.memory import Room, room
from train.serve.request import Asked, Made
from train.serve.written import Written

CONTEXT, MOST = 128, 24
HOW = {"temperature": 0.0, "top_p": 1.0, "seed": 1, "stop": [], "most": MOST}


@pytest.fixture(scope="module")
def model():
    return hf.build(ModelSpec(folder=str(model_folder("tiny")), method="base"))


@pytest.fixture(scope="module")
def chat():
    return load_chat(resolve_model(model_folder("tiny")))


class Here:
    """Conversations over an engine, and what they have written."""

    def __init__(self, engine, chat):
        self.lines = []
        self.held = Conversations(engine, chat, CONTEXT, self.lines.append)

    def asks(self, number, question, **how):
        message = {"role": "user", "content": question}
        self.held.take({"ask": number, "messages": [message], **HOW, **how})

    def goes_on(self, steps=10_000):
        while self.held.live and steps:
            self.held.step()
            steps -= 1

    def said(self, number, what="text"):
        return [line[what] for line in self.lines if line.get("to") == number and what in line]

    def tokens(self, number):
        return [token for tokens in self.said(number, "tokens") for token in tokens]

    def text(self, number):
        return "".join(self.said(number))


@pytest.fixture
def here(model, chat):
    return Here(Batch(model, "cpu"), chat)


LONG = "What does os.path.join do, and which of its arguments is thrown away?"
QUESTIONS = ["Why?", LONG, "And now?", "Who are you?"]
DRAWN = {"temperature": 1.0, "top_p": 0.9}


def test_an_engine_that_makes_nothing_hangs_once_all_requests_could_have_been_read(chat, monkeypatch):
    now, made = [0.0], []
    monkeypatch.setattr("train.serve.conversation.time.monotonic", lambda: now[0])
    here = Here(SimpleNamespace(begin=lambda _: None, step=lambda: made, drop=lambda _: None), chat)
    now[0] = 1000.0
    assert not here.held.hangs(token_s=1.0), "nobody has asked"
    here.asks(1, LONG)
    read = len(here.held.live[1].asked.prompt)
    now[0] += HANGS_S + 2 * read
    assert not here.held.hangs(token_s=1.0)
    made.append(Made(1, (5,)))
    here.held.step()
    made.clear()
    now[0] += HANGS_S + 2 * read
    here.held.step()
    assert not here.held.hangs(token_s=1.0), "it went on in between"
    now[0] += 1
    assert here.held.hangs(token_s=1.0) and not here.held.hangs(token_s=2.0)


def alone(model, chat, question, **how):
    here = Here(Batch(model, "cpu"), chat)
    here.asks(1, question, **how)
    here.goes_on()
    return here.text(1)


def test_without_chance_it_is_the_answer_of_ask(here, model, chat):
    ask = Questioner(model, chat, MOST, "cpu")
    for number, question in enumerate(QUESTIONS):
        here.asks(number, question)
    here.goes_on()
    wanted = [ask([{"role": "user", "content": question}]) for question in QUESTIONS]
    assert [here.text(number).strip() for number in range(len(QUESTIONS))] == wanted
    assert [here.said(number, "end") for number in range(len(QUESTIONS))] == [["length"]] * len(QUESTIONS)


def test_an_answer_of_ask_ends_at_the_mark_of_the_template_too(chat):
    """As a base model's answer does, whose tokenizer ends texts with another one."""
    mark, calls = chat.tokenizer.pad_token_id, []
    model = hf.build(ModelSpec(folder=str(model_folder("tiny")), method="base"))

    def only_the_mark(_module, _args, scores):
        calls.append(scores.shape)
        return torch.full_like(scores, -9.0).index_fill_(-1, torch.tensor([mark]), 9.0)

    model.lm_head.register_forward_hook(only_the_mark)
    template = chat.template.replace("</s>", chat.tokenizer.pad_token)
    Questioner(model, replace(chat, template=template), MOST, "cpu")([{"role": "user", "content": "Why?"}])
    assert len(calls) == 1


@pytest.mark.parametrize("how", [{}, DRAWN], ids=["greedy", "drawn"])
def test_who_comes_later_joins_and_who_leaves_is_gone_and_no_answer_changes(here, model, chat, how):
    """At one time all of them are one group."""
    for number, question in enumerate(QUESTIONS):
        here.asks(number, question, seed=number, **how)
        here.goes_on(3)
    assert len(here.held.engine.groups) == 1
    here.held.take({"drop": 2})
    here.goes_on()
    for number in (0, 1, 3):
        assert here.text(number) == alone(model, chat, QUESTIONS[number], seed=number, **how), number
    assert len(here.said(2)) < MOST and not here.said(2, "end")


def test_chance_follows_from_the_seed(model, chat):
    texts = [alone(model, chat, QUESTIONS[0], seed=seed, **DRAWN) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("how", [{}, DRAWN, {"stop": ["qqq"]}], ids=["greedy", "drawn", "with a stop word"])
def test_an_answer_that_another_machine_began_goes_on_with_the_next_letter(here, model, chat, how):
    whole = alone(model, chat, QUESTIONS[1], **how)
    here.asks(1, QUESTIONS[1], **how)
    here.goes_on(7)
    begun = here.tokens(1)
    sent = here.text(1)
    other = Here(Batch(model, "cpu"), chat)
    other.asks(9, QUESTIONS[1], begun=begun, sent=len(sent), **how)
    other.goes_on()
    assert sent + other.text(9) == whole and len(begun) == 7
    assert other.said(9, "end") == ["length"]


def test_an_answer_that_was_lost_at_its_very_end_only_ends(here, model, chat):
    first = Here(Batch(model, "cpu"), chat)
    first.asks(1, "Why?")
    first.goes_on()
    here.asks(2, "Why?", begun=first.tokens(1), sent=len(first.text(1)))
    assert here.text(2) == "" and here.said(2, "end") == ["length"] and not here.held.live


def test_a_stop_word_ends_it_and_is_not_sent(here, model, chat):
    whole = alone(model, chat, "Why?")
    word = whole[5:9]
    here.asks(1, "Why?", stop=[word])
    here.goes_on()
    assert here.text(1) == whole[: whole.index(word)] and here.said(1, "end") == ["stop"]


def test_the_mark_of_an_end_ends_it(here, chat):
    end = end_ids(chat)[0]
    here.held.engine = SimpleNamespace(begin=lambda _: None, drop=lambda _: None, step=lambda: made.pop(0))
    made = [[Made(1, (70,))], [Made(1, (71, end, 72))]]
    here.asks(1, "Why?")
    here.goes_on()
    assert here.said(1, "end") == ["stop"] and here.said(1, "tokens")[-1] == [71, end]


def test_a_request_that_does_not_fit_is_wrong(here):
    here.asks(1, "x y " * CONTEXT)
    assert "and 128 with the answer are what fits here" in here.said(1, "wrong")[0]
    here.asks(2, "Why?", most=None)
    here.goes_on()
    [asked] = here.said(2, "asked")
    assert asked + sum(map(len, here.said(2, "tokens"))) <= CONTEXT


def test_an_empty_request_is_wrong_and_changes_no_answer_beside_it(here, model, chat):
    here.asks(1, "Why?")
    here.goes_on(2)
    here.held.take({"ask": 2, "prompt": "", **HOW})
    here.goes_on()
    assert here.said(2, "wrong") == ["the request is empty: there is nothing to continue"]
    assert here.text(1) == alone(model, chat, "Why?")


NO_SYSTEM = "{{ raise_exception('no system') if messages[0].role == 'system' else messages[0].content }}"


@pytest.mark.parametrize("template", ["", NO_SYSTEM])
def test_a_system_message_alone_is_answered(model, chat, template):
    here = Here(Batch(model, "cpu"), replace(chat, template=template or chat.template))
    here.held.take({"ask": 1, "messages": [{"role": "system", "content": "Say why."}], **HOW})
    here.goes_on()
    assert here.said(1, "end") and not here.said(1, "wrong")


USERS_ALONE = """{% for m in messages %}{% if m.role != 'system' or loop.first and not SKIPS %}\
[{{ m.content }}]{% endif %}{% endfor %}"""


@pytest.mark.parametrize("skips", ["true", "false"])
def test_a_system_message_that_a_template_passes_over_in_silence_is_asked_all_the_same(chat, skips):
    """Some write it at the very begin alone, some never."""
    messages = [{"role": "user", "content": "Why?"}, {"role": "system", "content": "Be short."}]
    held = Here(None, replace(chat, template=USERS_ALONE.replace("SKIPS", skips))).held
    for given in (messages, messages[::-1]):
        asked = held.decode(held.prompt_of({"messages": given}))
        assert "Be short." in asked and "Why?" in asked


@pytest.mark.parametrize(
    ("error", "said"), [(torch.OutOfMemoryError("no room\nat all"), "no room"), (MemoryError(), "MemoryError")]
)
def test_whatever_fails_in_the_model_fails_these_requests_alone(here, monkeypatch, error, said):
    here.asks(1, "Why?")
    here.goes_on(2)
    advance = here.held.engine.advance
    monkeypatch.setattr(here.held.engine, "advance", lambda _: (_ for _ in ()).throw(error))
    here.held.step()
    assert here.said(1, "failed") == [said] and not here.held.live
    monkeypatch.setattr(here.held.engine, "advance", advance)
    here.asks(2, "Why?")
    here.goes_on()
    assert here.said(2, "end") == ["length"]


def test_it_ends_with_its_input(here):
    orders = queue.Queue()
    for order in ({"ask": 1, "prompt": "Once upon a time", **HOW}, None):
        orders.put(order)
    here.held.hold(orders)


def test_its_speed_is_measured_and_nothing_is_left_of_that(model, chat):
    engine = Batch(model, "cpu")
    assert 0 < seconds_for_a_token(engine, chat) < 60
    assert not engine.groups and not engine.waiting


# -- text --------------------------------------------------------------------------------------------------------------


def byte_wise(tokens):
    return bytes(tokens).decode(errors="replace")


def test_letters_are_sent_whole_and_the_begin_of_a_stop_word_waits():
    written, sent = Written(byte_wise, ["END"]), []
    for byte in "aé→ ENE E".encode():
        written.add(byte)
        sent.append(written.take())
    assert "".join(sent) == "aé→ ENE " and written.take(ended=True) == "E"
    half = Written(byte_wise)
    half.add("é".encode()[0])
    assert half.take() == "" and half.take(ended=True) == "\ufffd"


# -- memory ------------------------------------------------------------------------------------------------------------


def test_slots_and_length_follow_from_the_memory_that_is_free():
    facts = model_facts(resolve_model("qwen3-8b"))
    how = {"device": "cuda:0", "load_in": "16bit", "positions": 40960}
    assert room(facts, free=48 << 30, **how) == Room(8, 8192, 8 * 8192 * 2 * 36 * 8 * 128 * 2)
    small = room(facts, free=int(17.5 * (1 << 30)), **how)
    assert small.slots == 1 and 256 <= small.context < 8192
    with pytest.raises(CheckFailed, match=r"the model needs 1\d\.\d GB, and 8\.6 GB of its card are free"):
        room(facts, free=8 << 30, **how)
    assert room(facts, free=8 << 30, **{**how, "load_in": "4bit"}).slots >= 1


# -- vLLM, played ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    facts = {"run": "notes", "folder": tmp_path / "adapter", "base": str(model_folder("tiny")), "original": "tiny"}
    hf.build(ModelSpec(folder=facts["base"], lora_r=8)).save_pretrained(facts["folder"])
    return FinishedRun(**facts, dataset="", max_seq_length=64, load_in="16bit", settings={"lora_r": 8})


def test_vllm_is_taken_where_it_is_and_takes_the_model(tmp_path, run):
    home = tmp_path / "home"
    assert not can_serve(run, home)
    install(home)
    assert can_serve(run, home)
    for other in ({"settings": {"dora": True}}, {"settings": {"lora_r": 1024}}, {"load_in": "4bit"}):
        assert not can_serve(replace(run, **other), home)


def test_a_stream_that_was_dropped_before_its_connection_stood_ends_at_its_first_token(monkeypatch):
    engine, closed = ByVllm.__new__(ByVllm), []
    engine.lines, engine.made, engine.context, engine.model = {}, queue.Queue(), CONTEXT, "adapter"
    monkeypatch.setattr("train.serve.by_vllm.streamed", lambda *_: iter([(1,)] * 100))
    engine._follow(SimpleNamespace(close=lambda: closed.append(1)), Asked(number=7, prompt=(1,)))
    assert engine.made.empty() and closed


def test_answers_of_vllm_are_streams_that_end_where_ours_end(tmp_path, run, chat, monkeypatch):
    home = tmp_path / "home"
    install(home)
    monkeypatch.setenv("MOTLEY_HOME", str(home))
    engine = ByVllm(run, serving(run, home, Room(4, CONTEXT, 1 << 20), precision="fp32", device="cpu"))
    try:
        here = Here(engine, chat)
        for number in range(3):
            here.asks(number, QUESTIONS[number], seed=number)
        here.goes_on()
        assert [len(here.tokens(number)) for number in range(3)] == [MOST] * 3, here.lines
        body = engine.body(Asked(number=7, prompt=(1, 2), begun=(3,), temperature=0.5, seed=4))
        assert body["prompt"] == [1, 2, 3] and body["max_tokens"] == CONTEXT - 3 and body["model"] == "adapter"
        assert not engine.lines
        environment = Path(f"/proc/{engine.server.process.pid}/environ").read_bytes()
        assert b"MOTLEY_HOME=" not in environment, "else it would be taken for a run's process"
    finally:
        engine.close()
    [loaded] = [json.loads(line) for line in (home / "adapters.jsonl").read_text().splitlines()]
    assert loaded["loaded"] == "adapter"
