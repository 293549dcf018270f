"""How fields are known: what does not hold, and what does."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.files import batches
from preflight.engine.standings import by_hand, union
from preflight.study import launchers
from preflight.vocabulary.budgets import Budget
from preflight.vocabulary.job import build, identity
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.tracing import SHIPPED_ONLY

TRAINER = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=4), train_dataset=rows).train()
"""
LOOP = """\
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.batch_size):
    model(**batch).loss.backward()
    optimizer.step()
"""
OWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), num_layers=3)
        self.classifier = nn.Linear(64, 2)
    def forward(self, x):
        return self.classifier(self.encoder(self.embedding(x)))
model = Classifier().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
"""
SWEEP = "program: gone.py\nmethod: grid\nparameters:\n  batch_size: {values: [2, 4]}\n"
RUN = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py"


def standing(root: Path, path: str, field: str, trust: tuple[str, ...] = ()) -> Standing | None:
    [batch] = batches([path], root, from_hook=False)
    [found] = analyse(*setup(batch, CheckOptions(gpu="T4", trust=trust), root, rules=False)).studies
    return found.standings.get(field)


@pytest.mark.parametrize(
    ("files", "field"),
    [
        # releases differ, and none is stated
        ({"train.py": TRAINER}, "train.optimizer_impl"),
        # transformers 5 loads the weights as they were saved
        ({"train.py": LOOP.replace("gpt2", "facebook/opt-125m")}, "train.precision"),
        # arguments of the trainer come from a mapping that nobody read
        (
            {"train.py": TRAINER.replace("batch_size=4", "batch_size=4, **extra")},
            "train.gradient_checkpointing",
        ),
        # nobody shows the launch, or it takes its settings from a file that nobody read
        ({"train.py": TRAINER}, "parallel.strategy"),
        ({"job.sh": RUN.replace("python", "accelerate launch"), "train.py": TRAINER}, "parallel.strategy"),
        # a class of the program's own only resembles a family
        ({"train.py": OWN}, "model.architecture"),
        # the program does not know the word
        ({"job.sh": f"{RUN} --attn eager\n", "train.py": LOOP}, "train.attention"),
        # the program is not there
        ({"sweep.yaml": SWEEP}, "train.attention"),
        # a stranger may have written how much a machine gives
        ({"preflight.toml": '[set]\n"machine.gpu_memory" = 100000000000\n', "train.py": LOOP}, "machine.gpu_memory"),
        ({"preflight.toml": '[set]\n"machine.context" = 0\n', "train.py": LOOP}, "machine.context"),
        # a stranger may have written the law
        ({"preflight.toml": '[set]\n"model.law" = "own.law"\n', "train.py": LOOP}, "model.law"),
    ],
)  # fmt: skip
def test_what_is_assumed(files: dict[str, str], field: str, project: Write) -> None:
    path = next(name for name in files if not name.endswith(".toml"))
    assert standing(project(files), path, field) is Standing.assumed


@pytest.mark.parametrize(
    ("files", "field", "expected"),
    [
        ({"train.py": TRAINER, "requirements.txt": "transformers==4.46.0\n"}, "train.optimizer_impl", Standing.default),
        ({"train.py": LOOP, "requirements.txt": "transformers==4.46.0\n"}, "train.precision", Standing.default),
        ({"job.sh": f"{RUN}\n", "train.py": TRAINER}, "parallel.strategy", Standing.default),
        ({"train.py": LOOP}, "parallel.strategy", Standing.default),
        ({"job.sh": f"{RUN} --batch_size 8\n", "train.py": LOOP}, "train.attention", Standing.default),
        ({"job.sh": f"{RUN} --batch_size 8\n", "train.py": LOOP}, "train.batch_size", Standing.read),
        ({"job.sh": f"{RUN} --attn eager\n", "train.py": LOOP}, "parallel.trials_per_gpu", Standing.default),
    ],
)  # fmt: skip
def test_what_holds(files: dict[str, str], field: str, expected: Standing, project: Write) -> None:
    assert standing(project(files), next(iter(files)), field) is expected


def test_a_law_that_the_user_trusts_is_read(project: Write) -> None:
    root = project({"preflight.toml": '[set]\n"model.law" = "own.law"\n', "train.py": LOOP, "own.law": ""})
    assert standing(root, "train.py", "model.law", (str(root / "own.law"),)) is Standing.read


def test_what_the_settings_of_a_tree_say_of_a_machine_is_accepted_by_name(project: Write) -> None:
    root = project({"preflight.toml": '[set]\n"machine.gpu_memory" = 100000000000\n', "train.py": LOOP})
    assert standing(root, "train.py", "machine.gpu_memory") is Standing.assumed
    assert standing(root, "train.py", "machine.gpu_memory", (str(root / "preflight.toml"),)) is Standing.read


@pytest.mark.parametrize(("accepted", "expected"), [(False, Standing.assumed), (True, Standing.read)])
def test_a_job_by_hand_is_as_it_is_stated(accepted: bool, expected: Standing) -> None:
    job = build({"model.law": "own.law", "train.batch_size": 4})
    found = by_hand(job, ("model.law", "train.batch_size"), lambda path: accepted, SHIPPED_ONLY)
    assert found["model.law"].standing is expected
    assert found["train.batch_size"].standing is Standing.read
    assert found["train.attention"].standing is Standing.default
    assert "train.seq_len" not in found


def test_the_weaker_of_two_branches_counts() -> None:
    read, one, other = Held(Standing.read), Held(Standing.assumed, "a", (1,)), Held(Standing.assumed, "b", (2,))
    assert union([{"x": read}, {"x": one}])["x"] == one
    assert union([{"x": one}, {"x": read}])["x"] == one
    assert union([{"x": one}, {"x": other}])["x"].others == (1, 2)
    assert union([{"x": one}, {"x": Held(Standing.by_name)}])["x"].others == ()


@pytest.mark.parametrize(
    ("stated", "known"),
    [
        ({"model.name": "yolov8n.pt"}, False),
        ({"model.target": "ultralytics:yolo11s-seg"}, False),
        ({"model.name": "yolov8n.pt", "train.target_len": 64}, True),
        ({"model.name": "yolov8n-cls.pt"}, True),
        ({"model.name": "facebook/detr-resnet-50"}, False),
        ({"model.name": "facebook/detr-resnet-50", "train.target_len": 20}, True),
        ({"model.architecture": "rt-detr", "model.config": {}}, False),
        ({"model.architecture": "mask2former", "model.config": {}}, False),
        ({"model.target": "torchvision:fasterrcnn_resnet50_fpn"}, False),
        ({"model.target": "torchvision:maskrcnn_resnet50_fpn", "train.batch_size": 2}, False),
        ({"model.target": "torchvision:retinanet_resnet50_fpn", "train.target_len": 20}, True),
        ({"model.target": "mmdet:faster-rcnn_r50_fpn_1x_coco"}, False),
        ({"model.target": "torchvision:resnet50"}, True),
        ({"model.name": "gpt2"}, True),
    ],
)
def test_objects_of_an_image_that_no_file_states_are_unknown(stated: dict[str, object], known: bool) -> None:
    held = by_hand(build(stated), stated, lambda path: True, SHIPPED_ONLY).get("train.target_len")
    assert (held is None or held.standing.holds) == known


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("facebook/sam-vit-base", "train.frozen"),
        ("llava-hf/llava-1.5-7b-hf", "train.images"),
        ("Qwen/Qwen2-VL-2B-Instruct", "train.images"),
    ],
)
def test_what_a_law_takes_for_a_field_that_is_not_stated(name: str, field: str) -> None:
    job = build({"model.name": name})
    assert by_hand(job, ("model.name",), lambda path: True, SHIPPED_ONLY)[field].standing is Standing.unknown
    value = [] if field == "train.frozen" else 1
    stated = build({"model.name": name, field: value})
    assert by_hand(stated, ("model.name", field), lambda path: True, SHIPPED_ONLY)[field].standing is Standing.read


@pytest.mark.parametrize(
    ("stated", "known"),
    [
        ({"model.target": "torchvision:resnet18"}, False),
        ({"model.target": "torchvision:resnet18", "train.image_size": 512}, True),
        ({"model.target": "torchvision:vit_b_16"}, True),
        ({"model.target": "timm:convnext_tiny"}, False),
    ],
)
def test_the_side_of_images_that_a_model_of_any_side_gets(stated: dict[str, object], known: bool) -> None:
    held = by_hand(build(stated), stated, lambda path: True, SHIPPED_ONLY).get("train.image_size")
    assert (held is None or held.standing.holds) == known


def test_a_stated_value_is_another_job_than_the_default() -> None:
    """A law may take parts to be frozen that a job does not speak of."""
    assert identity(build({"train.frozen": []})) != identity(build({}))
    assert identity(build({"train.batch_size": 4})) == identity(build({"train.batch_size": 4}))


@pytest.mark.parametrize("cut", ["files", "characters", ""])
def test_a_search_that_a_budget_ends_leaves_defaults_assumed(
    cut: str, project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What starts the program may be in the part that was not searched."""
    if cut:
        monkeypatch.setattr(launchers, f"LAUNCHER_{cut.upper()}", Budget(1, "parts of a test"))
    files = {"train.py": LOOP, "a.sh": "echo", "b.sh": "echo"}
    held = standing(project(files), "train.py", "train.tf32")
    assert held is (Standing.assumed if cut else Standing.default)
