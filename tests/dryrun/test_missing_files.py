"""Programs whose weights, checkpoints and data are not there: what is made up, and that it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import STEP, Ran, dry_run

pytest.importorskip("torch")

CHECKPOINT = """\
import torch
kept = torch.load("nothing/best.pt", map_location="cpu")
net.load_state_dict(kept["model"])
optimizer.load_state_dict(kept["optimizer"])
net.load_state_dict({name.replace("module.", ""): one for name, one in kept.get("ema").items()})
state = net.state_dict()
state["weight"] = kept["head"]
assert "bias" not in kept
net.load_state_dict(state)
for _ in range(kept["epoch"] + 1, 3): step()
"""
EXPECTED = """\
import numpy
try:
    torch.load("resume.pt")
    raise SystemExit(5)
except FileNotFoundError:
    pass
try:
    numpy.memmap("train.bin", dtype=numpy.uint16, mode="r")
    raise SystemExit(6)
except FileNotFoundError:
    pass
step(); step()
"""
TOKENS = """\
import numpy
tokens = numpy.memmap("train.bin", dtype=numpy.uint16, mode="r")
assert tokens.ndim == 1 and len(tokens) > 1 << 20 and tokens.dtype == numpy.uint16
assert numpy.fromfile("train.bin", numpy.int32).ndim == 1
kept = numpy.memmap("kept.bin", dtype=numpy.uint16, mode="w+", shape=(8,))
assert isinstance(kept, numpy.memmap) and kept.shape == (8,)
step(); step()
"""
DOWNLOADED = """\
import gzip, os, urllib.request
text = urllib.request.urlopen("https://example.org/input.txt").read().decode()
assert len(set(text)) == 96 and len(text) == 1 << 20
urllib.request.urlretrieve("https://example.org/train-labels-idx1-ubyte.gz", "labels.gz")
assert len(gzip.open("labels.gz").read()) == 8 + 60000
assert os.system("wget https://example.org/data.tar.gz") != 0
step(); step()
"""
PICTURES = """\
import glob, pathlib
from PIL import Image
assert len(glob.glob("data/train/*.png")) > 512 and len(list(pathlib.Path("data/test").glob("*"))) > 512
assert glob.glob("out/*.pt") == [] and list(pathlib.Path("runs").glob("exp*")) == []
first = glob.glob("data/train/*.png")[0]
picture = Image.open(first)
assert first.startswith("data/train/") and picture.mode == "RGB" and picture.size == (500, 400)
assert Image.open("data/masks/000000.png").mode == "L"
step(); step()
"""
LISTED = """\
import numpy, os
shards = sorted(name for name in os.listdir("shards") if "val" in name)
assert len(numpy.memmap(os.path.join("shards", shards[0]), dtype=numpy.uint16, mode="r")) > 1 << 20
try:
    os.listdir("old")
    raise SystemExit(7)
except FileNotFoundError:
    pass
step(); step()
"""
TEXT = """\
import pathlib
with open("data/input.txt", encoding="utf-8") as file:
    assert len(set(file.read())) == 96
assert len(pathlib.Path("other.txt").read_text()) == 1 << 20
step(); step()
"""
COLUMNS = """\
from datasets import load_dataset
data = load_dataset("nobody/pairs")["train"]
pairs = data.filter(lambda one: one["score"] < 2).map(lambda one: {"text": one["chosen"] + one["rejected"]}, num_proc=4)
assert {"score", "chosen", "rejected"} <= set(pairs.column_names)
assert isinstance(data[0]["answer"], str) and data["label"][:2] == [0, 1] and len(data["question"]) == len(data)
assert next(iter(data))["messages"][0]["role"] == "user"
step(); step()
"""
TABLES = """\
import csv, json
rows = [json.loads(line) for line in open("data/rows.jsonl")]
assert len(rows) == 256 and len(rows[0]["answer"].split()) > 500
row = next(csv.DictReader(open("data/rows.csv")))
assert row["label"] == "0" and row.get("image_file") == "000000.jpg" and len(row["answer"]) > 500
for name in ("rows.csv", "kept.json"):
    try:
        open(name)
        raise SystemExit(9)
    except FileNotFoundError:
        pass
step(); step()
"""
FRAMES = """\
import pandas
frame = pandas.read_csv("rows.csv")
column = "score"
assert len(frame) == 4096 and set(frame[["text", "label"]].columns) == {"text", "label"}
assert list(frame.dropna()[column])[:2] == [0, 1]
places = pandas.read_csv("places.csv", header=None)
assert places.shape == (4096, 9) and set(places.iloc[:, 7]) == {places.iloc[0, 7]} | set(places.iloc[:, 7])
step(); step()
"""
ROWS_ASKED = """\
from datasets import load_dataset
data = load_dataset("nobody/pairs", "triplet", split="train").select(range(3000))
assert len(data) == 3000 and data.column_names == ["anchor", "positive", "negative"]
assert len(load_dataset("csv", data_files={"fit": "nothing.csv"})["fit"]) == 512
assert len(data.train_test_split(test_size=0.1, seed=1)["test"]) == 300
step(); step()
"""
ENCODING = """\
import sys, types
core = types.SimpleNamespace(Encoding=lambda name, **more: types.SimpleNamespace(name=name, **more))
import tiktoken
tiktoken.core = core
found = tiktoken.get_encoding("gpt2")
assert found.special_tokens["<|endoftext|>"] == 50256 and len(found.mergeable_ranks) == 256
try:
    tiktoken.get_encoding("nobody's")
    raise SystemExit(8)
