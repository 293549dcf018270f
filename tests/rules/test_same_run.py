"""Safety of a smaller micro-batch with accumulation, and of fewer workers, wherever model and data come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Device, case
from msgspec.structs import replace

from preflight.api import check
from preflight.vocabulary.findings import Safety
from preflight.vocabulary.project import Project
from preflight.vocabulary.rule import Case
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Axis, Choices, Ref
from preflight_rules.shared import remedies, same_run

WRITTEN = {"train.batch_size": 32, "train.seq_len": 1024, "train.grad_accum": 2}
TORCH = "import torch\nfrom torch import nn\n"
OWN = f"{TORCH}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = {{}}\n"


def of_program(text: str, *, model: str | None = None, files: dict[str, str] | None = None, **facts: object) -> Case:
    """A case whose study runs a program."""
    made = case(WRITTEN, device=Device(), model=model, facts=facts)  # type: ignore[arg-type]
    texts = {**made.project.overlay, "train.py": text, **(files or {})}
    study: Study = replace(made.study, paths=(*made.study.paths, "train.py"))
    return replace(made, study=study, project=Project(Path("."), Settings(), overlay=texts))


UNSAFE = {
    "nothing is known": ("", None),
    "a layer": (OWN.format("nn.BatchNorm1d(8)"), None),
    "a reference": (OWN.format("make(norm_layer=nn.BatchNorm2d)"), None),
    "a head of the user's": (OWN.format("nn.BatchNorm1d(8)"), "bert-base-uncased"),
    "synchronised": (f"{TORCH}model = nn.SyncBatchNorm.convert_sync_batchnorm(model)", "gpt2"),
    "a function": (f"{TORCH}import torch.nn.functional as F\nF.batch_norm(x, a, b)", "gpt2"),
    "layers of another package": ("from gnn import Conv\n" + OWN.format("Conv(3)"), "gpt2"),
    "a model of another package": ("from lab.zoo import Net\n" + OWN.format("nn.Linear(1, 1)"), None),
    "balanced experts": ('model.config.output_router_logits = True', "mistralai/Mixtral-8x7B-v0.1"),
    "objects": ("", "facebook/detr-resnet-50"),
    "a loss of the program's own": ("class T(Trainer):\n    def compute_loss(self, model, x):\n        ...\n", "gpt2"),
    "contrastive": ("", "openai/clip-vit-base-patch32"),
    "a hub name": ("", "microsoft/resnet-50"),
}  # fmt: skip
SAFE = {
    "own layers": (OWN.format("nn.Linear(8, 8)"), None),
    "group norm": (OWN.format("nn.GroupNorm(2, 8)"), None),
    "frozen": (f"{TORCH}from torchvision.ops import FrozenBatchNorm2d\n", "bert-base-uncased"),
    "asked about": (f"{TORCH}frozen = isinstance(model, nn.BatchNorm2d)", "bert-base-uncased"),
    "a setting": ("print(args.batch_norm)", "bert-base-uncased"),
    "experts": ("model.config.output_router_logits = False", "mistralai/Mixtral-8x7B-v0.1"),
    **{name: ("", name) for name in ("gpt2", "t5-small", "google/vit-base-patch16-224", "meta-llama/Llama-2-7b-hf")},
}


def safety(one: Case) -> Safety:
    return next(remedies.smaller_batch(one, {})).safety


@pytest.mark.parametrize("name", UNSAFE)
def test_another_micro_batch_is_another_run(name: str) -> None:
    text, model = UNSAFE[name]
    assert safety(of_program(text, model=model)) is Safety.unsafe


@pytest.mark.parametrize("name", SAFE)
def test_another_micro_batch_is_the_same_run(name: str) -> None:
    text, model = SAFE[name]
    assert safety(of_program(text, model=model)) is Safety.safe


def test_what_a_file_imports_counts() -> None:
    files = {"net.py": OWN.format("nn.BatchNorm1d(8)")}
    assert safety(of_program("from net import Net\n", model="gpt2", files=files)) is Safety.unsafe


def test_every_model_of_a_search_counts() -> None:
    """The fix edits one text for all of them."""
    axis = Axis("model", Choices(("gpt2", "microsoft/resnet-50")), ("model.name",))
    searched = case(
        {**WRITTEN, "model.name": Ref("model")}, axes=(axis,), worst={"model": "gpt2"}, device=Device(),
    )  # fmt: skip
    assert "batch normalisation" in same_run.accumulation_hazard(searched)


WORKERS = {
    ("iterable", "a stream"): False,
    ("map", "indexed"): True,
    (None, "not known"): False,
}


@pytest.mark.parametrize(("kind", "words"), WORKERS)
def test_fewer_workers(kind: str | None, words: str) -> None:
    facts = {} if kind is None else {"dataset_kind": kind}
    hazard = same_run.workers_hazard(of_program("x = 1", **facts))
    assert (not hazard) is WORKERS[kind, words]


DEALT = {
    ("iterable", 0): True,
    ("iterable", 1): True,
    ("iterable", 2): False,
    ("iterable", None): False,
    ("map", 8): True,
}
"""The kind of data set and its workers: whether the same samples share a step with another micro-batch."""


@pytest.mark.parametrize(("kind", "workers"), DEALT)
def test_several_workers_over_a_stream_make_batches_of_their_own_parts(kind: str, workers: int | None) -> None:
    written = {**WRITTEN, "data.workers": workers}
    one = case(written, device=Device(), model="gpt2", facts={"dataset_kind": kind})  # type: ignore[arg-type]
    assert ("stream" not in same_run.accumulation_hazard(one)) is DEALT[kind, workers]


def test_a_framework_that_loads_by_itself() -> None:
    assert same_run.workers_hazard(of_program("x = 1", framework="ultralytics")) == ""


LOOPS_OVER_A_CONSTANT = """\
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

BS = 256
data = load_dataset("imdb", split="train"){more}
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
args = TrainingArguments("out", per_device_train_batch_size=BS, gradient_accumulation_steps=1, fp16=True)
print(f"batch {{BS}}")
data = data.map(lambda x: tokenizer(x["text"], truncation=True, padding="max_length", max_length=512))
Trainer(model, args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("written", "more", "safe"),
    [
        ("BS = 256", ".select(range(BS * 100))", Safety.unsafe),
        ("BS = 256", "\nlearning_rate = 1e-3 * BS / 256", Safety.unsafe),
        ("BS = 256", "\nsteps = BS", Safety.unsafe),
        ("BS: int = 256", "\nsteps = BS", Safety.unsafe),
        ("BS = SIZE = 256", "\nsteps = BS", Safety.unsafe),
        ("BS = 256", "", Safety.safe),
        ("BS: int = 256", "", Safety.safe),
        ("BS = SIZE = 256", "", Safety.safe),
    ],
)
def test_a_constant_that_is_read_for_more_than_the_micro_batch(
    more: str, safe: Safety, written: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LOOPS_OVER_A_CONSTANT.format(more=more).replace("BS = 256", written, 1))
    [report] = check([tmp_path / "train.py"], gpu="RTX 3060").reports
    fixes = [one.fix for one in report.findings if one.rule == "gpu-memory-exceeded" and one.fix is not None]
    assert [fix.safety for fix in fixes if "batch" in fix.title or "micro" in fix.title] == [safe]
