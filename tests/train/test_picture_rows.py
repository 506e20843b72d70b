"""Pictures become rows: what is held out, what is broken, which forms of data there are."""

import gzip
import json
import re
import shutil
import struct

import numpy as np
import pytest
from PIL import Image

from tests.support.stand_ins import program
from tests.train import pictures
from train.__main__ import main
from train.data import left_out_in_words, parse_files
from train.errors import BadInput
from train.plan.settings.read_settings import load_config
from train.recipes.images import prepare as picture_data
from train.recipes.images.prepare import prepare
from train.recipes.images.rows import open_pictures


@pytest.fixture
def photos(tmp_path):
    return pictures.write(tmp_path / "photos")


def made(dataset, out, say=lambda _: None, **values):
    asked = {"recipe": "images", "image_size": 16, "eval_fraction": 0.2, "dataset": str(dataset), **values}
    return prepare(load_config(asked), say, out=str(out))


def index_of(folder):
    return json.loads((folder / "index.json").read_text())


def contents(folder, split="train"):
    return {picture.tobytes() for picture in open_pictures(folder, split).pictures}


def test_the_same_pictures_give_the_same_bytes(photos, tmp_path):
    first, again = made(photos, tmp_path / "a"), made(photos, tmp_path / "b")
    for file in ("index.json", "train/pictures.bin", "eval/labels.bin"):
        assert (first / file).read_bytes() == (again / file).read_bytes()
    said = []
    made(photos, tmp_path / "a", said.append)
    assert said[-1].endswith("(was there already)")


def test_every_picture_is_there_once_with_its_class(tmp_path):
    photos = pictures.write(tmp_path / "photos", edge=16)
    folder = made(photos, tmp_path / "rows")
    truth = {
        np.asarray(Image.open(file)).transpose(2, 0, 1).tobytes(): file.parent.name for file in photos.rglob("*.png")
    }
    names, found = index_of(folder)["classes"], {}
    for split in ("train", "eval"):
        rows = open_pictures(folder, split)
        found |= {p.tobytes(): names[label] for p, label in zip(rows.pictures, rows.labels, strict=True)}
        rows.verify()
    assert found == truth and names == list(pictures.CLASSES)


def test_a_picture_stays_on_its_side_when_others_come_and_so_do_its_copies(photos, tmp_path):
    before = contents(made(photos, tmp_path / "a"), "eval")
    for file in list(photos.rglob("1*.png")):
        file.with_name(f"copy-{file.name}").write_bytes(file.read_bytes())
    pictures.write(tmp_path / "more", count=5, seed=7)
    for file in (tmp_path / "more").rglob("*.png"):
        file.rename(photos / file.parent.name / f"new-{file.name}")
    folder = made(photos, tmp_path / "b")
    assert before <= contents(folder, "eval")
    assert not contents(folder, "eval") & contents(folder, "train")


def test_what_was_held_out_and_is_called_train_now_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_HOME", str(tmp_path / "home"))
    config = load_config({"recipe": "images", "image_size": 16, "dataset": str(tmp_path / "photos")})
    train, val = (pictures.write(tmp_path / "photos" / name, 4, seed=seed) for name, seed in (("train", 1), ("val", 2)))
    first = contents(prepare(config, lambda _: None), "eval")
    train.rename(tmp_path / "photos" / "test")
    val.rename(train)
    assert contents(prepare(config, lambda _: None)) == first


@pytest.mark.parametrize("count", [1, 2])
def test_of_each_class_a_picture_is_trained_on(tmp_path, count):
    folder = made(pictures.write(tmp_path / "photos", count=count), tmp_path / "rows", eval_fraction=0.999)
    assert set(open_pictures(folder).labels) == {0, 1, 2}
    assert len(open_pictures(folder, "eval")) == 3 * (count - 1)


