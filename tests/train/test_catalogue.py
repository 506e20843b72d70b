"""Names of models and data sets: what they mean, and which files of the hub are meant."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.support import ROOT
from train.errors import BadInput
from train.hub_data import hub_dataset, of_card, pick, training_files, training_part
from train.models.fetch import list_hub
from train.models.model_files import model_folder
from train.plan.model.catalogue import facts_of, model_facts, resolve_dataset, resolve_model


def test_every_entry_is_complete_and_readable_for_ansible():
    entries = yaml.safe_load((ROOT / "train/plan/model/catalogue.yml").read_text())
    for name, entry in entries["models"].items():
        assert resolve_model(name).facts, name
        assert ("embedded" in entry) or ("/" in entry["hub"]), name
        assert entry["licence"], name
    names = [*entries["models"], *(alias for e in entries["models"].values() for alias in e.get("aliases", []))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_facts_of_an_embedded_model_are_those_of_its_config(name):
    config = json.loads((Path(model_folder(name)) / "config.json").read_text())
    assert facts_of(config, name) == resolve_model(name).facts


def test_a_name_says_what_it_was_taken_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path))
    assert resolve_model("mistral").name == "mistral-7b"
    assert resolve_model("Qwen/Anything-7B").source == "hub"
    folder = tmp_path / "models" / "base" / "llama2-7b"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((Path(model_folder("tiny")) / "config.json").read_text())
    copied = resolve_model("llama2-7b")
    assert (copied.source, copied.folder) == ("catalogue", folder)
    mine = resolve_model(str(folder))
    assert (mine.source, model_facts(mine).hidden) == ("folder", 128)


@pytest.mark.parametrize(
    ("resolve", "name", "said"),
    [
        (resolve_model, "mistrall", "did you mean mistral-7b?"),
        (resolve_model, "Llama-3.2-1b-Instruct", "did you mean llama3.2-1b?"),
        (resolve_model, "llama3", "did you mean llama3.1-8b, llama3.2-1b, llama3.2-3b?"),
        (resolve_model, "https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "did you mean Qwen/Qwen3-0.6B?"),
        (resolve_dataset, "https://huggingface.co/datasets/tatsu-lab/alpaca", "did you mean tatsu-lab/alpaca?"),
        (resolve_model, "/", "no config.json"),
        (resolve_model, "zzz", "the catalogue has: llama2-7b"),
        (resolve_dataset, "/", "a data set is one file"),
        (resolve_dataset, "/no/such.csv", "there is no file"),
        (resolve_dataset, "stdlibqa", "did you mean stdlib-qa?"),
    ],
)
def test_an_unknown_name_gets_the_nearest(resolve, name, said):
    with pytest.raises(BadInput) as error:
        resolve(name)
    assert said in str(error.value)


def test_an_unknown_architecture_is_not_guessed():
    with pytest.raises(BadInput, match="memory of this 'mamba' model is not known"):
        facts_of({"model_type": "mamba"}, "x/y")


def test_training_files_of_a_repository():
    assert training_files(["README.md", "data/train-0.parquet", "data/test-0.parquet"]) == ["data/train-0.parquet"]
    assert training_files(["b.jsonl", "a.jsonl", "a_test.jsonl", "dataset_infos.json"]) == ["a.jsonl", "b.jsonl"]
    assert training_files(["train.jsonl", "extra.jsonl"]) == ["train.jsonl"]
    assert training_files(["x.csv", "x.jsonl"]) == ["x.jsonl"]
    assert training_files(["model.bin", "LICENSE.txt"]) == []
    assert training_files(["training_data/test.jsonl", "training_data/a.jsonl"]) == ["training_data/a.jsonl"]
    assert training_files(["constrained/test.jsonl", "latest.jsonl"]) == ["latest.jsonl"]
    assert training_files(["trainer_state.json", "data.parquet"]) == ["data.parquet"]


def card_of(**configs):
    listed = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in splits.items()]}
        for name, splits in configs.items()
    ]
    return f"---\n{yaml.safe_dump({'configs': listed})}---\n# A data set\n"


GSM8K = card_of(
    main={"train": "main/train-*", "test": "main/test-*"},
    socratic={"train": "socratic/train-*", "test": "socratic/test-*"},
)
ULTRACHAT = card_of(default={name: f"data/{name}-*" for name in ("train_sft", "test_sft", "train_gen", "test_gen")})


def named(card):
    """The files that a card names, one each."""
    configs = yaml.safe_load(card.split("---")[1])["configs"]
    return [each["path"].replace("*", "0-of-1.parquet") for one in configs for each in one["data_files"]]


@pytest.mark.parametrize(
    ("card", "asked", "taken"),
    [
        (GSM8K, "main", "main/train-0-of-1.parquet"),
        (GSM8K, "socratic/test", "socratic/test-0-of-1.parquet"),
        (ULTRACHAT, "default/train_sft", "data/train_sft-0-of-1.parquet"),
        (card_of(en={"train": "en/*"}), "", "en/0-of-1.parquet"),
        (card_of(default={"train": "a-*"}, other={"train": "b-*"}), "", "a-0-of-1.parquet"),
    ],
)
def test_one_part_of_a_data_set_is_trained_on(card, asked, taken):
    assert pick("me/qa", asked, *of_card(card, named(card))) == [taken]


@pytest.mark.parametrize("folder", ["de", "de/", "./de"])
def test_a_part_may_be_all_that_lies_in_a_folder(folder):
    configs = f"[{{config_name: german, data_dir: {folder}}}, {{config_name: english, data_dir: en}}]"
    parts = of_card(f"---\nconfigs: {configs}\n---\n", ["de/a.jsonl", "en/a.jsonl"])
    assert pick("me/qa", "german", *parts) == ["de/a.jsonl"]


@pytest.mark.parametrize(
    ("card", "name", "said"),
    [
        (GSM8K, "me/qa", "several parts: main/train, main/test, socratic/train, socratic/test"),
        (GSM8K, "me/qa:plain", "no part 'plain': main/train"),
        (ULTRACHAT, "me/qa", "several parts: default/train_sft"),
        ("", "me/qa", "several parts: de, fr"),
    ],
)
def test_parts_of_a_data_set_are_never_mixed_but_listed(card, name, said, monkeypatch, tmp_path):
    """Each question of gsm8k would be trained twice, and one held out in one style be trained in the other."""
    (tmp_path / "README.md").write_text(card)
    monkeypatch.setattr("train.hub_data.hub_file", lambda *_: tmp_path / "README.md")
    files = [*(named(card) if card else ("de/train.jsonl", "fr/train.jsonl")), "README.md"]
    with pytest.raises(BadInput, match=said):
        training_part(name, lambda _: files)


@pytest.mark.parametrize(
    "head",
    [
        "---\nconfigs: [: {\n---\n",
        "---\n- configs\n---\n",
        "---\nconfigs: main\n---\n",
        "---\nconfigs: [{config_name: main, data_files: [{split: train}]}]\n---\n",
        "---\nconfigs: [{data_files: 7}]\n---\n",
        "---\nconfigs: [{data_files: [{split: train, path: [7]}]}]\n---\n",
        "--- \xff",
    ],
)
def test_a_card_that_cannot_be_read_is_none_and_that_is_said(head, monkeypatch, tmp_path, capsys):
    """Whoever wrote it; the names of the files then say what there is."""
    (tmp_path / "README.md").write_bytes(head.encode("latin1"))
    monkeypatch.setattr("train.hub_data.hub_file", lambda *_: tmp_path / "README.md")
    assert training_part("me/qa", lambda _: ["train.jsonl", "test.jsonl", "README.md"]) == (None, ["train.jsonl"])
    assert "careful   me/qa: what its README.md says of its parts cannot be read" in capsys.readouterr().err


def test_without_readable_files_the_hubs_conversion_is_taken_by_a_launch_as_well(monkeypatch, tmp_path):
    """The list that a launch fetches by is what `train run` reads."""
    there = {None: ["data.jsonl.gz"], "refs/convert/parquet": [f"{one}/train/0.parquet" for one in ("de", "en")]}

    class Api:
        def dataset_info(self, repo, *, revision=None, files_metadata):
            entries = [SimpleNamespace(rfilename=name, lfs=None, size=1, blob_id="0") for name in there[revision]]
            return SimpleNamespace(siblings=entries, sha=str(revision))

        def list_repo_files(self, repo, *, repo_type, revision):
            return there[revision]

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setattr("train.hub_data.hub_file", lambda repo, name, kind, revision: (revision, name))
    listing = list_hub("me/qa:en", "dataset")
    assert (listing.repo, listing.revision) == ("me/qa", "refs/convert/parquet")
    assert [file.name for file in listing.files] == ["en/train/0.parquet"]
    assert hub_dataset("me/qa:en") == [("refs/convert/parquet", "en/train/0.parquet")]
    for asked in (list_hub, lambda name, _: hub_dataset(name)):
        with pytest.raises(BadInput, match="several parts: de/train, en/train"):
            asked("me/qa", "dataset")


def test_a_part_of_a_data_set_has_a_name_and_a_folder_of_its_own():
    data = resolve_dataset("openai/gsm8k:main/train")
    assert (data.name, data.local_name) == ("gsm8k-main-train", "openai--gsm8k--main--train")
