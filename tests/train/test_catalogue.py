"""Names: what they mean, and what a machine without the hub answers. A small HTTP server stands for the hub."""

import contextlib
import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from console.hub import files
from tests.support import pace
from tests.train.bases import save_in_4bit
from tests.train.cluster import ROOT, environment
from tests.train.families import make
from train.cache import build_once
from train.engine import pipe_members
from train.errors import BadInput
from train.hub_data import hub_dataset, of_card, pick, training_files, training_part
from train.models import backends, hf, picture_bases
from train.models.backends import ModelSpec
from train.models.fetch import list_hub
from train.models.model_files import model_folder
from train.plan.model import weight_files
from train.plan.model.catalogue import facts_of, model_facts, read_config, resolve_dataset, resolve_model
from train.plan.model.sources import BaseModel
from train.plan.settings.config import load_config
from train.recipes import sft

COMMIT = "c" * 40


def test_every_entry_is_complete_and_readable_for_ansible():
    entries = yaml.safe_load((ROOT / "train/plan/model/catalogue.yml").read_text())
    for name, entry in entries["models"].items():
        assert resolve_model(name).facts, name
        assert ("embedded" in entry) or ("/" in entry["hub"]), name
        assert isinstance(entry["gated"], bool), name
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


def test_a_build_that_fails_leaves_nothing_and_the_next_succeeds(tmp_path):
    def half(folder):
        (folder / "part").touch()
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        build_once(tmp_path / "thing", half)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    calls = []
    for _ in range(2):
        build_once(tmp_path / "thing", calls.append)
    assert len(calls) == 1


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as a data set and a config.json need."""

    files = {  # noqa: RUF012
        "datasets/me/qa": {
            "train.jsonl": "".join(json.dumps({"prompt": f"q{n}", "completion": f"a{n}"}) + "\n" for n in range(50)),
            "test.jsonl": "not for training",
            "README.md": "",
        },
        "me/small": {"config.json": ""},
    }

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, with_body):
        path = self.path.split("?")[0].lstrip("/")
        if path.startswith("api/"):
            body = self.tree(path.removeprefix("api/").partition("/tree/")[0].removeprefix("models/"))
        elif "/resolve/" in path:
            repo, _, rest = path.partition("/resolve/")
            body = self.files.get(repo, {}).get(rest.partition("/")[2])
        else:
            body = None
        if body is None or "gated" in path:
            code, message = ("403", "GatedRepo") if "gated" in path else ("404", "RepoNotFound")
            self.send_response(int(code))
            self.send_header("X-Error-Code", message)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = body.encode()
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def tree(self, repo):
        names = self.files.get(repo)
        return names and json.dumps([{"type": "file", "path": n, "size": 1, "oid": "0" * 40} for n in names])

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    Hub.files["me/small"]["config.json"] = (Path(model_folder("tiny")) / "config.json").read_text()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
    }
    server.shutdown()


def train(env, *flags):
    return python(env, "-m", "train", *flags)


def python(env, *words):
    command = [sys.executable, *words]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = pace.run(*command, cwd=ROOT, env=clean | environment() | env)
    return done.returncode, done.stdout, done.stderr


def test_a_data_set_of_the_hub_is_prepared(hub, tmp_path):
    code, out, err = train(
        hub, "prepare", "--dataset", "me/qa", "--model", "tiny", "--out", str(tmp_path / "rows"), "--json"
    )
    assert code == 0, err
    assert json.loads(out)["files"] == ["train.jsonl"]
    assert json.loads(out)["records"]["records"] == 50
    assert "hub id" in err


PLAN = """\
import json, sys
from train.errors import BadInput
from train.plan.launch.what_if import what_if
try:
    print(json.dumps(what_if("8", {"model": sys.argv[1]}).data))
except BadInput as wrong:
    print(wrong, file=sys.stderr)
    sys.exit(2)
