"""Each verb's options are what its function takes."""

import inspect
from argparse import Namespace
from pathlib import Path

import pytest

from console.__main__ import ACTS, from_where_it_was_called, typed
from console.verbs import VERBS, parser


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_options_are_its_functions_parameters(verb: str) -> None:
    args = vars(parser(verb).parse_args([]))
    if "inventory" in args:
        args.pop("infra", None)  # a word for one
    inspect.signature(ACTS[verb]).bind(*(["an inventory"] if args.pop("inventory", None) else []), **args)


def call(folder: Path, *words: str) -> Namespace:
    verb, *options = words
    args = parser(verb).parse_args(options)
    from_where_it_was_called(args, typed(verb, options), folder)
    return args


def test_what_was_typed_lies_where_one_stands(tmp_path: Path) -> None:
    """Also what is still to be written; an inventory of the checkout can be named from anywhere."""
    for file in ("my.jsonl", "my.yml", "mine.py", "mylab"):
        (tmp_path / file).touch()
    assert call(tmp_path, "fetch", "--results", "out").results == tmp_path / "out"
    assert call(tmp_path, "inventory", "--inventory", "new").inventory == str(tmp_path / "new")
    assert call(tmp_path, "status", "--inventory", "mylab").inventory == str(tmp_path / "mylab")
    assert call(tmp_path, "status", "--inventory", "inventory/loopback").inventory == "inventory/loopback"
    words = [f"--set={word}" for word in ("dataset=my.jsonl", "recipe=./mine.py", "@my.yml", "run=my.yml")]
    moved = call(tmp_path, "launch", "--dataset", "my.jsonl", *words)
    assert moved.dataset == f"{tmp_path}/my.jsonl"
    here = [f"dataset={tmp_path}/my.jsonl", f"recipe={tmp_path}/mine.py", f"@{tmp_path}/my.yml"]
    assert moved.settings == [*here, "run=my.yml"]


def test_what_was_not_typed_and_what_the_catalogue_has_stay(tmp_path: Path) -> None:
    for folder in ("results", "inventory/homelab", "tiny", "stdlib-qa", "images"):
        (tmp_path / folder).mkdir(parents=True)
    assert call(tmp_path, "fetch") == parser("fetch").parse_args([])
    found = call(tmp_path, "launch", "--model", "tiny", "--set=dataset=stdlib-qa", "--set=recipe=images")
    assert found.model == "tiny" and found.settings == ["dataset=stdlib-qa", "recipe=images"]