except OSError:
    pass
step(); step()
"""
BOXES = """\
import json, os, xml.etree.ElementTree as ET
class Boxes:
    def __init__(self):
        self.classes = ["__background__", "smoke", "fire"]
        self.root = ET.parse("data/annotations/000001.xml").getroot()
found = Boxes().root.findall("object")
assert len(found) == 8 and {one.find("name").text for one in found} == {"fire"}
assert all(float(one.find("bndbox").find("xmin").text) < float(one.find("bndbox").find("xmax").text) for one in found)
kept = json.load(open("data/instances.json"))
boxes = {one["id"]: [box for box in kept["annotations"] if box["image_id"] == one["id"]] for one in kept["images"][:2]}
assert all(len(one) == 8 for one in boxes.values())
step(); step()
"""
RECORDS = """\
import json
rows = json.load(open("data/alpaca.json"))
assert len(rows["train"]) == len(rows) == 256 and isinstance(rows[0]["instruction"], str)
assert all(isinstance(one["output"], str) for one in rows[:2])
for name in ("config.json", "label_map.json"):
    try:
        open(name)
        raise SystemExit(9)
    except FileNotFoundError:
        pass
step(); step()
"""
REQUIRED = """\
import os
from pathlib import Path
if not os.path.exists("data/train"):
    raise FileNotFoundError("get the data")
assert os.path.isdir("data/train"), "get the data"
if not Path("data/val").is_dir() or False:
    raise SystemExit("get the data")
if not os.path.exists("out"):
    os.makedirs("out")
names = [one for one in os.listdir("data/train") if os.path.isfile(os.path.join("data/train", one))]
assert len(names) == 768 and not os.path.exists("data/train/other.bin") and os.listdir("out") == []
step(); step()
"""
KEPT_FOLDER = """\
import os
os.makedirs("imgs")
open("imgs/.gitkeep", "w").close()
assert len(os.listdir("imgs")) == 768 and all(one.endswith(".png") for one in os.listdir("imgs"))
step(); step()
"""
PACKED = """\
import gzip
with gzip.open("data/enwik8.gz") as file:
    assert len(file.read(1 << 21)) == 1 << 21
try:
    gzip.open("data/rows.json.gz")
    raise SystemExit(9)
except FileNotFoundError:
    pass
