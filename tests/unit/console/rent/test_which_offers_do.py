"""Each offer that is left out says why, by what the locked set and the model need."""

import pytest

from console.rent.clore import offer_of
from console.rent.which_offers_do import Needs, judge, needs_of, words
from lab.market import server
from train.plan.settings import request


def needs(**values: object) -> Needs:
    found = request.read(values) if values else None
    return needs_of("RTX 4090", 3, 0.50, cuda=12.8, request=found)


def why_not(offer: dict[str, object], wanted: Needs) -> str:
    good, refused = judge([offer_of(offer)], wanted, 0.05)
    assert len(good) + len(refused) == 1
    return refused[0][1] if refused else ""


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"usd": 0.48, "clore": 0.477}, "0.50 $/h with the fee is over --max 0.50"),
        ({"usd": 0.9, "clore": 0.2, "coins": ["bitcoin"]}, "no price in a currency"),
        ({"mrl": 2}, "rented for 2 h at most"),
        ({"cuda": "12.4"}, "CUDA 12.4, the locked set needs 12.8"),
        ({"ram": 8}, "8 GB of main memory"),
        ({"disk": "SSD 20GB"}, "20 GB of disk"),
        ({"disk": "unknown"}, "0 GB of disk"),
        ({"down": 30}, "30 Mbit/s down"),
        ({"reliability": 0.9}, "90.0 % reliable"),
    ],
)
def test_an_offer_that_lacks_something_says_what(other: dict[str, object], says: str) -> None:
    assert says in why_not(server(6, **other), needs())


def test_the_same_offer_without_a_lack_is_good() -> None:
    assert why_not(server(6), needs()) == ""


def test_one_that_is_let_is_left_out() -> None:
    assert why_not(server(6) | {"rented": True}, needs()) == "it is let to somebody"


def test_a_card_is_judged_by_the_plan_of_the_run() -> None:
    wanted = needs(model="llama2-13b", load_in="16bit")
    assert "llama2-13b needs 2" in why_not(server(6), wanted)
    assert why_not(server(6), needs(model="llama2-13b")) == ""


def test_a_larger_model_wants_more_of_the_disk_and_the_line() -> None:
    small, large = needs(model="tiny"), needs(model="llama2-13b", load_in="16bit")
    assert small.disk_gb < large.disk_gb
    assert small.down_mbit <= large.down_mbit
    assert small.ram_gb < large.ram_gb


def test_the_cheapest_comes_first_and_the_more_reliable_of_two() -> None:
    offers = [server(1, usd=0.4, clore=0.4), server(2), server(3, reliability=0.999)]
    good, _ = judge([offer_of(offer) for offer in offers], needs(), 0.05)
    assert [one.offer.server for one in good] == [3, 2, 1]
    assert good[0].currency == "CLORE-Blockchain"


@pytest.mark.parametrize(
    ("asked", "named", "found"),
    [
        ("4090", "1x NVIDIA GeForce RTX 4090", True),
        ("RTX 4070", "1x NVIDIA GeForce RTX 4070 Ti", True),
        ("RTX 4070 Ti", "1x NVIDIA GeForce RTX 4070", False),
        ("RTX 409", "1x NVIDIA GeForce RTX 4090", False),
    ],
)
def test_a_name_finds_the_cards_that_bear_all_its_words(asked: str, named: str, found: bool) -> None:
    assert (words(asked) <= words(named)) is found
