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


class CheckpointOnGpuOptions(Options):
    smallest: int = Field(
        GIB, ge=0, description="No finding if the checkpoint takes less (bytes), unless the job would fit without it."
    )


class CheckpointOnGpu(Rule[CheckpointOnGpuOptions]):
    """The checkpoint that training resumes from stays on the GPU, in addition to the model.

    `torch.load` without `map_location` puts every tensor back on the device that it was saved from. As long as a
    variable holds the result, the weights are on the GPU twice, for the whole training. Before torch 2.1 the optimizer
    states are there twice as well, because the optimizer copied them. On eight GPUs, every process loads to the same
    GPU: the one that the file names.

    Such a run fits when it starts, and does not fit when it is resumed with the same settings.

    The fix adds `map_location="cpu"`: the tensors go through host memory, and the run stays the same. Deleting the
    variable (`del checkpoint`) before the first step also helps.
    """

    name = "checkpoint-on-gpu"
    summary = "The checkpoint that training resumes from stays on the GPU"
    tags = ("gpu-memory", "checkpoint")
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

    def check(self, case: Case[CheckpointOnGpuOptions]) -> Iterator[Finding]:
        device, how = case.estimates.device, case.job.train.resumes
        origin = case.origin(remedies.RESUMES)
        if device is None or origin is None or how not in ("device", "kept"):
            return
        after = case.estimate(changed(case, {remedies.RESUMES: "host"})).device
        if after is None:
            return
        extra = device.process.expected - after.process.expected
        alone = not device.fitting and after.fitting
        if extra <= 0 or (extra < case.options.smallest and not alone):
            return
        stays = "stays on the GPU while training" if how == "kept" else "passes through the GPU before training"
        room = f"; without it the job fits {gpu_name(case)}" if alone else ""
        yield self.finding(
            f"the checkpoint {stays}: {gib(extra)} more at the peak{room}",
            origin,
            Severity.error if alone and device.verdict == "exceeds" else Severity.warning,
            settings=(remedies.RESUMES,),
            related=related_of(case, origin, ("model.name", "the weights of this model are on the GPU twice")),
            label="loads the checkpoint to the GPU",
            help=('load it with map_location="cpu", or delete the variable before the first step',),
            side="device",
            proposals=tuple(remedies.load_by_host(case, origin)),
        )
