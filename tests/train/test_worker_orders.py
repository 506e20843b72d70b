"""What an agent tells a worker that stays: heard beside whatever it waits in, and obeyed once."""

import json
import threading

import pytest
import torch

from train.cluster.processes import Memory, Process
from train.failures import report_to_agent
from train.parallel import worker_orders as module
from train.parallel.worker_orders import LeftGroupError, Orders


class Work:
    """An exchange that is over when it is told so."""

    def __init__(self):
        self.future, self.waited = torch.futures.Future(), False

    def get_future(self):
        return self.future

    def wait(self):
        self.waited = True
        self.future.value()


@pytest.fixture
def orders(tmp_path) -> Orders:
    for name in ("word", "answer"):
        (tmp_path / name).write_text("")
    return Orders(tmp_path / "word", tmp_path / "answer")


def tell(orders: Orders, number: int, **env: str) -> None:
    orders.word.write_text(json.dumps({"word": number, "env": env}))
    orders.hear()


def soon(act) -> None:
    threading.Timer(0.05, act).start()


def test_an_exchange_is_waited_for(orders):
    work = Work()
    soon(lambda: work.future.set_result([1]))
    orders.finish(work)
    assert work.waited


def test_an_exchange_that_fails_says_so(orders):
    work = Work()
    soon(lambda: work.future.set_exception(RuntimeError("connection closed by peer")))
    with pytest.raises(RuntimeError, match="closed by peer"):
        orders.finish(work)


def test_an_exchange_with_who_is_silent_ends_with_the_word(orders):
    soon(lambda: tell(orders, 1))
    with pytest.raises(LeftGroupError):
        orders.finish(Work())
    with pytest.raises(LeftGroupError):
        orders.finish(Work())
    with pytest.raises(LeftGroupError):
        orders.require_group()


def test_so_does_a_backward_pass(orders):
    work, over = Work(), Work()
    mine = torch.zeros(1)
    future, done = (orders.future(one, lambda: mine, on_card=False) for one in (work, over))
    over.future.set_result([torch.ones(1)])
    tell(orders, 1)
    with pytest.raises(LeftGroupError):
        future.value()
    assert done.value() is not None, "what is there stays"
    work.future.set_result([torch.zeros(1)])  # nobody waits for it any more
    with pytest.raises(LeftGroupError):
        orders.future(Work(), lambda: mine, on_card=False).value()


def test_the_word_that_has_a_place_is_obeyed(orders, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    tell(orders, 1)
    soon(lambda: tell(orders, 2, RANK="2"))
    orders.obey()
    assert module.os.environ["RANK"] == "2" and orders.answer.read_text() == "2"
    orders.require_group()
    orders.hear()  # the same word once more, as where its signal came late
    orders.require_group()


def test_a_signal_without_a_word_is_somebody_elses(orders):
    orders.hear()
    orders.require_group()


def test_an_agent_is_told_who_can_stay_and_of_a_process_that_was_in_many_groups_that_it_cannot(orders, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert not orders.may_stay
    for number in range(module.MOST):
        orders.tell_agent(stays=True)
        assert orders.may_stay
        tell(orders, number + 1, RANK="0")
        orders.obey()
    orders.tell_agent(stays=True)
    assert not orders.may_stay


def test_a_card_takes_a_gradient_only_once_gloo_has_brought_it_there(orders):
    """gloo says that it is done while its copy from main memory is still under way. Who waits for that in gloo's own
    thread waits for ever."""
    sent, finished = torch.ones(3), threading.Event()

    class Copying(Work):
        def wait(self):
            assert finished.wait(5)
            sent.fill_(5.0)

    work = Copying()
    future = orders.future(work, lambda: sent * 2, on_card=True)
    work.future.set_result([sent])
    finished.set()
    assert (future.wait() == 10).all()


class Gone:
    pid = None


def test_what_failed_in_the_group_before_is_no_failure_of_this_one(monkeypatch):
    """It is told of another group while it reports that the last one broke."""
    process = Process(Gone(), Memory("cause"), Memory("word"), Memory("answer"))
    monkeypatch.setenv("MOTLEY_AGENT", "1")
    monkeypatch.setenv("MOTLEY_FAILURE", process.cause.path)
    process.tell(1, {})
    for group, is_of_this_one in (({"word": 0}, False), ({"word": 1}, True), ({}, True)):
        report_to_agent(RuntimeError("Connection closed by peer"), **group)
        assert bool(process.reported()) is is_of_this_one
