"""The client of Clore.ai against the lab's market over HTTP, with what strangers write into their offers."""

import pytest

from console.rent.clore import Clore, disk_gb, gpu_count, offer_of, order_of
from console.rent.market import Declined, Request, Unanswered
from lab.market import KEY, Books
from tests.support import stand_ins

WISH = Request(mark="motley-me-1", server=6, currency="USD-Blockchain", usd_h=0.38, public_key="ssh-ed25519 AAAA me")


def test_the_five_calls(market: Clore, books: Books) -> None:
    assert [offer.server for offer in market.offers()] == [6, 8]
    number = market.order(WISH)
    (order,) = market.orders()
    assert (order.number, order.mark, order.host, order.ports) == (number, "motley-me-1", "127.0.0.1", {22: 2222})
    assert market.balance()["USD-Blockchain"] == pytest.approx(5.0, abs=0.01)
    market.cancel(number)
    assert market.orders() == []
    with pytest.raises(Declined, match="no such order"):
        market.cancel(number)
    assert books.bill()[0]["status"] == "terminated"


@pytest.mark.parametrize("fault", ["lost", "500", "garbled", "busy"])
def test_reading_is_tried_again(fault: str, market: Clore, books: Books) -> None:
    books.faults["my_orders"] = [fault, fault]
    assert market.orders() == []
    assert books.asked == ["my_orders"] * 3


def test_a_price_that_rose_meanwhile_is_not_paid(market: Clore, books: Books) -> None:
    books.servers[0]["price"]["usd"]["on_demand_usd"] = 0.50
    with pytest.raises(Declined, match="too_low_price"):
        market.order(WISH)


def test_a_wrong_key_is_declined_and_is_in_no_message(market: Clore) -> None:
    market.key = "a-secret-of-somebody"
    with pytest.raises(Declined) as why:
        market.orders()
    assert "a-secret" not in str(why.value) + repr(market)


def test_a_redirect_takes_the_key_nowhere(market: Clore, books: Books) -> None:
    redirects = stand_ins.answers(b"", 302, Location=f"{market.url}/my_orders")
    with redirects as port, pytest.raises(Unanswered, match="302"):
        Clore(key=KEY, url=f"http://127.0.0.1:{port}/v1")._ask("my_orders", None)
    assert books.asked == []


def test_of_a_list_only_orders_with_a_number_are_taken(market: Clore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clore, "_again", lambda *_: {"code": 0, "orders": [None, {"id": "x"}, {"id": 7}]})
    assert [order.number for order in market.orders()] == [7]
    monkeypatch.setattr(Clore, "_again", lambda *_: {"code": 0, "orders": 5})
    with pytest.raises(Unanswered, match="its answer to my_orders has no orders"):
        market.orders()


def test_what_is_left_of_an_account_is_not_taken_for_dollars(market: Clore, monkeypatch: pytest.MonkeyPatch) -> None:
    wallets = [{"name": "USD-Blockchain", "balance": 3.2e-06}, {"name": "CLORE-Blockchain", "balance": "12.5"}]
    monkeypatch.setattr(Clore, "_read", lambda *_: wallets)
    assert market.balance() == {"USD-Blockchain": 3.2e-06, "CLORE-Blockchain": 12.5}


@pytest.mark.parametrize(("text", "count"), [("2x NVIDIA GeForce RTX 4090", 2), ("4090 RTX", 1), ("0x A", 1), ("", 1)])
def test_only_a_number_of_cards_is_one(text: str, count: int) -> None:
    assert gpu_count(text) == count


def test_an_offer_without_anything_fits_nothing() -> None:
    empty = offer_of({"id": 5})
    assert (empty.gpu, empty.disk_gb, empty.usd_h, empty.cuda) == ("", 0.0, {}, 0.0)


def test_an_order_that_is_not_up_yet_is_not_ready() -> None:
    assert not order_of({"id": 7, "pub_cluster": ["n1.example"], "tcp_ports": []}).ready
    assert not order_of({"id": 7, "pub_cluster": [], "tcp_ports": ["22:40122"]}).ready
    assert order_of({"id": 7, "pub_cluster": ["n1.example"], "tcp_ports": ["22:40122"]}).ready


@pytest.mark.parametrize(
    ("text", "gb"),
    [("NVMe 900GB", 900), ("SSD 1.8TB", 1800), ("WD 500 blue 2 TB", 2000), ("", 0), ("v1.0.2 GB", 0.2), ("...GB", 0)],
)
def test_a_disk_is_read_from_its_text(text: str, gb: float) -> None:
    assert disk_gb(text) == gb