def test_a_class_whose_pictures_are_all_cut_short_is_named(photos, tmp_path):
    whole = (photos / "bars/0.png").read_bytes()
    (photos / "fox").mkdir()
    (photos / "fox/a.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="no picture of fox is left to train on"):
        made(photos, tmp_path / "rows")


def test_the_first_held_out_pictures_are_of_all_classes(tmp_path):
    folder = made(pictures.write(tmp_path / "photos", count=40), tmp_path / "rows", eval_fraction=0.5)
    assert set(open_pictures(folder, "eval").labels[:20]) == {0, 1, 2}


def test_a_broken_picture_is_named(tmp_path):
    photos = pictures.write(tmp_path / "photos", suffix="jpg")
    whole = (photos / "dots/3.jpg").read_bytes()
    (photos / "dots/3.jpg").write_bytes(whole[:-100])
    for number in range(4, 9):
        (photos / f"bars/{number}.jpg").write_text("no picture")
    with pytest.raises(BadInput, match=r"broken pictures of 60; the first: .*bars/4.jpg: no picture of a kind"):
        made(photos, tmp_path / "rows")
    said = []
    for number in (4, 5):
        (photos / f"bars/{number}.jpg").write_bytes(whole)
    folder = made(photos, tmp_path / "rows", said.append)
    assert index_of(folder)["records"]["bad"] == 4
    assert any("skipped   dots/3.jpg: image file is truncated" in line for line in said)
    assert sum(index_of(folder)["splits"][split]["rows"] for split in ("train", "eval")) == 56


def test_a_picture_is_of_a_kind_that_is_read_whatever_it_is_called(photos, tmp_path, monkeypatch):
    """Pillow gives PostScript to Ghostscript, which has been escaped before."""
    program(tmp_path / "gs", f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for format_ in ("EPS", "ICNS", "PPM"):
        Image.new("RGB", (16, 16)).save(photos / f"dots/{format_}.png", format=format_)
    said = []
    made(photos, tmp_path / "rows", said.append)
    assert sum("png: no picture of a kind that is read" in line for line in said) == 3
    assert not (tmp_path / "asked").exists()


def test_pictures_of_16_bit_keep_what_they_show(photos, tmp_path):
    """X-rays, depth, microscopy: Pillow's own conversion makes them white."""
    deep = shutil.copytree(photos, tmp_path / "deep")
    for file in photos.rglob("*.png"):
        grey = np.asarray(Image.open(file).convert("L"))
        Image.fromarray(grey).save(file)
        Image.fromarray(grey.astype(np.uint16) * 257).save(deep / file.relative_to(photos))
    rows = [made(folder, tmp_path / f"{folder.name}-rows", eval_fraction=0) for folder in (deep, photos)]
    assert contents(rows[0]) == contents(rows[1])
    Image.fromarray(np.ones((9, 9), np.float32)).save(deep / "dots" / "depth.tif")
    said = []
    made(deep, tmp_path / "more", said.append)
    assert "skipped   dots/depth.tif: its pixels are 32-bit numbers: save it with 8 or 16 bit" in said


def test_what_is_no_picture_that_is_read_is_named(photos, tmp_path):
    (photos / "dots" / "cat.heic").touch()
    (photos / "beside.txt").touch()
    (photos / "empty" / "deeper").mkdir(parents=True)
    said = []
    rows = made(photos, tmp_path / "rows", said.append)
    words = "no picture is in empty, empty/deeper; no picture that is read: beside.txt, dots/cat.heic; convert"
    assert f"60 pictures in 3 classes; {words} pictures to .jpg" in said[0]
    lost = left_out_in_words.words(json.loads((rows / "index.json").read_text()))
    assert lost == [f"data: {words} pictures to .jpg"], "so the event log, the report and the card say it"
    shutil.rmtree(photos / "empty")
    for name in ("dots/cat.heic", "beside.txt"):
        (photos / name).unlink()
    assert made(photos, tmp_path / "rows") == rows and left_out_in_words.words_at(rows / "train") == []
    for file in photos.rglob("*.png"):
        file.unlink()
    (photos / "dots" / "cat.heic").touch()
    with pytest.raises(BadInput, match=r"no pictures in sub-folders.*dots/cat\.heic"):
        made(photos, tmp_path / "none")


def test_the_head_is_told_what_was_never_brought_to_it(photos, tmp_path, capsys):
    words = ["prepare", "--recipe", "images", "--dataset", str(photos), "--out", str(tmp_path / "rows"), "--json"]
    assert main([*words, "--image-size", "16", "--passed-over", "no picture is in empty"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == ["data: no picture is in empty"]
    assert left_out_in_words.words_at(tmp_path / "rows/train") == ["data: no picture is in empty"]


def test_grey_pictures_take_a_third(photos, tmp_path):
    for file in photos.rglob("*.png"):
        Image.open(file).convert("L").save(file)
    assert open_pictures(made(photos, tmp_path / "grey")).pictures.shape[1] == 1
    Image.new("RGB", (9, 30), "red").save(photos / "dots" / "red.png")
    assert open_pictures(made(photos, tmp_path / "colour")).pictures.shape[1:] == (3, 16, 16)


def test_turned_photos_are_turned_back_and_cut_around_their_middle(photos, tmp_path):
    wide = Image.new("RGB", (48, 16), "red")
    wide.paste("blue", (16, 0, 32, 16))
    turned, exif = wide.rotate(-90, expand=True), Image.Exif()
    exif[0x0112] = 8
    turned.save(photos / "dots" / "turned.png", exif=exif)
    rows = open_pictures(made(photos, tmp_path / "rows", eval_fraction=0))
    blue = np.array([0, 0, 255], dtype=np.uint8)
    assert any((picture == blue[:, None, None]).all() for picture in rows.pictures)


def test_mnists_files_are_read_with_their_test_part_held_out(tmp_path):
    folder, random = tmp_path / "digits", np.random.default_rng(2)
    folder.mkdir()
    truth = {}
    for part, count in (("train", 30), ("t10k", 12)):
        pixels, labels = random.integers(0, 256, (count, 16, 16), dtype="u1"), random.integers(0, 10, count, dtype="u1")
        head = struct.pack(">4I", 0x803, count, 16, 16), struct.pack(">2I", 0x801, count)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head[0] + pixels.tobytes()))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head[1] + labels.tobytes()))
        truth[part] = (pixels, labels)
    rows = made(folder, tmp_path / "rows")
    train = open_pictures(rows)
    assert np.array_equal(train.pictures[:, 0], truth["train"][0]) and np.array_equal(train.labels, truth["train"][1])
    assert contents(rows, "eval") == {picture.tobytes() for picture in truth["t10k"][0]}
    assert index_of(rows)["classes"] == [str(digit) for digit in range(10)]


