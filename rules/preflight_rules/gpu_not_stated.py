from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from preflight.api import (
    Case,
    DeviceEstimate,
    Example,
    Finding,
    Origin,
    Rule,
    Severity,
    Unknown,
    describe,
    device_of,
    gib,
    gpus_that_fit,
)
from preflight_rules.shared.programs import LOOP

LINE = '[tool.preflight] gpu = "NAME"'
SHOWN = 3
"""The smallest GPUs that a message names: mostly cards of one size."""
ASKED = ("gpu_type", "gpus_per_node", "gpus_per_task", "gpus")
"""Fields of a request that ask for GPUs."""
FIELDS = ("model.name", "model.path", "model.target", "model.architecture", "train.batch_size")

JOB = "#!/bin/bash\n#SBATCH --gres=gpu:{}1\n#SBATCH --mem=64G\npython train.py --batch_size 8\n"


class GpuNotStated(Rule):
    """It is known how much GPU memory the jobs need, and not which GPU they will run on: nothing was compared.

    A check that ends with "fits" has compared the need with a GPU. Without one there is only a need, and a hook or a
    pipeline that ends green has checked nothing of it. The message has the largest need of all studies, the file that
    it comes from, and the smallest GPUs that hold it.

    It is said once for a project, however many studies it has. One line of its settings answers it:

        [tool.preflight]
        gpu = "A100 80GB"

    In `preflight.toml` it is the line `gpu = "A100 80GB"` alone; `--gpu NAME` says it for one run, and `--machine`
    names a workstation or cluster whose nodes have their GPUs. A job script that asks for a type (`--gres=gpu:a100:1`)
    and a file that sets `machine.gpu` say it themselves. `--fail-on warning` makes a pipeline fail where nobody said
    it.
    """

    name = "gpu-not-stated"
    summary = "Needs of GPU memory are known, and no GPU to compare them with"
    examples = (
        Example(
            "One program, no GPU anywhere",
            {"train.py": LOOP},
            says=("no GPU is stated", "bert-base-uncased, batch 64 x 512", 'gpu = "NAME"'),
        ),
        Example(
            "Several studies, one finding",
            {"one.sh": JOB.format(""), "two.sh": JOB.format("").replace("size 8", "size 128"), "train.py": LOOP},
            says=("no GPU is stated",),
        ),
        Example("The settings state it", {"train.py": LOOP}, finds=0, options={"gpu": "H100"}),
        Example("The request states it", {"job.sh": JOB.format("a100:"), "train.py": LOOP}, finds=0),
        Example(
            "Trained on the processor",
            {"train.py": LOOP},
            finds=0,
            options={"set": {"machine.accelerator": "cpu"}},
        ),
    )

    def check_run(self, cases: Sequence[Case]) -> Iterator[Finding]:
        open_ = [(case, device) for case in cases if (device := _need(case)) is not None]
        if not open_:
            return
        case, device = max(open_, key=lambda one: one[1].process.expected)
        which = f"the largest need of {len(open_):,} studies is" if len(open_) > 1 else "the need is"
        least = "at least " if device.lower_bound else ""
        need = device.process
        spread = "" if device.lower_bound else f" ({gib(need.low)} to {gib(need.high)})"
        found = self.finding(
            f"no GPU is stated, so GPU memory was compared with nothing: {which} {least}{gib(need.expected)}{spread}, "
            f"for {describe(case.job)}; {_holding(device)}; state yours: {LINE}",
            _place(case),
            Severity.warning,
            estimate=device,
            settings=("machine.gpu",),
            label=f"needs {least}{gib(need.expected)}",
            help=(
                f'write {LINE} in pyproject.toml, or gpu = "NAME" in preflight.toml; --gpu NAME says it for one run, '
                "and preflight machine list shows the names",
                *_unknown_type(case),
            ),
        )
        yield replace(found, study=case.index)


def _need(case: Case) -> DeviceEstimate | None:
    """What a study needs of a GPU that nobody named; None where that is not known, or the machine has none."""
    device, node = device_of(case), case.node
    if device is None or device.capacity is not None or case.job.machine.accelerator == "cpu":
        return None
    stated = node is not None and (node.gpu is not None or not node.gpus)
    return None if stated else device


def _holding(device: DeviceEstimate) -> str:
    """The smallest GPUs that certainly hold it, their own context counted."""
    if device.lower_bound:
        return "a GPU with less memory does not hold it"
    reserved = device.reserved.high
    found = [gpu.name for gpu in islice(gpus_that_fit(lambda gpu: reserved + gpu.context[2]), SHOWN)]
    if not found:
        return "no single GPU known here holds it"
    return f"the smallest that hold it: {', '.join(found)}"


def _place(case: Case) -> Origin | None:
    """Where a script asks for GPUs, else the line that starts the program, else the model."""
    request = case.study.request
    for name in ASKED if request is not None else ():
        if request is not None and name in request.origins:
            return request.origins[name]
    started = next((link.origin for link in case.study.links if link.origin is not None), None)
    return started or case.origin(*FIELDS)


def _unknown_type(case: Case) -> Iterator[str]:
    """A type that the request names and that is none of the known GPUs."""
    kind = case.study.request.gpu_type if case.study.request is not None else None
    if kind is not None and not isinstance(kind, Unknown):
        yield f'the request asks for the type "{kind}", which is none of the GPUs known here'
