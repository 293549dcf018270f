from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.api import GIB, Case, Example, Finding, Options, Rule, Severity, changed, gib, gpu_name, related_of
from preflight_rules.shared import remedies
from preflight_rules.shared.programs import LOOP

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


class CheckpointOptions(Options):
    smallest: int = Field(GIB, ge=0, description="No finding where it takes less, unless the job fits without (bytes).")


class CheckpointOnGpu(Rule[CheckpointOptions]):
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
    examples = (
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

    def check(self, case: Case[CheckpointOptions]) -> Iterator[Finding]:
        device, how = case.estimates.device, case.job.train.resumes
        origin = case.origin(remedies.RESUMES)
        if device is None or origin is None or how not in ("device", "kept"):
            return
        after = case.estimate(changed(case, {remedies.RESUMES: "host"})).device
        if after is None:
            return
        extra = device.process.expected - after.process.expected
        alone = device.verdict != "fits" and after.verdict == "fits"
        if extra <= 0 or (extra < case.options.smallest and not alone):
            return
        stays = "stays on the GPU while training" if how == "kept" else "passes through the GPU before training"
        room = f"; without it the job fits {gpu_name(case)}" if alone else ""
        yield self.finding(
            f"the checkpoint {stays}: {gib(extra)} more at the peak{room}",
            origin,
            Severity.error if alone and device.verdict == "exceeds" else Severity.warning,
            settings=(remedies.RESUMES,),
            related=related_of(case, origin, ("model.name", "its weights are there twice")),
            label="loads to the GPU",
            help=('load it with map_location="cpu", or delete its name before the first step',),
            tier="device",
            proposals=tuple(remedies.load_by_host(case, origin)),
        )