step(); step()
"""
PAIRS = """\
pairs = [line.split("\\t") for line in open("fra.txt").read().splitlines()]
assert len(pairs) > 64 and all(len(one) == 2 for one in pairs)
step(); step()
"""
ON_GPU = """\
import torch
kept = torch.load("nothing/best.pt")
net.load_state_dict(kept["model"])
step(); step()
"""
PARTS = """\
import pandas, pathlib
frame = pandas.read_csv("pretrain.csv")
names = frame.filter(regex="X_*").columns
assert len(names) == 8 and frame[names].values.dtype == float and len(frame) == 4096
assert len(list(pathlib.Path("pictures").iterdir())) == 768
def rows(folder):
    import os
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            yield pandas.read_csv(file, usecols=["sequence", "family"])
found = pandas.concat(rows("shards"))
assert len(found) == 12 * 256 and len(found["sequence"].iloc[0]) > 2000
step(); step()
"""
SOUNDS = """\
from datasets import load_dataset
voices = load_dataset("nobody/voices", split="train").remove_columns(["accent"]).cast_column("audio", None)
row = next(iter(voices))
assert row["audio"]["array"].shape == (160000,) and row["audio"]["sampling_rate"] == 16000
assert {one["fold"] for one in voices} == set(range(1, 11))
step(); step()
"""
CASES = {
    "columns and folders": (
        PARTS,
        [
            "the table pretrain.csv is made up: 4096 rows",
            "pretrain.csv",
            "8 columns X_... are made up",
            "the folder pictures is not there: 768",
            "the folder shards is not there: 12 made-up",
            "the tables of shards are made up: 4096 rows",
            "shards",
            "shards",
        ],
    ),
    "sounds": (SOUNDS, ["the data set nobody/voices is made up: 600 words a text, 10 s a sound"]),
    "pictures": (
        PICTURES,
        [
            "the folder data/train is not there: 1024 made-up names",
            "the folder data/test is not there",
            "the pictures of data/train are made up: 500 x 400",
            "the pictures of data/masks are made up",
        ],
    ),
    "a listed folder": (LISTED, ["the folder shards is not there", "val_000000.jpg is not there: numpy.memmap has"]),
    "a text": (TEXT, ["the text data/input.txt is made up: 1048576 bytes", "the text other.txt is made up"]),
    "columns": (COLUMNS, ["the data set nobody/pairs is made up"]),
    "tables": (TABLES, ["data/rows.jsonl is made up", "rows.jsonl", "the table data/rows.csv is made up", "rows.csv"]),
    "boxes": (
        BOXES,
        ["the annotations in data/annotations are made up: 8 boxes", "the annotations in data are made up: 8 boxes"],
    ),
    "records": (RECORDS, ["the records of data/alpaca.json are made up: 256", "the texts of data/alpaca.json"]),
    "what is required": (
        REQUIRED,
        ["data/train is not there, and the program needs it", "data/val is not there", "the folder data/train is not"],
    ),
    "a folder without data": (KEPT_FOLDER, ["the folder imgs holds no data: 768 made-up names"]),
    "a packed text": (PACKED, ["the text data/enwik8.gz is made up: as many bytes as are read"]),
    "a text of pairs": (PAIRS, ["the text fra.txt is made up"]),
    "a table of pandas": (
        FRAMES,
        ["the table rows.csv is made up: 4096 rows", "the texts of rows.csv", "places.csv is made up", "places.csv"],
    ),
    "rows that are asked for": (ROWS_ASKED, ["the data set nobody/pairs triplet is made up", "the data set csv is"]),
    "an encoding": (ENCODING, ["tiktoken's gpt2 is made up"]),
    "a checkpoint": (CHECKPOINT, ["the checkpoint nothing/best.pt is not there: the model keeps"]),
    "a checkpoint on the GPU": (ON_GPU, ["the checkpoint nothing/best.pt is not there", "(map_location)"]),
    "files that may be missing": (EXPECTED, []),
    "tokens": (TOKENS, ["train.bin is not there: numpy.memmap has", "train.bin is not there: numpy.fromfile has"]),
    "downloads": (
        DOWNLOADED,
        ["the text https://example.org/input.txt is made up", "labels-idx1-ubyte.gz is made up, with as many"],
    ),
}
OF_TABLES = ("tables", "a table of pandas", "columns and folders")
NEEDED = {
    "columns": "datasets",
    "rows that are asked for": "datasets",
    "a table of pandas": "pandas",
    "columns and folders": "pandas",
    "sounds": "datasets",
}


def ran(tmp_path: Path, program: str) -> Ran:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "tiktoken.py").write_text("def get_encoding(name):\n    raise OSError(name)\n")
    return dry_run(tmp_path, "--gpu", "RTX 4090", "--output-format", "json", "--", "python", "train.py")


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_is_made_up_is_said(tmp_path: Path, kind: str) -> None:
    if kind in NEEDED:
        pytest.importorskip(NEEDED[kind])
    program, said = CASES[kind]
    found = ran(tmp_path, STEP + program)
    assert found.status == 0, found.err
    assert (found.data["dry_run"]["end"], found.data["dry_run"]["steps"]) == ("ended", [2])
    words = ("not there", "holds no data", "made up", "map_location", "longer than")
    stated = [one for one in found.data["dry_run"]["assumptions"] if any(word in one for word in words)]
    assert len(stated) == len(said)
    for one, words in zip(stated, said, strict=True):
        assert words in one
    decided = {one["field"] for one in found.data["assumptions"]}
    lengths = (
        "records",
        "tokens",
        "a listed folder",
        "columns",
        "an encoding",
        "rows that are asked for",
        "sounds",
        *OF_TABLES,
    )
    configured = (
        "records",
        "what is required",
        "a packed text",
        "a text of pairs",
        "downloads",
        "a text",
        "pictures",
        "a listed folder",
        *OF_TABLES,
    )
    assert ("train.seq_len" in decided, "model.config" in decided) == (kind in lengths, kind in configured)
    assert ("train.image_size" in decided) == (kind in ("pictures", "boxes"))
    assert ("train.resumes" in decided) == (kind == "a checkpoint on the GPU")
    assert found.data["verdict"] == ("fits-if" if decided else "fits")


@pytest.mark.slow
@pytest.mark.parametrize("release", ["4.44.2", "4.56.0", "5.23.0"])
def test_the_dtype_is_given_by_the_name_of_the_release(tmp_path: Path, release: str) -> None:
    """A constructor of transformers before 4.56 takes `torch_dtype` out of its arguments, and refuses `dtype`."""
    pytest.importorskip("transformers")
    word = "torch_dtype" if release < "4.56" else "dtype"
    program = (
        "import sys\nfrom transformers import GPT2LMHeadModel\n"
        f"sys.modules['transformers'].__version__ = {release!r}\n"
        "make = GPT2LMHeadModel._from_config\n"
        "def made(config, **more):\n"
        f"    assert {word!r} in more\n    return make(config, dtype=more[{word!r}])\n"
        "GPT2LMHeadModel._from_config = made\n"
        "GPT2LMHeadModel.from_pretrained('gpt2', torch_dtype='float32')\nstep(); step()\n"
    )
    found = ran(tmp_path, STEP + program)
    assert found.status == 0, found.err
