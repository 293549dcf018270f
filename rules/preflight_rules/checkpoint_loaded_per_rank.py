from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.api import (
    GIB,
    Case,
    Confidence,
    Edit,
    Example,
    Finding,
    Options,
    Origin,
    Proposal,
    Rule,
    Severity,
    Span,
    gib,
    limit_of,
    related_of,
    weights_of,
)

RESUMED = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
model.load_state_dict(torch.load("step_9000.pt", map_location="cpu"))
arguments = TrainingArguments("out", per_device_train_batch_size=1, bf16=True)
Trainer(model, arguments, train_dataset=dataset).train()
"""
EIGHT = """
#!/bin/bash
#SBATCH --gres=gpu:8
#SBATCH --mem=400G
#SBATCH --cpus-per-task=64

torchrun --nproc_per_node 8 train.py
"""


class CheckpointPerRankOptions(Options):
    smallest: int = Field(8 * GIB, ge=0, description="No finding if all ranks together load less than this (bytes).")


class CheckpointLoadedPerRank(Rule[CheckpointPerRankOptions]):
    """Every rank of a node reads the whole checkpoint into host memory at the same time.

    `torch.load(path, map_location="cpu")` keeps all tensors of the file in host memory until they are freed, in
    addition to the model that they are copied into. The node therefore holds ranks x checkpoint during the first minute
    of the job. With `mmap=True` the tensors are pages of the file: all ranks share them, and the kernel can drop them.

    Such a job works on one GPU and is killed on eight, before the first step.

    The fix adds `mmap=True`. It is unsafe, because preflight cannot see two conditions: the file must be in torch's zip
    format (torch 1.6 and later), and it must be opened by its path.
    """

    name = "checkpoint-loaded-per-rank"
    summary = "Every rank of a node holds the whole checkpoint in host memory"
    tags = ("host-memory", "checkpoint")
    examples = (
        Example(
            "Eight ranks, each with 25 GiB of its own",
            {"job.sh": EIGHT, "train.py": RESUMED},
            fixed={"train.py": RESUMED.replace('map_location="cpu"', 'map_location="cpu", mmap=True')},
            unsafe=True,
            says=("each of 8 ranks loads the weights (25.1 GiB)", "at least 200.82 GiB at once"),
        ),
        Example(
            "Pages of the file, which all ranks share",
            {"job.sh": EIGHT, "train.py": RESUMED.replace('map_location="cpu"', 'map_location="cpu", mmap=True')},
            finds=0,
        ),
        Example("One rank", {"job.sh": EIGHT.replace("8", "1"), "train.py": RESUMED}, finds=0),
    )

    def check(self, case: Case[CheckpointPerRankOptions]) -> Iterator[Finding]:
        ranks = case.job.parallel.ranks_per_node or 1
        origin = case.fact_origin("checkpoint_loaded")
        weights = weights_of(case.job, tracing=case.tracing) if origin is not None and ranks > 1 else None
        if weights is None or origin is None or weights.bytes * ranks < case.options.smallest:
            return
        limit = limit_of(case.job)[0]
        total = weights.bytes * ranks
        used = "" if limit is None else f", and the job may use {gib(limit)}"
        yield self.finding(
            f"each of {ranks} ranks loads the weights ({gib(weights.bytes)}) into host memory, in addition to its "
            f"model: at least {gib(total)} at once{used}",
            origin,
            Severity.warning,
            Confidence.high if limit is not None and total > limit else Confidence.medium,
            settings=("parallel.ranks_per_node",),
            related=related_of(case, origin, ("parallel.ranks_per_node", f"{ranks} ranks on a node")),
            label="every rank runs this",
            help=("use torch.load(..., mmap=True), or load in one rank and broadcast",),
            side="host",
            proposals=tuple(_mapped(case, origin)),
        )


def _mapped(case: Case, origin: Origin) -> Iterator[Proposal]:
    """Add `mmap=True` after the last argument of the call."""
    text = case.project.source(origin.path).text[origin.span.start : origin.span.end]
    if not origin.editable or not text.endswith(")"):
        return
    body = text[:-1].rstrip()
    at = origin.span.start + len(body) - body.endswith(",")
    reason = "the file must be in the format of torch 1.6 and later, and be opened by its path"
    yield Proposal("mmap=True", reason=reason, edits=(Edit(origin.path, Span(at, at), ", mmap=True"),))
