"""A launch of recipe=images: which pictures there are, what the nodes are told, and what the plan says."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import plan_view
from tests.support.plans import ON_GPUS, files_of, gpu, handed_on, launch_facts
from train.errors import BadInput
from train.plan.launch.decide import Decided, decide
from train.plan.model.picture_facts import PictureFacts
from train.plan.settings import picture_sets, request
from train.plan.settings.read_settings import ImagesConfig, load_config

GPU = gpu("RTX 4090", 24)
SPEEDS = {"a": {"rows_per_s": 300.0, "fixed_s": 0.0}, "b": {"rows_per_s": 100.0, "fixed_s": 0.0}}


def decided(values: dict[str, Any], *looks: dict[str, Any], **more: Any) -> Decided:
    facts = launch_facts(looks, ON_GPUS, **more)
    return decide(request.read({"recipe": "images", **values}, Path("/nowhere"), required="model"), facts)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "my photos"
    for name in ("cat/a.jpg", "cat/deep/b.PNG", "dog/c.webp", "dog/.hidden.jpg", "dog/notes.txt", ".git/f.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def files_of_node(found: Decided) -> dict[str, str]:
    return files_of(handed_on(found, "my-photos-1"), "a")


def test_nothing_is_brought_but_the_pictures(photos):
    (photos / "bird").mkdir()
    found = decided({"dataset": str(photos)}, GPU, GPU)
    data = handed_on(found)
    passed_over = "no picture is in bird; no picture that is read: dog/notes.txt; convert pictures to .jpg"
    assert found.request.dataset.reason.endswith(f"; {passed_over}") and f"--passed-over={passed_over}" in data.prepare
    assert found.run == "resnet18-my-photos" and found.lacking == [] and found.model_bytes == 0
    assert data.dataset.files == ["cat/a.jpg", "cat/deep/b.PNG", "dog/c.webp"]
    assert data.raw == "/home/user/ai-cluster/data/raw/my-photos"
    assert "--dataset=/home/user/ai-cluster/data/raw/my-photos" in data.prepare


@pytest.mark.parametrize("command", ["prepare", "calibrate"])
def test_what_a_node_is_told_means_the_same_there(photos, command):
    (photos / "dog/notes.txt").unlink()  # or its name is told as well, which is no setting
    found = decided({"dataset": str(photos), "model": "vit-tiny", "image_size": 56}, GPU)
    told = [word.removeprefix("--").partition("=") for word in getattr(handed_on(found), command)[2:]]
    there = load_config({name.replace("-", "_"): value for name, _, value in told})
    for name in {"prepare": ("image_size", "eval_fraction"), "calibrate": ImagesConfig.COUNTED}[command]:
        assert getattr(there, name) == found.settings[name], name


def test_the_settings_that_are_written_down_are_read_again_as_they_are(photos):
    found = decided({"dataset": str(photos), "rows_per_step": 32}, GPU, GPU)
    written = files_of_node(found)
    settings = yaml.safe_load(written["config/training_config.yaml"])
    assert settings["model"] == "resnet18" and settings["optimizer"] == "sgd" and settings["learning_rate"] == 0.1
    assert settings["image_size"] == settings["max_seq_length"] == 128
    assert settings.get("epochs") is None, "nobody has set it: a run of few pictures may be longer"
    there = load_config(settings).scoped("math")
    assert there == {name: found.settings[name] for name in there}
    launched = json.loads(written[f"logs/runs/{found.run}/launch.json"])
    assert launched["model"] == {"name": "resnet18", "hub": None, "folder_name": ""}


def test_the_plan_is_in_the_words_of_pictures(photos):
    found = decided({"dataset": str(photos), "rows_per_step": 256, "max_steps": 100}, GPU, GPU, calibrated=SPEEDS)
    lines = plan_view.lines(found)
    text = "\n".join(lines)
    assert "from nothing, all 11.2 M weights · 256 pictures of 128 × 128 a step · 100 steps" in lines[0]
    assert "a new resnet18 of 11.2 M weights: 2 classes, pictures of 128 × 128" in text
    assert "rate      0.8: 0.4 at 128 rows a step, in proportion to the rows (linear rule, SGD); 10 steps" in text
    assert "all 11.2 M weights travel in each step" in text and "of a step of 256 pictures" in text
    assert "tokens" not in text and "lora" not in text


def test_a_trained_model_is_brought_and_fine_tuned(photos):
    values = {"dataset": str(photos), "model": "microsoft/resnet-50"}
    found = decided(values, GPU, GPU, files=lambda _: ({"model_type": "resnet"}, 102_000_000), calibrated=SPEEDS)
    text = "\n".join(plan_view.lines(found))
    assert found.lacking == ["a", "b"] and found.model_bytes == 102_000_000
    assert "all 23.5 M weights · 64 pictures of 224 × 224 a step · 3 epochs, 50 steps at least" in text
    assert "nothing" not in text
    assert "rate      5e-05: 0.0001 at 256 rows a step, with the root of the rows (AdamW); 100 steps" in text
    assert "steps     50 at least, where 3 times through the data is less: fewer teach little; set epochs" in text
    written = yaml.safe_load(files_of_node(found)["config/training_config.yaml"])
    assert written["model"] == "/home/user/ai-cluster/models/base/microsoft--resnet-50"
    there = load_config(written)
    assert there.is_base
    assert there.scoped("math") == {name: found.settings[name] for name in there.scoped("math")}
    assert "--model=models/base/microsoft--resnet-50" in handed_on(found).calibrate


def test_the_pictures_of_a_trained_transformer_have_its_size(photos):
    values = {"dataset": str(photos), "model": "google/vit-large-patch32-384"}
    config = {"model_type": "vit", "image_size": 384, "patch_size": 32}
    with pytest.raises(BadInput, match="takes pictures of 384 × 384, not of 224 × 224"):
        decided(values, GPU, files=lambda _: (config, 1))
    found = decided(values | {"image_size": 384}, GPU, files=lambda _: (config, 1))
    assert "--image-size=384" in handed_on(found).prepare


def test_a_model_too_large_for_a_node_is_refused(photos):
    small = gpu("GTX 1650", 4, "7.5")
    with pytest.raises(BadInput, match="b has too little memory for resnet50"):
        decided({"dataset": str(photos), "model": "resnet50", "image_size": 1024, "width": 256}, GPU, small)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": "resnet34"}, "a trained one is a hub id (owner/name) or a folder (./name)"),
        ({"model": "microsoft/resnet-50", "width": 16}, "width: a trained model has its own"),
        ({"model": "vit-tiny", "image_size": 75}, "nearest that can: image_size="),
        ({"max_seq_length": 512}, "pictures have none"),
        ({"gradient_checkpointing": "true"}, "is none of auto|false"),
        ({"optimizer": "lion"}, "is none of auto|sgd"),
        ({"sync": "local"}, "sync: local does not go with optimizer: sgd"),
    ],
)
def test_what_does_not_fit_is_named(photos, values, said):
    with pytest.raises(BadInput) as error:
        decided({"dataset": str(photos), **values}, GPU)
    assert said in str(error.value)


def test_the_learning_rate_follows_the_rows_of_a_step():
    def rate(**values):
        return load_config({"recipe": "images", "dataset": "x", **values}).learning_rate

    assert rate(rows_per_step=512) == pytest.approx(2 * rate(rows_per_step=256))
    vit = {"model": "vit-tiny"}
    assert rate(rows_per_step=1024, **vit) == pytest.approx(2 * rate(rows_per_step=256, **vit))
    given = load_config({"recipe": "images", "learning_rate": 0.3})
    assert "learning rate 0.3: as set" in given.rate_reason


def test_a_run_of_few_pictures_has_fifty_steps_and_says_why_unless_its_length_is_set():
    """Sixty pictures, ten times, are ten steps: none of them at its rate, were the warm-up a hundred."""

    def read(**values):
        return load_config({"recipe": "images", "dataset": "x", **values})

    plain, tuned, given = read(), read(model="microsoft/resnet-50"), read(epochs=10)
    assert [config.steps_over(60) for config in (plain, tuned, given)] == [50, 50, 10]
    assert [config.steps_over(64_000) for config in (plain, tuned, given)] == [10_000, 3_000, 10_000]
    assert plain.length_reasons(60) == [
        "50 steps, 53.3 times through the data: fewer teach little; set epochs or max_steps for another length",
        "warm-up of 5 steps, a tenth of 50: set warmup_steps for another",
    ]
    assert plain.rate_reason.endswith("; 100 steps of warm-up, or a tenth of a shorter run")
    assert read(max_steps=20).rate_reason.endswith("; 2 steps of warm-up")
    assert read(warmup_steps=7).rate_reason.endswith("; 7 steps of warm-up")


def test_a_class_for_each_folder_or_each_label_of_a_table(photos):
    assert picture_sets.classes_of(picture_sets.resolve(str(photos))) == ["cat", "dog"]
    table = photos / "list.csv"
    table.write_text("file,label\ncat/a.jpg,10\ndog/c.webp,9\n")
    data = picture_sets.resolve(str(table))
    assert picture_sets.classes_of(data) == ["9", "10"], "numbers as numbers"
    table.write_text("file;label\ncat/a.jpg;10\ndog/c.webp;9\n")
    assert picture_sets.classes_of(picture_sets.resolve(str(table))) == ["9", "10"]
    assert [str(file.relative_to(photos)) for file in data.files] == ["list.csv", "cat/a.jpg", "dog/c.webp"]
    found = decided({"dataset": str(table)}, GPU)
    assert "--dataset=/home/user/ai-cluster/data/raw/list/list.csv" in handed_on(found).prepare
    table = photos / "list.jsonl"
    table.write_text('{"file": "cat/a.jpg", "label": 0}\n{"file": "dog/c.webp", "label": 1}\n')
    assert picture_sets.classes_of(picture_sets.resolve(str(table))) == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("list.csv", "file,label\ncat/a.jpg,1\ncat/none.jpg,2\n", "1 pictures of 2 are not there"),
        ("list.csv", "picture,label\ncat/a.jpg,1\n", "columns: file and label"),
        ("list.csv", "file,label\n../a.jpg,1\n", "does not lie beside the table"),
        ("list.csv", "file,label\ncat/a.jpg,1\n", "fewer than two classes"),
        ("list.csv", f"file,label\ncat/a.jpg,{'x' * 200_000}\n", "the table cannot be read: field larger than"),
        ("list.jsonl", '["cat/a.jpg", "1"]\n', 'the table cannot be read: ["cat/a.jpg", "1"] is no JSON object'),
        ("list.jsonl", "{\n", "the table cannot be read: Expecting property name"),
    ],
)
def test_a_table_that_cannot_be_used_is_explained(photos, name, text, problem):
    (photos / name).write_text(text)
    with pytest.raises(BadInput) as error:
        picture_sets.resolve(str(photos / name))
    assert problem in str(error.value)


def touched(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


IN_PARTS = ("train/cat/a.jpg", "train/dog/b.jpg", "test/cat/c.jpg", "test/dog/d.jpg")


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("Training", "Testing"), ("training_set", "val")])
def test_folders_that_are_held_out_already_stay_so(tmp_path, train, test):
    touched(tmp_path, *(name.replace("train", train).replace("test", test) for name in IN_PARTS))
    found = {(one.label, one.split) for one in picture_sets.of_folder(tmp_path)}
    assert found == {("cat", "eval"), ("dog", "eval"), ("cat", "train"), ("dog", "train")}


def test_a_part_alone_is_held_out_by_lot_and_a_train_may_be_a_class(tmp_path):
    whole = picture_sets.of_folder(touched(tmp_path / "a", *IN_PARTS[:2]))
    assert {(one.label, one.split) for one in whole} == {("cat", ""), ("dog", "")}
    vehicles = picture_sets.of_folder(touched(tmp_path / "b", "train/a.jpg", "bus/b.jpg"))
    assert {one.label for one in vehicles} == {"train", "bus"}


def test_what_a_nas_or_a_system_leaves_is_no_class_and_no_picture(tmp_path):
    left = ("@eaDir/cat/a.jpg", "cat/@eaDir/a.jpg/THUMB_M.jpg", "__MACOSX/cat/a.jpg", "$RECYCLE.BIN/b.jpg")
    found = picture_sets.of_folder(touched(tmp_path, "cat/a.jpg", "dog/b.jpg", *left))
    assert [one.label for one in found] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("unlabelled/e.jpg", "beside test and train there is unlabelled\nfolder"),
        ("test/fox/e.jpg", "all pictures of fox are held out, and nothing teaches"),
    ],
)
def test_folders_that_say_nothing_to_learn_are_refused(tmp_path, more, said):
    with pytest.raises(BadInput, match=said):
        picture_sets.of_folder(touched(tmp_path, *IN_PARTS, more))


def test_a_package_that_is_missing_is_named_with_its_command(tmp_path):
    entry = {"package": "dataset-fashion-mnist", "folder": str(tmp_path / "none")}
    with pytest.raises(BadInput, match="sudo apt install dataset-fashion-mnist"):
        picture_sets.of_package("fashion-mnist", entry)
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b""))
    assert len(picture_sets.of_package("fashion-mnist", entry | {"folder": str(tmp_path)}).files) == 2


def test_pictures_are_no_data_for_text(photos):
    with pytest.raises(BadInput, match="the data set fashion-mnist is of pictures"):
        request.read({"model": "tiny", "dataset": "fashion-mnist"})
    with pytest.raises(BadInput, match="dataset: alpaca is text"):
        request.read({"recipe": "images", "dataset": "alpaca"})
    with pytest.raises(BadInput, match="holds no pictures in sub-folders"):
        request.read({"recipe": "images", "dataset": str(photos / "dog")})


def test_the_usual_sizes_are_what_their_papers_have():
    """ResNet's weights on 1000 classes: 11.69 M and 25.56 M; ViT-tiny's with patches of 16: 5.7 M."""

    def millions(model, width):
        return PictureFacts(family=model, width=width, image_size=224, classes=1000).parameters / 1e6

    assert millions("resnet18", 64) == pytest.approx(11.69, abs=0.01)
    assert millions("resnet50", 64) == pytest.approx(25.56, abs=0.01)
    assert millions("vit-tiny", 192) == pytest.approx(5.7, abs=0.03)