"""


def test_a_model_of_the_hub_is_planned_from_its_config_alone(hub):
    code, out, err = python(hub, "-c", PLAN, "me/small")
    assert code == 0, err
    assert json.loads(out)["parameters"] == 1_049_728


@pytest.mark.parametrize(
    ("flags", "env", "said"),
    [
        (("-c", PLAN, "me/gated"), {}, "its owner wants the licence accepted first"),
        (("-c", PLAN, "me/nothing"), {}, "me/nothing could not be fetched"),
        (
            ("-m", "train", "prepare", "--dataset", "me/qa", "--model", "tiny"),
            {"HF_HUB_OFFLINE": "1"},
            "me/qa could not be fetched",
        ),
    ],
)
def test_what_the_hub_refuses_is_said_in_three_lines(hub, flags, env, said):
    code, _, err = python(hub | env, *flags)
    message = [line for line in err.splitlines() if not line.startswith(("Warning", "data ", "model "))]
    assert code == 2
    assert said in err
    assert len(message) <= 3, err


# -- what a model's files hold, before anything is sent or trained -----------------------------------------------------


def wanted_of(folder):
    config = json.loads((folder / "config.json").read_text())
    return weight_files.wanted(facts_of(config, "x"), config)


@pytest.mark.parametrize("family", weight_files.FAMILIES)
@pytest.mark.parametrize(
    "other", [{}, {"attention_bias": True}, {"mlp_bias": True}, {"tie_word_embeddings": True}], ids=str
)
def test_the_weights_of_a_family_are_known_as_its_class_has_them(family, other, tmp_path):
    folder = make(family, tmp_path / "base", **other)
    weight_files.require(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    assert wanted_of(folder) == {name: list(weight.shape) for name, weight in model.named_parameters()}


def without(held, part):
    return {name: weight for name, weight in held.items() if part not in name}


SPOILT = {
    "a head": (lambda held: without(held, "lm_head"), "files lack lm_head.weight"),
    "gptq": (
        lambda held: {name.replace("v_proj.weight", "v_proj.qweight"): weight for name, weight in held.items()},
        r"files lack model.layers.0.self_attn.v_proj.weight and 1 more",
    ),
    "left over": (
        lambda held: {**held, "score.weight": torch.zeros(2, 64)},
        "files hold what no such model has: score.weight",
    ),
    "fp8": (
        lambda held: {n: w.to(torch.float8_e4m3fn) if "_proj" in n else w for n, w in held.items()},
        r"numbers that are not loaded: model.layers.0.mlp.down_proj.weight \(F8_E4M3\) and 13 more",
    ),
    "shape": (
        lambda held: {**held, "lm_head.weight": torch.zeros(1000, 64)},
        r"another shape than config.json says: lm_head.weight \(\[1000, 64\], not \[1024, 64\]\)",
    ),
}


def looked_at(folder):
    return files(BaseModel(name="base", source="folder", reason="", folder=str(folder)), {})


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_do_not_hold_the_whole_model_are_refused_by_name(how, tmp_path):
    """transformers fills the gaps by lot, and a run on that would end in `done`."""
    folder = make("llama", tmp_path / "base")
    spoil, said = SPOILT[how]
    file = folder / "model.safetensors"
    save_file(spoil(load_file(file)), file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=said):
        sft.start(load_config({"model": str(folder)}), print)
    with pytest.raises(BadInput, match=said):  # the controller, before it sends anything
        looked_at(folder)


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8"])
def test_a_model_quantised_by_another_program_is_refused_by_its_name(method, tmp_path):
    folder = make("llama", tmp_path / "base")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    for asked in (lambda: looked_at(folder), lambda: facts_of(read_config(folder), "x")):
        with pytest.raises(BadInput, match=f"quantised by {method}, which cannot be trained on"):
            asked()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: cut(folder / "model.safetensors"), "model.safetensors is cut off or damaged"),
        (lambda folder: headed(folder, b"[]"), "model.safetensors is cut off or damaged"),
        (lambda folder: headed(folder, b'{"lm_head.weight": 1}'), "model.safetensors is cut off or damaged"),
        (lambda folder: listed(folder, "{"), r"model\.safetensors\.index\.json is cut off or damaged"),
        (lambda folder: listed(folder, '{"metadata": {}}'), r"model\.safetensors\.index\.json is cut off or damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text('{"model": '), "tokenizer.json is cut off or damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), "tokenizer.json is cut off or damaged"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": '), "config.json is broken"),
        (lambda folder: replace_in(folder / "config.json", '_hidden_layers": 2', '_hidden_layers": null'), "'num_hid"),
        (lambda folder: replace_in(folder / "config.json", "intermediate_size", "size"), "lacks 'intermediate_size'"),
        (lambda folder: make("llama", folder, vocab_size=900), "tokenizer has 1000 tokens, the model's vocabulary 900"),
    ],
)
def test_a_damaged_folder_is_named_before_it_is_sent(spoil, said, tmp_path):
    folder = make("llama", tmp_path / "base")
    tokenizer = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 999, "content": "b"}]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    spoil(folder)
    with pytest.raises(BadInput, match=said):
        looked_at(folder)


def test_weights_that_nothing_can_be_compared_with_are_refused(tmp_path):
    """torch alone reads a .bin, and only when the model is loaded."""
    folder = make("llama", tmp_path / "base")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for asked in (lambda: sft.start(load_config({"model": str(folder)}), print), lambda: looked_at(folder)):
        with pytest.raises(BadInput, match=r"no weights as \.safetensors.*\n.*\n.*save_pretrained"):
            asked()


def test_of_any_family_a_weight_that_the_files_lack_is_refused(tmp_path):
    """As `train run` takes them: a launch refuses the family."""
    folder = make("olmo2", tmp_path / "base")
    file = folder / "model.safetensors"
    save_file(without(load_file(file), "lm_head"), file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"files lack lm_head\.weight"):
        backends.get("hf").build(backends.ModelSpec(folder=str(folder), method="base"))


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def headed(folder, header):
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def listed(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)


def replace_in(file, old, new):
    file.write_text(file.read_text().replace(old, new))


def test_a_model_in_several_files_or_saved_without_its_head_is_whole(tmp_path):
    folder = make("llama", tmp_path / "base", tie_word_embeddings=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.model.save_pretrained(tmp_path / "headless")
    weight_files.require(tmp_path / "headless")
    model.save_pretrained(tmp_path / "several", max_shard_size="50KB")
    weight_files.require(tmp_path / "several")
    next((tmp_path / "several").glob("*-of-*.safetensors")).unlink()
    with pytest.raises(BadInput, match="safetensors is missing"):
        weight_files.require(tmp_path / "several")


def test_files_quantised_by_bitsandbytes_hold_the_whole_model(tmp_path):
    weight_files.require(save_in_4bit(tmp_path / "tiny-4bit"))


LOADS = {
    "a base": lambda folder: hf.build(ModelSpec(folder=str(folder))),
    "its settings": lambda folder: hf.config_of(str(folder)),
    "pictures": picture_bases.config_of,
    "a stage": pipe_members._model_config,
}


@pytest.mark.parametrize("kind", LOADS)
def test_the_code_that_a_model_brings_along_is_not_run_whatever_is_answered(kind, tmp_path, monkeypatch):
    """In a terminal the library would ask, and a y would run it."""
    told = {"model_type": "mine", "auto_map": {name: f"mine.{name}" for name in ("AutoConfig", "AutoModelForCausalLM")}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(BadInput, ValueError):
        LOADS[kind](tmp_path)
    assert not (tmp_path / "ran").exists()
