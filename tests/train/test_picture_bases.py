"""Picture models of others are fine-tuned: the same curve on any cluster, BatchNorm or not; and what comes out."""

import itertools
import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForImageClassification

from tests.train import cluster, picture_bases, pictures, reference
from tests.train.cluster import answer
from train.errors import BadInput
from train.models import dropout
from train.plan.model.picture_bases import facts_of
from train.plan.settings.read_settings import load_config
from train.recipes.images import models, pretrained
from train.recipes.images.prepare import prepare
from train.recipes.images.rows import open_pictures

STEPS = 8
SETTINGS = {name: value for name, value in pictures.SETTINGS.items() if name != "width"}
SETTINGS |= {"max_steps": STEPS, "augment": "false", "eval_every": 4, "save_every": 4, "learning_rate": 0.003}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Models by family."""
    top = tmp_path_factory.mktemp("models")
    return {family: picture_bases.make(family, top / family) for family in picture_bases.SHAPES}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return pictures.write(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def data(photos, tmp_path_factory):
    config = load_config({**pictures.SETTINGS, "dataset": str(photos)})
    return prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


@pytest.fixture(scope="module")
def settings(data, made):
    return {**SETTINGS, "dataset": data, "model": str(made["resnet"])}


def built(folder):
    return pretrained.build(folder, classes=3, image_size=16, seed=1).train()


def test_the_dropout_that_is_set_to_0_is_said(made):
    assert "hidden_dropout_prob 0.5, attention_probs_dropout_prob 0.5 is set to 0" in dropout.why(built(made["vit"]))[0]


@pytest.mark.parametrize("family", picture_bases.SHAPES)
def test_a_loss_does_not_depend_on_how_rows_are_cut_nor_on_chance(made, data, family):
    rows = open_pictures(data)

    def gradient(cuts):
        model = built(made[family])
        before = {name: value.clone() for name, value in model.named_buffers()}
        for a, b in itertools.pairwise(cuts):
            batch = {name: torch.from_numpy(values) for name, values in rows.batch(list(range(a, b))).items()}
            (models.loss_sum(model, batch) / 20).backward()
        assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = gradient([0, 20])
    assert float((gradient([0, 12, 17, 20]) - whole).norm() / whole.norm()) < 1e-5


@pytest.mark.parametrize("family", picture_bases.SHAPES)
def test_what_a_plan_computes_is_what_there_is(tmp_path, family):
    larger = {"image_size": 32} if "image_size" in picture_bases.SHAPES[family] else {}
    folder = picture_bases.make(family, tmp_path / "model", **larger)
    model = pretrained.build(folder, classes=5, image_size=32, seed=1)
    config = json.loads((folder / "config.json").read_text())
    facts = facts_of(config, "here", image_size=32, classes=5)
    assert facts.parameters == sum(p.numel() for p in model.parameters())
    with pictures.kept_beside(model.state_dict().values()) as kept:
        batch = {"pictures": torch.zeros(4, 3, 32, 32, dtype=torch.uint8), "labels": torch.zeros(4, dtype=torch.long)}
        models.loss_sum(model, batch)
    assert 4 * 4 * facts.kept == pytest.approx(sum(kept.values()), rel=0.2)


@pytest.mark.parametrize("family", ["vit", "convnext", "resnet"])
def test_the_usual_sizes_are_those_of_transformers(family):
    """vit-base, convnext-tiny and resnet-50 by their names alone: what is usual stands in no config.json."""
    with torch.device("meta"):
        model = AutoModelForImageClassification.from_config(AutoConfig.for_model(family, num_labels=1000))
    facts = facts_of({"model_type": family}, "here", image_size=224, classes=1000)
    assert facts.parameters == sum(p.numel() for p in model.parameters())


def normalized(pixels):
    mean, spread = (torch.tensor(x)[:, None, None] for x in (picture_bases.MEAN, picture_bases.SPREAD))
    return (pixels / 255 - mean) / spread


def truth_of(data, folder, config):
    """Plain PyTorch: transformers' model in eval mode, whose BatchNorm stays; AdamW with its own groups."""
    rows = open_pictures(data)
    how = {"num_labels": 3, "ignore_mismatched_sizes": True, "dtype": torch.float32}
    model = AutoModelForImageClassification.from_pretrained(folder, **how).eval()
    random, head = torch.Generator().manual_seed(config.seed), model.classifier[1]
    with torch.no_grad():
        head.bias.zero_()
        head.weight.normal_(0.0, 0.02, generator=random)
    wide = [p for p in model.parameters() if p.dim() > 1]
    narrow = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": wide, "weight_decay": 0.05}, {"params": narrow, "weight_decay": 0.0}])
    stream, found = reference.order(rows, config.seed), []
    for step in range(STEPS):
        some = stream[step * 8 : step * 8 + 8]
        pixels = normalized(torch.from_numpy(rows.pictures[some]))
        labels = torch.from_numpy(rows.labels[some].astype(np.int64))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pixels).logits, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * reference.factor(step, 4, STEPS)
        optimizer.step()
        found.append(loss.item())
    return found


