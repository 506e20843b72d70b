"""Pictures: the same curve on any cluster, whatever is moved while they are trained on; and what comes out."""

import itertools
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from tests.train import cluster, pictures, reference
from tests.train.cluster import answer
from train.errors import BadInput
from train.plan.settings.read_settings import load_config
from train.recipes.images import models
from train.recipes.images.prepare import prepare
from train.recipes.images.rows import moved, open_pictures

CLOSE = 1e-6


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return pictures.write(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def data(photos, tmp_path_factory):
    config = load_config({**pictures.SETTINGS, "dataset": str(photos)})
    return prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


@pytest.fixture(scope="module")
def settings(data):
    return {**pictures.SETTINGS, "dataset": data}


def truth_of(data, settings):
    """Plain PyTorch: each picture moved by itself, SGD with its own groups, schedule, clipping."""
    config, rows = load_config({**settings, "dataset": str(data)}), open_pictures(data)
    model = models.empty(config.facts(len(pictures.CLASSES)))
    models.first_weights(model, config.seed)
    wide = [p for p in model.parameters() if p.dim() > 1]
    narrow = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": wide, "weight_decay": 5e-4}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.4, momentum=0.9, nesterov=True)
    stream, found = reference.order(rows, config.seed), []
    for step in range(24):
        total = torch.zeros(())
        for place in range(step * 8, step * 8 + 8):
            row = stream[place]
            pixels = moved(rows.pictures[row], config.seed, place // len(rows), row)
            scores = model(torch.from_numpy(pixels.copy())[None] / 127.5 - 1)
            total = total - scores.log_softmax(1)[0, rows.labels[row]]
        optimizer.zero_grad()
        (total / 8).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        for group in optimizer.param_groups:
            group["lr"] = 0.4 * 8 / 128 * reference.factor(step, 4, 24)
        optimizer.step()
        found.append(total.item() / 8)
    return found


def test_its_losses_are_those_of_plain_pytorch(alone, data, settings):
    assert reference.largest_error(alone.losses(), truth_of(data, settings)) < 1e-5


@pytest.mark.parametrize(
    ("sync", "model"),
    [("flat", "resnet18"), pytest.param("ddp", "resnet18", marks=pytest.mark.long), ("flat", "vit-tiny")],
)
def test_three_unequal_processes_have_the_same_curve(alone, settings, tmp_path, sync, model):
    more = {"model": model, "image_size": 28, "width": 16, "max_steps": 8} if model == "vit-tiny" else {}
    truth = alone
    if more:
        folder = str(pictures.write(tmp_path / "photos"))
        more["dataset"] = prepare(load_config({**pictures.SETTINGS, **more, "dataset": folder}), lambda _: None,
                                  out=str(tmp_path / "rows"))  # fmt: skip
        truth = cluster.train(tmp_path / "alone", {**settings, **more})
    run = cluster.train(tmp_path, {**settings, **more, "shares": "5,2,1", "sync": sync, "micro_batch": 2}, 3)
    reference.assert_one_model(run, truth)
    for rank in range(3):
        for mine, other in zip(run.events(rank, "eval"), truth.events(kind="eval"), strict=True):
            assert mine["metrics"] == other["metrics"]
    last = [[event["lines"] for event in run.events(rank, "samples")] for rank in range(3)]
    assert last[0] == last[1] == last[2]


@pytest.mark.long
def test_it_continues_with_fewer_nodes_after_a_kill(alone, settings, tmp_path):
    cluster.killed(tmp_path, {**settings, "shares": "5,2,1"}, 9)
    run = cluster.train(tmp_path, {**settings, "shares": "3,1"}, 2)
    assert run.events(kind="start")[-1]["step"] >= 6
    assert reference.largest_error(run.losses(), alone.losses()) < CLOSE


def test_a_picture_moves_by_seed_epoch_and_row_alone(data):
    rows = open_pictures(data, seed=5, augment=True)
    count = len(rows)
    together = rows.batch([3, 4, 5], position=count + 3)["pictures"]
    assert np.array_equal(rows.batch([4], position=count + 7)["pictures"][0], together[1])
    assert not np.array_equal(rows.batch([4], position=4)["pictures"][0], together[1])
    assert not np.array_equal(open_pictures(data, seed=6, augment=True).batch([4], count)["pictures"][0], together[1])
    assert np.array_equal(open_pictures(data).batch([4], position=count)["pictures"][0], rows.pictures[4])


def test_a_loss_over_pictures_does_not_depend_on_how_they_are_cut(data):
    rows = open_pictures(data)
    config = load_config({**pictures.SETTINGS, "dataset": str(data)})

    def gradient(cuts, norm=None):
        model = models.empty(config.facts(3))
        models.first_weights(model, 1)
        for part in model.blocks if norm else ():
            part.main[0][1] = norm(part.main[0][0].out_channels)
        for a, b in itertools.pairwise(cuts):
            batch = {name: torch.from_numpy(values) for name, values in rows.batch(list(range(a, b))).items()}
            (models.loss_sum(model, batch) / 40).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def error(norm=None):
        whole = gradient([0, 40], norm)
        return float((gradient([0, 25, 35, 40], norm) - whole).norm() / whole.norm())

    assert error() < 1e-5
    assert error(nn.BatchNorm2d) > 0.01, "BatchNorm is what this test is to notice"


def test_batch_norm_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(BadInput, match=r"the model has BatchNorm .* looks across rows"):
        models.loss_module(model, "fp32", "cpu")


@pytest.mark.parametrize("size", [28, 64, 100])
@pytest.mark.parametrize("model", ["resnet18", "resnet50", "vit-tiny"])
def test_what_a_plan_computes_is_what_there_is(model, size):
    width, edge = (64, 98 if size == 100 else size) if model == "vit-tiny" else (16, size)
    facts = load_config({"recipe": "images", "model": model, "width": width, "image_size": edge}).facts(7)
    built = models.empty(facts)
    assert facts.parameters == sum(p.numel() for p in built.parameters())
    with pictures.kept_beside(built.parameters()) as kept:
        loss = models.loss_sum(built, {"pictures": torch.zeros(2, 3, edge, edge, dtype=torch.uint8),
                                       "labels": torch.zeros(2, dtype=torch.long)})  # fmt: skip
    assert 4 * 2 * facts.kept == pytest.approx(sum(kept.values()), rel=0.15), loss


def test_sgd_and_its_momentum_go_where_the_run_goes(alone):
    settings = json.loads((alone.checkpoints() / "step-24/state.json").read_text())["math"]
    assert settings["optimizer"] == "sgd" and settings["learning_rate"] == 0.025
    assert "learning rate 0.025: 0.4 at 128 rows a step, in proportion to the rows" in alone.said()


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(alone, data):
    asked = {"recipe": "images", "model": "resnet18", "dataset": "photos", "max_seq_length": 16}
    return alone.launched(asked, data)


def test_a_picture_is_asked_about(home, photos, capsys):
    file = photos / "bars" / "3.png"
    code, said = answer(capsys, "ask", "--run", "run", "--home", home, "--question", file)
    classes = said["answers"][0]["classes"]
    assert code == 0 and {one["class"] for one in classes} == set(pictures.CLASSES)
    pixels = torch.from_numpy(np.asarray(Image.open(file).resize((16, 16), Image.Resampling.BICUBIC)).copy())
    model = models.load(home / "results/run/model")
    truth = F.softmax(model(pixels.permute(2, 0, 1)[None] / 127.5 - 1), 1)[0].tolist()
    assert {one["class"]: one["probability"] for one in classes} == pytest.approx(
        dict(zip(pictures.CLASSES, truth, strict=True)), rel=1e-4
    )


def test_what_is_no_picture_is_named(home, tmp_path, capsys):
    (tmp_path / "notes.png").write_text("text")
    code, said = answer(capsys, "ask", "--run", "run", "--home", home, "--question", tmp_path / "notes.png")
    assert code == 2 and "notes.png: no picture of a kind that is read" in said["failures"][0]


def test_it_is_measured(alone, home, data, capsys):
    code, found = answer(capsys, "eval", "--run", "run", "--home", home)
    last = alone.events(kind="eval")[-1]
    assert code == 0 and found["model"]["loss"] == pytest.approx(last["loss"], rel=1e-5)
    assert found["model"]["top1"] == last["metrics"]["top1"] and found["rows"] == len(open_pictures(data, "eval"))
    assert [event["lines"] for event in alone.events(kind="samples")] == [found["mixed_up"]]


def test_it_is_exported_with_its_labels(home, capsys, tmp_path):
    words = ("--run", "run", "--home", home, "--out")
    code, done = answer(capsys, "export", "merged", *words, tmp_path / "out")
    assert code == 0 and {"model.safetensors", "config.json", "labels.json", "README.md"} <= done["files"].keys()
    assert json.loads((tmp_path / "out/labels.json").read_text()) == list(pictures.CLASSES)
    assert "| accuracy |" in (tmp_path / "out/README.md").read_text()
    code, done = answer(capsys, "export", "gguf", *words, tmp_path / "gguf")
    assert code == 2 and "a model of pictures cannot be written as gguf" in done["failures"][0]


def test_rows_of_another_kind_are_refused(settings, data, tmp_path):
    rows = cluster.make_rows(tmp_path / "rows")
    run = cluster.Cluster(tmp_path, {**settings, "dataset": rows})
    assert run.wait() == [2] and "these rows are of text, not of pictures" in run.said()
    run = cluster.Cluster(tmp_path, {"recipe": "sft", "model": "tiny", "dataset": data})
    assert run.wait() == [2] and "these rows are pictures" in run.said()
