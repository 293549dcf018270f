"""A rule about a whole run: needs are known, and nothing says which GPU they are to be compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from preflight.machines.gpus import that_fit
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.findings import Confidence, Finding, Severity
from preflight.vocabulary.rule import Case, Example, Rule
from preflight.vocabulary.values import Origin, Unknown
from preflight_rules.common import bounds, describe, device_of, gib, parts_of
from preflight_rules.gpu_examples import LOOP

LINE = '[tool.preflight] gpu = "NAME"'
SHOWN = 3
"""The smallest GPUs that a message names: mostly cards of one size."""
ASKED = ("gpu_type", "gpus_per_node", "gpus_per_task", "gpus")
"""Fields of a request that ask for GPUs."""
FIELDS = ("model.name", "model.path", "model.target", "model.architecture", "train.batch_size")

_JOB = "#!/bin/bash\n#SBATCH --gres=gpu:{}1\n#SBATCH --mem=64G\npython train.py --batch_size 8\n"
EXAMPLES = (
    Example(
        "One program, no GPU anywhere",
        {"train.py": LOOP},
        says=("no GPU is stated", "bert-base-uncased, batch 64 x 512", 'gpu = "NAME"'),
    ),
    Example(
        "Several studies, one finding",
        {"one.sh": _JOB.format(""), "two.sh": _JOB.format("").replace("size 8", "size 128"), "train.py": LOOP},
        says=("no GPU is stated",),
    ),
    Example("The settings state it", {"train.py": LOOP}, finds=0, options={"gpu": "H100"}),
    Example("The request states it", {"job.sh": _JOB.format("a100:"), "train.py": LOOP}, finds=0),
    Example(
        "Trained on the processor",
        {"train.py": LOOP},
        finds=0,
        options={"set": {"machine.accelerator": "cpu"}},
    ),
)


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
    examples = EXAMPLES

    def check_run(self, cases: Sequence[Case]) -> Iterator[Finding]:
        open_ = [(case, device) for case in cases if (device := _need(case)) is not None]
        if not open_:
            return
        case, device = max(open_, key=lambda one: one[1].process.expected)
        which = f"the largest need of {len(open_):,} studies is" if len(open_) > 1 else "the need is"
        least = "at least " if device.lower_bound else ""
        low, expected, high = bounds(device.process)
        spread = "" if device.lower_bound else f" ({gib(low)} to {gib(high)})"
        yield Finding(
            rule=self.name,
            severity=Severity.warning,
            confidence=Confidence.high,
            message=(
                f"no GPU is stated, so GPU memory was compared with nothing: {which} {least}{gib(expected)}{spread}, "
                f"for {describe(case.job)}; {_holding(device)}; state yours: {LINE}"
            ),
            origin=_place(case),
            settings=("machine.gpu",),
            label=f"needs {least}{gib(expected)}",
            help=(
                f'write {LINE} in pyproject.toml, or gpu = "NAME" in preflight.toml; --gpu NAME says it for one run, '
                "and preflight machine list shows the names",
                *_unknown_type(case),
            ),
            parts=parts_of(device.breakdown),
            interval=bounds(device.process),
            tier="device",
            study=case.index,
        )


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
        return "no GPU with less memory holds it"
    reserved = device.reserved.high
    found = [gpu.name for gpu in islice(that_fit(lambda gpu: reserved + gpu.context[2]), SHOWN)]
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
