"""Data that are made up otherwise after an error: parts that are empty, channels of pictures, classes; and folders that
are made, texts of any name, and errors that a program handles."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from programs import STEP, Ran, dry_run
from test_tried_arrays import guesses

pytest.importorskip("torch")

FACES = """\
import os, random, torch
from PIL import Image
names = sorted(os.listdir("faces"))
held = names[: int(len(names) * 0.001)]
class Faces(torch.utils.data.Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, number):
        picture = Image.open(os.path.join("faces", self.names[number]))
        channels = len(picture.getbands())
        return torch.zeros(channels, *picture.size)
loaders = [torch.utils.data.DataLoader(Faces(one), batch_size=2, shuffle=True) for one in (names, held)]
net = torch.nn.Conv2d(1, 4, 3, stride=8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loaders[0]:
    optimizer.zero_grad()
    net(x.cuda()).sum().backward()
    optimizer.step()
"""
WRITES = """\
import os
from pathlib import Path
open("out/today/log.txt", "w").write("begun")
os.mkdir("kept/best")
Path("new/deep").mkdir()
assert open("out/today/log.txt").read() == "begun" and os.path.isdir("kept/best") and os.path.isdir("new/deep")
def main():
    with open("corpus/train.en.tok") as file:
        assert len(file.read().splitlines()) > 1000
    try:
        open(".secret")
        raise SystemExit(4)
    except FileNotFoundError:
        pass
    step(); step()
if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print("failed", error)
"""
ENDS = """\
import traceback
try:
    {}["size"]
except KeyError:
    traceback.print_exc()
"""
IN_THREAD = """\
import threading
one = threading.Thread(target=lambda: {}["size"])
one.start()
one.join()
"""


def ran(folder: Path, program: str) -> Ran:
    (folder / "train.py").write_text(program)
    return dry_run(folder, "--gpu", "RTX 4090", "--output-format", "json", "--", "python", "train.py")


@pytest.mark.slow
def test_what_an_error_tells_of_made_up_pictures(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    found = ran(tmp_path, FACES)
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"][0] >= 2
    assert any("12288 made-up names" in one for one in found.data["dry_run"]["assumptions"])


@pytest.mark.slow
def test_folders_that_are_written_into_are_made_and_said(tmp_path: Path) -> None:
    found = ran(tmp_path, STEP + WRITES)
    assert found.status == 0, found.err
    said = found.data["dry_run"]["assumptions"]
    made = [one for one in said if "it was made" in one]
    assert [one.split()[2] for one in made] == ["out/today", "kept", "new"]
    assert any("the text corpus/train.en.tok is made up" in one for one in said)
    assert {one.name for one in tmp_path.iterdir()} == {"train.py"}


@pytest.mark.slow
@pytest.mark.parametrize("program", [ENDS, IN_THREAD])
def test_an_error_that_the_program_handles_before_its_end_is_named(tmp_path: Path, program: str) -> None:
    found = ran(tmp_path, STEP + program)
    assert found.status == 2
    assert "KeyError: 'size' (the program went on after this error, and ended) at" in found.error


@pytest.mark.parametrize(
    ("folder", "size"),
    [
        ("/data/hr/faces", (512, 512)),
        ("/data/lr-256/faces", (256, 256)),
        ("sets/512_patches", (512, 512)),
        ("sets/2016_summer", None),
        ("sets/train", None),
    ],
)
def test_sizes_of_pictures_that_are_stated(
    monkeypatch: pytest.MonkeyPatch, folder: str, size: tuple[int, int] | None
) -> None:
    guesses()  # loads the package
    vision = importlib.import_module("inside_of_test.stand_ins.vision")
    monkeypatch.setattr(sys, "argv", ["train.py", "--hr_path", "/data/hr/", "--hr_size", "512", "--lr_size=256"])
    assert vision.size_stated(folder) == size


def test_classes_follow_the_one_that_was_missed() -> None:
    x = [[300], [True], "int64", 0]
    found = guesses(x=x)
    assert found.learnt(KeyError(1), None) is None  # there are two from the beginning
    assert found.learnt(KeyError(7), None)[""][1] == 10
    assert found.learnt(KeyError("name"), None) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Labels' sequence length 605 cannot exceed the maximum allowed length of 448 tokens.", 440),
        ("The size of tensor a (602) must match the size of tensor b (512) at non-singleton dimension 1", 504),
        ("The expanded size of the tensor (602) must match the existing size (512) at dimension 1.", 504),
        ("The size of tensor a (602) must match the size of tensor b (768) at non-singleton dimension 1", None),
        ("The size of tensor a (64) must match the size of tensor b (32) at non-singleton dimension 1", None),
    ],
)
def test_texts_are_no_longer_than_a_table_of_positions(error: str, words: int | None) -> None:
    from preflight.dryrun.inside.stand_ins import made_texts

    assert made_texts.shorter(error) == words
    assert made_texts.talk("rows") is None
    assert [len(one["content"].split()) for one in made_texts.talk("messages") or ()] == [made_texts.WORDS] * 2