@pytest.mark.parametrize(
    ("pictures_head", "labels_told", "labels", "said"),
    [
        ((0x803, 90, 16, 16), 30, range(30), "train-images-idx3-ubyte.gz holds 30 pictures, and tells of 90"),
        ((0x803, 30, 0, 16), 30, range(30), "train-images-idx3-ubyte.gz is not of MNIST's format"),
        ((0x803, 30, 16, 16), 30, range(20), "train-labels-idx1-ubyte.gz holds 20 labels, and tells of 30"),
        ((0x803, 30, 16, 16), 20, range(20), "30 pictures, and 20 labels"),
        ((0x803, 30, 16, 16), 30, range(7, 37), "label 36, and there are 10 classes"),
        ((0x803,), 30, range(30), "train-images-idx3-ubyte.gz is not of MNIST's format"),
        ((0x803, 2**31, 16, 16), 30, range(30), "tells of 550 GB, held in memory as a whole"),
        (None, 30, range(30), "train-images-idx3-ubyte.gz is not of MNIST's format"),
    ],
)
def test_mnists_files_that_do_not_hold_what_they_tell_are_named(pictures_head, labels_told, labels, said, tmp_path):
    folder, pixels = tmp_path / "digits", bytes(30 * 16 * 16)
    folder.mkdir()
    labels = bytes(label % 10 if max(labels) < 30 else label for label in labels)
    head = struct.pack(f">{len(pictures_head)}I", *pictures_head) if pictures_head else b""
    file = gzip.compress(head + (pixels if len(head) == 16 else b"")) if pictures_head else b"<html>"
    (folder / "train-images-idx3-ubyte.gz").write_bytes(file)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">2I", 0x801, labels_told) + labels))
    with pytest.raises(BadInput, match=re.escape(said)):
        made(folder, tmp_path / "rows")


def test_a_class_of_which_no_picture_can_be_read_is_named(photos, tmp_path):
    (photos / "void").mkdir()
    (photos / "void" / "a.png").write_bytes(b"broken")
    with pytest.raises(BadInput, match="no picture of void can be read"):
        made(photos, tmp_path / "rows")


def test_what_is_too_large_for_a_picture_is_passed_over(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(parse_files, "LONGEST_RECORD", 1 << 20)
    (photos / "dots" / "film.png").write_bytes(bytes(2 << 20))
    monkeypatch.setattr(picture_data, "MOST_PIXELS", 100_000)
    Image.new("L", (400, 300)).save(photos / "dots" / "sky.png")
    assert index_of(made(photos, tmp_path / "rows"))["records"]["first_bad"] == [
        "dots/film.png: longer than 1 MB",
        "dots/sky.png: 400 × 300 pixels are more than 0 million",
    ]


def test_damaged_rows_are_noticed(photos, tmp_path):
    folder = made(photos, tmp_path / "rows")
    file = folder / "train" / "pictures.bin"
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with pytest.raises(BadInput, match="are damaged"):
        open_pictures(folder).verify()
    file.write_bytes(data[:-1])
    with pytest.raises(BadInput, match="are cut short"):
        open_pictures(folder)
