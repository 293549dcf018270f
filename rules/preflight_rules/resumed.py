"""A rule about checkpoints that training begins from and that lie on the GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pydantic import Field

from preflight.vocabulary.findings import Confidence, Finding, Proposal, Safety, Severity
from preflight.vocabulary.rule import Case, Example, Options, Rule
from preflight.vocabulary.text import Edit
from preflight.vocabulary.values import Origin, Span
from preflight_rules.common import changed, gib, gpu_name, related_of
from preflight_rules.gpu_examples import LOOP

FIELD = "train.resumes"
GIB = 1 << 30
TAKEN = (
    'checkpoint = torch.load("last.pt"{where})\nmodel.load_state_dict(checkpoint["model"])\noptimizer.load_state_dict'
)
RESUMED = (
    LOOP.replace("bert-base-uncased", "bert-large-uncased")
    .replace("default=64", "default=8")
    .replace("dataset = ", TAKEN + '(checkpoint["optimizer"]){after}\ndataset = ')
)
KEPT = RESUMED.format(where="", after="")
ON_HOST = RESUMED.format(where=', map_location="cpu"', after="")
EXAMPLES = (
    Example(
        "A name that still holds it",
        {"train.py": KEPT},
        fixed={"train.py": ON_HOST},
        says=("stays on the GPU while training", "GiB more at the peak"),
        options={"gpu": "A100-80GB"},
    ),
    Example(
        "Loaded to the GPU by name",
        {"train.py": RESUMED.format(where=', map_location="cuda"', after="")},
        fixed={"train.py": ON_HOST},
        options={"gpu": "A100-80GB"},
    ),
    Example("By way of the host", {"train.py": ON_HOST}, finds=0, options={"gpu": "A100-80GB"}),
    Example(
        "The name is given up before training",
        {"train.py": RESUMED.format(where="", after="\ndel checkpoint")},
        finds=0,
        options={"gpu": "A100-80GB"},
    ),
)


class CheckpointOptions(Options):
    smallest: int = Field(GIB, ge=0, description="No finding where it takes less, unless the job fits without (bytes).")


class CheckpointOnGpu(Rule):
    """A checkpoint that training begins from lies on the GPU, beside the model that it was copied into.

    `torch.load` without `map_location` brings every tensor back to the device that it was saved from. As long as a
    name holds what it returned, the weights are there a second time, through all of training; before torch 2.1 the
    optimizer's states as well, which it copied. On eight GPUs every process loads to the one that the file names.

    It matters because the run that worked until it was interrupted does not fit any more when it is resumed, with the
    same settings.

    The fix is `map_location="cpu"`: the tensors pass through host memory, and the run is the same. Deleting the name
    (`del checkpoint`) before the first step does it as well.
    """

    name = "checkpoint-on-gpu"
    summary = "The checkpoint that training begins from stays on the GPU"
    options = CheckpointOptions
    examples = EXAMPLES

    def check(self, case: Case) -> Iterator[Finding]:
        device, how = case.estimates.device, case.job.train.resumes
        origin = case.origin(FIELD)
        if device is None or origin is None or how not in ("device", "kept"):
            return
        after = case.estimate(changed(case, {FIELD: "host"})).device
        if after is None:
            return
        extra = device.process.expected - after.process.expected
        alone = device.verdict != "fits" and after.verdict == "fits"
        options = case.options if isinstance(case.options, CheckpointOptions) else CheckpointOptions()  # type: ignore[call-arg]
        if extra <= 0 or (extra < options.smallest and not alone):
            return
        stays = "stays on the GPU while training" if how == "kept" else "passes through the GPU before training"
        room = f"; without it the job fits {gpu_name(case)}" if alone else ""
        yield Finding(
            rule=self.name,
            severity=Severity.error if alone and device.verdict == "exceeds" else Severity.warning,
            confidence=Confidence.high,
            message=f"the checkpoint {stays}: {gib(extra)} more at the peak{room}",
            origin=origin,
            settings=(FIELD,),
            related=related_of(case, origin, ("model.name", "its weights are there twice")),
            label="loads to the GPU",
            help=('load it with map_location="cpu", or delete its name before the first step',),
            tier="device",
            proposals=tuple(by_host(case, origin)),
        )


def decides(case: Case) -> bool:
    """Whether the job fits once its checkpoint passes through the host."""
    if case.job.train.resumes not in ("device", "kept"):
        return False
    device = case.estimate(changed(case, {FIELD: "host"})).device
    return device is not None and device.verdict == "fits"


def by_host(case: Case, origin: Origin) -> Iterator[Proposal]:
    """`map_location="cpu"` in the call that loads the checkpoint."""
    text = case.project.source(origin.path).text[origin.span.start : origin.span.end]
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return
    if not origin.editable or not isinstance(call, ast.Call) or "\n" in text:
        return
    given = next((one.value for one in call.keywords if one.arg == "map_location"), None)
    given = given if given is not None or len(call.args) < 2 else call.args[1]
    start = origin.span.start
    if given is None:
        end = start + len(text) - 1
        edit = Edit(origin.path, Span(end, end), ', map_location="cpu"')
    else:
        # Columns are bytes of UTF-8; a call that has others is left alone.
        if not text.isascii() or given.end_col_offset is None:
            return
        edit = Edit(origin.path, Span(start + given.col_offset, start + given.end_col_offset), '"cpu"')
    yield Proposal('map_location="cpu"', safety=Safety.safe, edits=(edit,))
