"""Python scripts that start programs: which are left alone, and which launches they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.dialects import recognise
from preflight.study import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Unknown, Value, evaluate

TRAIN = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=1)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=parser.parse_args().bs)).train()
"""
HEAD = "import os, subprocess, sys\n"


def project(root: Path, text: str, name: str = "launch.py") -> Project:
    (root / name).parent.mkdir(exist_ok=True)
    (root / "train.py").write_text(TRAIN)
    (root / name).write_text(HEAD + text)
    return Project(root, Settings())


def field(study: Study, name: str) -> Value:
    bound = study.boxes[0].fields.get(name)
    value = None if bound is None else evaluate(bound.expr)
    return None if isinstance(value, Unknown) else value


@pytest.mark.parametrize(
    "text",
    [
        'subprocess.run(["nvidia-smi"])',
        'subprocess.run(["git", "add", "train.py"])',
        'os.system("cp train.py copy.py")',
        'subprocess.run(["python", "other.py"])',
        'def never():\n    subprocess.run(["python", "train.py"])',
        'print("subprocess: python train.py")',
        "subprocess.run(command)  # python train.py",
    ],
)
def test_what_starts_no_training(text: str, tmp_path: Path) -> None:
    found = project(tmp_path, text)
    assert recognise(found.source("launch.py"), found) is None


@pytest.mark.parametrize("name", ["test_launch.py", "tests/launch.py", "setup.py"])
def test_programs_that_tests_try_out(name: str, tmp_path: Path) -> None:
    found = project(tmp_path, 'subprocess.run(["python", "train.py"])', name)
    assert recognise(found.source(name), found) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('subprocess.run(["python", "train.py", "--bs", "4"])', [4]),
        ('subprocess.check_call([sys.executable, "-u", "train.py", "--bs=4"])', [4]),
        ('subprocess.Popen("python train.py --bs 4", shell=True)', [4]),
        ('os.system("CUDA_VISIBLE_DEVICES=0 nohup python train.py --bs 4 > log 2>&1 &")', [4]),
        ('for bs in [4, 8]:\n    subprocess.run(["python", "train.py", "--bs", str(bs)])', [4, 8]),
        ('for bs in (4, 8):\n    os.system(f"python train.py --bs {bs}")', [4, 8]),
        ('cmd = ["python", "train.py"]\ncmd += ["--bs", "4"]\nsubprocess.run(cmd)', [4]),
        ('def main():\n    os.system("python train.py --bs 4")\nif __name__ == "__main__":\n    main()', [4]),
        ("for b in 4, 8:\n    os.system(f\"sbatch --wrap='python train.py --bs {b}'\")", [4, 8]),
        ('import argparse\np = argparse.ArgumentParser()\np.add_argument("--n", type=int, default=4)\n'
         'os.system(f"python train.py --bs {p.parse_args().n}")', [4]),
        # what is not known
        ('subprocess.run(["python", "train.py", "--bs", os.environ["BS"]])', [None]),
        ('subprocess.run(["python", "train.py", *sys.argv[1:]])', [None]),
        ('os.system("python train.py --bs " + input())', [None]),
    ],
)  # fmt: skip
def test_launches(text: str, expected: list[Value], tmp_path: Path) -> None:
    studies, _ = build.build(["launch.py"], project(tmp_path, text))
    assert [field(one, "train.batch_size") for one in studies] == expected


def test_processes_and_requests(tmp_path: Path) -> None:
    text = (
        'subprocess.run(["torchrun", "--nproc_per_node", "4", "train.py"])\n'
        "os.system(\"sbatch --mem=4G --gres=gpu:2 --wrap 'python train.py --bs 4'\")"
    )
    first, second = build.build(["launch.py"], project(tmp_path, text))[0]
    assert field(first, "parallel.ranks_per_node") == 4
    assert second.request is not None
    assert (second.request.memory, second.request.gpus_per_node) == (4 * 2**30, 2)


def test_a_value_has_its_place(tmp_path: Path) -> None:
    text = 'for bs in [4, 8]:\n    subprocess.run(["python", "train.py", "--bs", str(bs)])'
    studies, _ = build.build(["launch.py"], project(tmp_path, text))
    places = [one.boxes[0].fields["train.batch_size"].expr.origin for one in studies]
    written = (tmp_path / "launch.py").read_text()
    assert [written[one.span.start : one.span.end] for one in places if one is not None] == ["4", "8"]
