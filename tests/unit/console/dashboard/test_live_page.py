"""The live page in a real browser: what a person sees while a run is running, and what nobody else can do."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request

from console.__main__ import checked
from console.dashboard.feed import Feed
from console.dashboard.pages import Pages
from console.dashboard.server import Dashboard
from console.doctor import look as doctor
from console.doctor.readings_and_findings import Finding, Probe, Verdict
from console.inventory.read import Inventory
from tests.support import pace
from tests.support.browser import BRIGHTNESS, OVERLAPS, Browser, Tab
from tests.support.live_run import NODES, STEPS, Board, LiveRun
from tests.support.run_files import done, member

BACK = ("gpu-master", "gpu-worker-2")
EVENT_S, PAGE_S = 1.5, 1.0


def shows(tab: Tab, words: str, what: str = "main", within_s: float = 30) -> None:
    pace.until(
        lambda: words in tab.text(what), within_s, lambda: f"no '{words}' in: {tab.text(what)[:1500]}", every_s=0.05
    )


def whole(browser: Browser, board: Board, **look: Any) -> Tab:
    tab = browser.tab(board.address, **look)
    shows(tab, f"step {board.run.step} of 2000")
    pace.until(lambda: tab.value("document.querySelectorAll('figure').length") >= 4, 30, "no chart")
    return tab


def test_a_run_is_seen_at_a_glance_and_as_it_goes_on(live: LiveRun, board: Board, browser: Browser) -> None:
    tab = whole(browser, board)
    assert tab.value("location.href") == f"{board.base}/", "the token is in no address that is kept"
    assert tab.value("document.cookie") == "", "nor where a script reads it"
    assert tab.text("#word") == "training" and "Ready at about " in tab.text("#ends")
    assert tab.value("document.title").startswith("99 % · Ready at about ")
    shows(tab, "64 °C · 180 W", '[data-node="gpu-worker-1"]')
    shows(tab, "RTX 4070", ".machines")
    assert "14 of 24 rows" in tab.text(".machines")
    assert "58 % of each step" in tab.text('[data-node="gpu-master"]')
    assert tab.text("nav [aria-current]") == "run" and "Motley" in tab.text("nav")
    assert tab.value("document.querySelector('.do a').href") == f"{board.base}/stop"
    live.trains()
    shows(tab, f"step {STEPS + 1} of 2000", within_s=6)
    live.happens("lost", ["gpu-worker-1"], "silent")
    shows(tab, "training without gpu-worker-1", "#word")
    live.trains(nodes=BACK)
    shows(tab, "gpu-worker-1 lost (silent)", "#news")
    assert "away since step" in tab.text('[data-node="gpu-worker-1"].away')
    assert tab.value("document.querySelector('#word').className") == "bad"
    assert f"./motley wake gpu-worker-1 --inventory {live.inventory}" in tab.text('[data-node="gpu-worker-1"]')
    assert re.search("(ago|just now): 64 °C", tab.text(".away"))
    live.happens("joined", ["gpu-worker-1"], "gpu-worker-1 can join")
    live.trains()
    shows(tab, "gpu-worker-1 back", "#news")
    assert tab.text("#word") == "training"
    live.happens("away", ["gpu-worker-2"], "paused until 18:00", node="gpu-worker-2")
    shows(tab, "steps aside: paused until 18:00", '[data-node="gpu-worker-2"].aside')
    aside = {"how": {"gpu-worker-2": "away"}, "why": {"gpu-worker-2": "paused until 18:00"}}
    live.happens("lost", ["gpu-worker-2"], "", **aside)
    shows(tab, "gpu-worker-2 steps aside: paused until 18:00", "#news")
    assert tab.value("document.querySelector('#word').className") == "", "somebody's wish is no fault"
    assert "stop this run" in tab.text("main")
    live.says("waiting", reason="waiting for a majority, until 18:00")
    shows(tab, "waiting: for a majority, until 18:00", "#word")
    live.says("training")
    live.write("events.jsonl", done(time.time(), live.step))
    live.happens("ended", [], "all 2000 steps are trained", done=True)
    shows(tab, "done", "#word")
    pace.until(lambda: "stop this run" not in tab.text("main"), 30, "what has ended can still be stopped")
    assert "rows" not in tab.text(".machines"), "nobody computes any more"
    assert f"./motley fetch --run qa --inventory {live.inventory}" in tab.text("#next")
    assert tab.complaints() == [] and all(url.startswith((board.base, "data:", "about:")) for url in tab.asked_for())


def test_how_soon_and_how_much(live: LiveRun, board: Board, browser: Browser) -> None:
    pace.until(lambda: b"<svg" in board.asks("/").read(), 20, "nothing is drawn")
    began = time.monotonic()
    page = board.asks("/").read()
    first_s = time.monotonic() - began
    tab = whole(browser, board)
    files = sum(len(board.asks(name).read()) for name in ("/run.css", "/live.css", "/run.js", "/live.js"))
    began = time.monotonic()
    live.happens("lost", ["gpu-worker-1"], "silent")
    shows(tab, "training without gpu-worker-1", "#word")
    event_s = time.monotonic() - began
    status = Path(f"/proc/{board.process.pid}/status").read_text()
    used_mb = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    assert first_s < pace.seconds(PAGE_S) and event_s < pace.seconds(EVENT_S)
    assert len(page) < 150_000 and files < 80_000
    assert used_mb < 75


def test_it_takes_next_to_nothing_of_a_core(moving: Board, browser: Browser) -> None:
    def cpu_s() -> float:
        fields = Path(f"/proc/{moving.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    whole(browser, moving)
    time.sleep(3)
    before, began = cpu_s(), time.monotonic()
    for _ in range(5):
        moving.run.trains()
        time.sleep(1)
    assert (cpu_s() - before) / (time.monotonic() - began) < 0.03


def test_seven_tabs(moving: Board, browser: Browser) -> None:
    """A browser opens six connections to one place."""
    tabs = [browser.tab(moving.address) for _ in range(7)]
    for tab in tabs:
        shows(tab, f"step {moving.run.step} of 2000")
    tabs[0].close()  # the one that listened for all
    moving.run.trains()
    for tab in tabs[1:]:
        shows(tab, f"step {moving.run.step} of 2000")


def test_a_server_that_was_killed_and_started_again_doubles_nothing(
    live: LiveRun, board: Board, browser: Browser
) -> None:
    live.happens("lost", ["gpu-worker-1"], "silent")
    live.trains(nodes=BACK)
    tab = browser.tab(board.address)
    shows(tab, "gpu-worker-1 lost", "#news")
    board.close(signal.SIGKILL)
    shows(tab, "the run continues", "#link")
    with contextlib.closing(Board(live, board.port)) as again:
        tab.call("Page.navigate", url=again.address)
        shows(tab, "gpu-worker-1 lost", "#news")
        live.trains(nodes=BACK)
        shows(tab, f"step {STEPS + 2} of 2000")
        assert tab.text("#news").count("gpu-worker-1 lost") == 1
        assert tab.value("document.querySelectorAll('[id=loss] figure').length") == 1


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_on_a_desk_and_on_a_phone(still: Board, browser: Browser, width: int, dark: bool, tmp_path: Path) -> None:
    tab = whole(browser, still, width=width, dark=dark)
    assert tab.value(f"document.documentElement.scrollWidth <= {width}"), "it scrolls sideways"
    ink, paper = tab.value(BRIGHTNESS)
    assert (ink > paper) is dark
    assert tab.value("[...document.querySelectorAll('h1')].length") == 1
    swatch = "getComputedStyle(document.querySelector('.machines i')).backgroundColor"
    pace.until(
        lambda: tab.value(swatch) not in ("rgba(0, 0, 0, 0)", "transparent"),
        10,
        "the policy forbids styles in the text",
    )
    pictures = Path(os.environ.get("MOTLEY_PICTURES", tmp_path))
    tab.photograph(pictures / f"live-{width}-{'dark' if dark else 'light'}.png")


def test_what_happened_before_it_was_opened_is_there_and_no_label_lies_on_another(
    tmp_path: Path, browser: Browser
) -> None:
    with LiveRun(tmp_path / "live") as run:
        for steps, there, lost in ((700, NODES, "gpu-worker-1"), (20, BACK, "gpu-worker-2")):
            run.trains(steps, nodes=there)
            at = run.began + 2.9 * run.step + 1
            run.write("members.jsonl", member("lost", at, "gpu-master", [lost], "silent", epoch=run.step))
        run.trains(STEPS - run.step, nodes=("gpu-master",))
        with contextlib.closing(Board(run)) as board:
            for width in (1280, 390):
                tab = whole(browser, board, width=width)
                assert tab.text("#word") == "training without gpu-worker-1, gpu-worker-2"
                assert "gpu-worker-1 lost (silent)" in tab.text("#news") and "away since step 6" in tab.text("main")
                assert tab.value(OVERLAPS) == [], width
                tab.call("Page.navigate", url=f"{board.base}/charts")
                shows(tab, "Throughput")
                assert tab.value(OVERLAPS) == [], width


def test_by_keyboard_alone_and_what_is_read_stays(live: LiveRun, board: Board, browser: Browser) -> None:
    tab = whole(browser, board)
    tab.value("document.querySelector('#loss svg').focus()")
    for key in ("End", "ArrowLeft"):
        tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
    read = tab.text("#loss .readout")
    assert read.startswith("step ")
    live.happens("lost", ["gpu-worker-1"], "silent")
    shows(tab, "gpu-worker-1 lost", "#news")
    assert tab.text("#loss .readout") == read, "it was taken away from who reads it"


def test_what_others_wrote_is_text(live: LiveRun, board: Board, browser: Browser) -> None:
    evil = "<img src=x onerror=\"document.title='pwned'\">"
    for message in (evil, f"</script>{evil}"):
        live.write("events.jsonl", {"event": "warning", "time": time.time(), "step": STEPS, "message": message})
    tab = browser.tab(board.address)
    shows(tab, "</script><img src=x", "#news")
    assert tab.value("document.querySelectorAll('#news img').length") == 0
    assert "pwned" not in tab.value("document.title")


def test_the_page_of_the_machines_has_what_doctor_last_found(still: Board, browser: Browser) -> None:
    tab = browser.tab(still.address)
    shows(tab, "of 2000")
    tab.call("Page.navigate", url=f"{still.base}/machines")
    shows(tab, "Last check-up: never")
    assert tab.value("document.querySelectorAll('tbody tr').length") == 3 and "training · 14 rows" in tab.text("table")
    finding = Finding(node="gpu-worker-1", what="in use by <b>hl2", fix="close it", probe="gpu in use")
    probes = [Probe(name="gpu", seen="1 GPU answers", seconds=1.0)]
    doctor.keep(checked(still.run.inventory), Verdict(nodes=[*NODES], probes=probes, findings=[finding]), 3.0)
    tab.call("Page.navigate", url=f"{still.base}/machines")
    shows(tab, "in use by <b>hl2")
    assert "1 finding" in tab.text("main") and time.strftime("%A %d %B") in tab.text("main")


def test_runs_are_a_table_with_what_can_be_done(still: Board) -> None:
    text = still.asks("/runs").read().decode()
    assert "<td" in text and f"{STEPS} of 2000" in text and ", ".join(NODES) in text and "<pre" not in text


def test_a_page_that_is_not_there_leads_back(still: Board) -> None:
    for path in ("/nothing", "/deep/er"):
        answer = still.asks(path)
        text = answer.read().decode()
        assert answer.status == 404 and f'href="/{still.folder}/">Back to the run' in text and "<nav>" in text


def test_stop_wants_the_name_of_the_run(live: LiveRun, board: Board, browser: Browser) -> None:
    tab = browser.tab(board.address)
    shows(tab, "of 2000")

    def stops(name: str) -> None:
        tab.call("Page.navigate", url=f"{board.base}/stop")
        shows(tab, "Type its name")
        tab.value(f"document.querySelector('input').value = {name!r}; document.querySelector('form button').click()")

    stops("qb")
    shows(tab, "That is not its name: nothing was stopped.")
    assert all(process.poll() is None for process in live.agents.values())
    stops("qa")
    shows(tab, "nothing left", "#said", within_s=60)
    assert all(process.poll() is not None for process in live.agents.values())


def test_ask_passes_a_question_on_as_it_is(still: Board) -> None:
    question, own = "'; touch /tmp/x; echo \" <b>", f"http://127.0.0.1:{still.port}"
    pace.until(lambda: b"of 2000" in still.asks("/").read(), 30, "no run")
    answer = still.asks("/ask", "POST", f"question={quote(question)}", Origin=own).read().decode()
    assert "run qa is running" in answer and f"<h2>{html.escape(question)}</h2>" in answer


def test_a_form_that_cannot_be_used_now_says_why(still: Board) -> None:
    pace.until(lambda: b"training" in still.asks("/").read(), 30, "no run")
    pace.until(lambda: b"qa is still running" in still.asks("/ask").read(), 30, "it can be asked while it runs")
    assert b"<fieldset disabled>" in still.asks("/ask").read() and b"<fieldset" not in still.asks("/stop").read()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:PORT"}, 200),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "evil.example:PORT"}, 421),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Cookie": ""}, 401),
        ({"Cookie": "motley=wrong"}, 401),
        ({"Cookie": "motley"}, 401),
    ],
)
def test_who_may_read(still: Board, headers: dict[str, str], status: int) -> None:
    given = {name: value.replace("PORT", str(still.port)) for name, value in headers.items()}
    for path in ("/", "/live.js", "/runs"):
        answer = still.asks(path, **given)
        assert answer.status == status
        assert "default-src 'none'" in (answer.getheader("Content-Security-Policy") or "")
        answer.read()


def test_what_changes_something_comes_from_its_own_page_alone(still: Board) -> None:
    for origin in ("", "null", "http://evil.example", f"https://127.0.0.1:{still.port}", "http://127.0.0.1:1"):
        assert still.asks("/stop", "POST", "run=qa", Origin=origin).status == 403
    own = f"http://127.0.0.1:{still.port}"
    assert still.asks("/stop", "POST", "run=qb", Origin=own).status == 400
    assert still.asks("/stop", "POST", "x" * 40_000, Origin=own).status == 400
    assert still.asks("/stop?run=qa").status == 200, "a link only shows the page"
    assert still.asks("/launch", "POST", "", Origin=own).status in (404, 405)
    assert all(process.poll() is None for process in still.run.agents.values())


def test_a_token_from_another_site_still_only_sets_its_cookie(still: Board) -> None:
    moved = still.asks(f"/?token={still.token}", Cookie="")
    assert moved.status == 303 and moved.getheader("Location") == f"/{still.folder}/"
    cookie = moved.getheader("Set-Cookie") or ""
    assert f"Path=/{still.folder}/;" in cookie, "no other server of this machine is given it"
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert still.asks("/?token=wrong", Cookie="").status == 401


def test_the_way_to_a_page_with_the_token_leads_to_no_other_host(still: Board) -> None:
    moved = still.asks(f"//elsewhere.example/?token={still.token}", Cookie="")
    assert (moved.status, moved.getheader("Location")) == (303, f"/{still.folder}/elsewhere.example/")


def test_who_leaves_in_the_middle_of_a_form_is_no_fault(board: Board) -> None:
    own = f"Host: 127.0.0.1:{board.port}\r\nOrigin: http://127.0.0.1:{board.port}\r\nCookie: motley={board.token}"
    with socket.create_connection(("127.0.0.1", board.port)) as line:
        line.sendall(f"POST /{board.folder}/ask HTTP/1.1\r\n{own}\r\nContent-Length: 99\r\n\r\nquestion=".encode())
    assert board.asks("/live.css").status == 200
    board.process.terminate()
    assert board.process.stdout and "Traceback" not in board.process.stdout.read()


def test_a_number_that_is_none_begins_a_stream_again(tmp_path: Path) -> None:
    pages = Pages(Feed([], {}), "")
    board = Dashboard(pages.feed, pages, Inventory(path=tmp_path), boot="b")
    asked = Request({"type": "http", "headers": [(b"last-event-id", "b-²".encode("latin-1"))]})
    assert asyncio.run(board.events(asked)).status_code == 200


@pytest.mark.parametrize("says", [b"", b"GET / HT"])
def test_strangers_who_hold_lines_open_keep_nobody_out(still: Board, says: bytes) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(70):
            line = held.enter_context(socket.create_connection(("127.0.0.1", still.port), 5))
            line.sendall(says)
        assert still.asks("/").status == 200


def test_a_page_that_was_one_too_many_listens_as_soon_as_it_may(moving: Board, browser: Browser) -> None:
    """A refused stream is one that a browser does not try again by itself."""
    others = [moving.asks("/events") for _ in range(16)]
    assert [answer.status for answer in others] == [200] * 16
    tab = browser.tab(moving.address)
    shows(tab, "lost its server", "#link")
    for answer in others:
        answer.close()
    pace.until(lambda: "lost" not in tab.text("#link"), 30, "it does not listen")
    moving.run.trains()
    shows(tab, f"step {moving.run.step} of 2000")


def test_a_drawing_that_fails_is_said_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(Feed([], {}), "")
    dashboard = Dashboard(pages.feed, pages, Inventory(path=tmp_path), streams=1)
    live, failing = pages._live, iter([True])

    def fails_once() -> str:
        if next(failing, False):
            raise KeyError("<odd>")
        return live()

    monkeypatch.setattr(pages, "_live", fails_once)

    async def a_while() -> tuple[str, str]:
        drawing = asyncio.create_task(dashboard.draw_for_ever())
        while not (first := pages.parts.get("live", (0, ""))[1]):
            await asyncio.sleep(0.01)
        while (then := pages.parts["live"][1]) == first:
            await asyncio.sleep(0.01)
        drawing.cancel()
        return first, then

    first, then = asyncio.run(asyncio.wait_for(a_while(), 60))
    assert "cannot be drawn (KeyError: &#x27;&lt;odd&gt;&#x27;); the run continues" in first
    assert "cannot be drawn" not in then and 'id="word"' in then


def test_it_listens_on_this_machine_alone(still: Board) -> None:
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    found = [line.split()[1] for line in table.splitlines() if line.split()[3] == "0A"]
    mine = [place for place in found if int(place.rpartition(":")[2], 16) == still.port]
    assert mine == [f"0100007F:{still.port:04X}"]


def test_without_a_run_it_says_so(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "none")
    for name in NODES:
        run.log(name, "events.jsonl").unlink()
    with contextlib.closing(Board(run)) as board:
        said = b"no run is running, and none was"
        pace.until(lambda: said in board.asks("/").read(), 30, "it does not say so")