def test_its_losses_are_those_of_plain_pytorch(alone, data, made, settings):
    config = load_config({**settings, "dataset": str(data)})
    assert reference.largest_error(alone.losses(), truth_of(data, made["resnet"], config)) < 1e-5


def test_three_unequal_processes_have_the_same_curve(alone, settings, tmp_path):
    run = cluster.train(tmp_path, {**settings, "shares": "5,2,1", "micro_batch": 2}, 3)
    reference.assert_one_model(run, alone)


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(alone, data, made):
    asked = {"recipe": "images", "model": "./resnet", "dataset": "photos", "max_seq_length": 16}
    where = alone.launched(asked, data, "resnet")
    (where / "models/base").mkdir(parents=True, exist_ok=True)
    (where / "models/base/resnet").symlink_to(made["resnet"])
    return where


def asked(home, file, capsys):
    code, said = answer(capsys, "ask", "--run", "run", "--home", home, "--question", file)
    assert code == 0, said
    return {one["class"]: one["probability"] for one in said["answers"][0]["classes"]}


def test_transformers_loads_what_was_made_and_says_the_same(home, photos, capsys):
    file, folder = photos / "bars/3.png", home / "results/run/model"
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    pixels = np.asarray(Image.open(file).resize((16, 16), Image.Resampling.BICUBIC)).copy()
    with torch.no_grad():
        scores = model(normalized(torch.from_numpy(pixels).permute(2, 0, 1)[None])).logits
    truth = scores.softmax(1)[0].tolist()
    assert [model.config.id2label[n] for n in range(3)] == list(pictures.CLASSES)
    assert asked(home, file, capsys) == pytest.approx(dict(zip(pictures.CLASSES, truth, strict=True)), rel=1e-4)
    assert json.loads((folder / "preprocessor_config.json").read_text())["image_mean"] == picture_bases.MEAN


def test_a_checkpoint_answers_and_is_exported_with_the_statistics_of_its_base(home, photos, capsys, tmp_path):
    whole, out = asked(home, photos / "dots/1.png", capsys), tmp_path / "out"
    (home / "results/run").rename(home / "results/away")
    try:
        assert asked(home, photos / "dots/1.png", capsys) == pytest.approx(whole, rel=1e-5)
        code, said = answer(capsys, "export", "merged", "--run", "run", "--home", home, "--out", out)
    finally:
        (home / "results/away").rename(home / "results/run")
    assert code == 0 and {"config.json", "labels.json", "preprocessor_config.json"} <= said["files"].keys()
    exported, made = load_file(out / "model.safetensors"), load_file(home / "results/run/model/model.safetensors")
    assert exported.keys() == made.keys() and all(torch.equal(exported[name], made[name]) for name in made)


def test_its_card_and_settings_are_for_others(home):
    folder = home / "results/run/model"
    card = (folder / "README.md").read_text()
    assert "A picture classifier, fine-tuned" in card and "GroupNorm" not in card and "mean [0.4, 0.5, 0.6]" in card
    assert "/" not in json.loads((folder / "config.json").read_text()).get("_name_or_path", ""), "a folder of a node"


def test_it_is_measured_as_it_was_while_it_trained(alone, home, capsys):
    code, found = answer(capsys, "eval", "--run", "run", "--home", home)
    last = alone.events(kind="eval")[-1]
    assert code == 0 and found["model"]["loss"] == pytest.approx(last["loss"], rel=1e-5)


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_fine_tuned_is_named(made, tmp_path):
    with pytest.raises(BadInput, match="takes pictures of 16 × 16, not of 24 × 24"):
        pretrained.build(made["vit"], classes=3, image_size=24, seed=1)
    with pytest.raises(BadInput, match="a 'swin' model is not known"):
        facts_of({"model_type": "swin"}, "here", image_size=224, classes=3)
    torn = shutil.copytree(made["vit"], tmp_path / "torn")
    kept = {name: t for name, t in load_file(torn / "model.safetensors").items() if "encoder" not in name}
    save_file(kept, torn / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="would begin at random"):
        pretrained.build(torn, classes=3, image_size=16, seed=1)


def test_the_base_decides_the_curve(alone, settings, made, tmp_path):
    """A base with other weights under the same name is another run."""
    run = cluster.train(tmp_path, {**settings, "model": str(picture_bases.make("resnet", tmp_path / "resnet"))})
    states = [of.checkpoints() / f"step-{STEPS}/state.json" for of in (run, alone)]
    hashes = {json.loads(state.read_text())["math"]["model"] for state in states}
    assert [len(model) for model in hashes] == [64]
    other = picture_bases.make("resnet", tmp_path / "other", depths=[2, 2])
    again = cluster.Cluster(tmp_path, {**settings, "model": str(other)})
    assert again.wait() == [2] and "model" in again.said()
