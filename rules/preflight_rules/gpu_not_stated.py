from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from preflight.api import (
    Assumption,
    Case,
    DeviceEstimate,
    Example,
    Finding,
    Origin,
    Rule,
    Severity,
    Unknown,
    assumed,
    describe,
    device_of,
    gib,
    gpus_that_fit,
    plural,
)
from preflight_rules.shared.programs import LOOP

LINE = '[tool.preflight] gpu = "NAME"'
SHOWN = 3
"""How many GPUs a message names, the smallest first."""
ASKED = ("gpu_type", "gpus_per_node", "gpus_per_task", "gpus")
"""Fields of a request that ask for GPUs."""
FIELDS = ("model.name", "model.path", "model.target", "model.architecture", "train.batch_size")

SMALL = """
import torch
from torch.utils.data import DataLoader

from data import dataset

model = torch.nn.LSTM(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x in DataLoader(dataset, batch_size=8):
    model(x)[0].mean().backward()
    optimizer.step()
"""
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:{}1\n#SBATCH --mem=64G\npython train.py --batch_size 8\n"


class GpuNotStated(Rule):
    """The need of GPU memory is known, but the GPU is not: the need was compared with nothing.

    A check that ends with "fits" has compared the need with the memory of a GPU. Without a GPU there is only a need,
    and a hook or a CI pipeline that succeeds has checked nothing. The message has the largest need of all studies, the
    file that it comes from, and the smallest GPUs that are large enough. A study that no GPU can hold is named only if
    there is no other one.

    The needs that are compared are those that rest on values that were read. If every need rests on a value that is not
    known well (parts that are frozen, a length that only a name suggests), the largest is told as information, with
    that value. A least need that every GPU has (the parameters of a small model whose activations are not known) says
    nothing about a GPU, and there is no finding.

    There is one finding for a project, also if it has many studies. One line in the settings answers it:

        [tool.preflight]
        gpu = "A100 80GB"

    In `preflight.toml` the line is `gpu = "A100 80GB"` without the table. `--gpu NAME` states the GPU for one run, and
    `--machine` names a workstation or a cluster with the GPUs of its nodes. A job script that asks for a GPU type
    (`--gres=gpu:a100:1`) and a file that sets `machine.gpu` also state it. With `--fail-on warning` a pipeline fails if
    no GPU is stated.
    """

    name = "gpu-not-stated"
    summary = "The need of GPU memory is known, but no GPU is stated"
    tags = ("gpu-memory", "configuration")
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
        Example("A least need that every GPU has", {"train.py": SMALL}, finds=0),
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
        sure = [(case, device) for case, device in open_ if not _unsure(case)]
        open_ = sure or open_
        if not open_:
            return
        held = [one for one in open_ if one[1].lower_bound or _large_enough(one[1], one[0])]
        named = held or open_
        case, device = max(named, key=lambda one: one[1].process.expected)
        which = f"the largest need of {plural(len(named), 'study')} is" if len(named) > 1 else "the need is"
        beyond = f"; {plural(len(open_) - len(named), 'more study')} would need more than any GPU has, unless sharded"
        more = beyond if len(named) < len(open_) else ""
        least = "at least " if device.lower_bound else ""
        need = device.process
        interval = "" if device.lower_bound else f" ({gib(need.low)} to {gib(need.high)})"
        found = self.finding(
            f"no GPU is stated, so no GPU memory was checked: {which} {least}{gib(need.expected)}{interval}, "
            f"for {describe(case.job)}{_launched(case)}{_if_known(case)}; {_holding(device, case)}{more}; "
            f"state your GPU: {LINE}",
            _place(case),
            Severity.warning if sure else Severity.info,
            estimate=device,
            settings=("machine.gpu",),
            label=f"needs {least}{gib(need.expected)}",
            headline=f"no GPU is stated, so no GPU memory was checked: {which} {least}{gib(need.expected)}"
            f"{_if_known(case)}; {_holding(device, case)}",
            help=(
                *_unknown_type(case),
                'say --gpu NAME, or write gpu = "NAME" in preflight.toml (in pyproject.toml below [tool.preflight]); '
                "preflight machine list shows the names",
            ),
        )
        yield replace(found, study=case.index)


def _need(case: Case) -> DeviceEstimate | None:
    """The need of a study whose GPU is not stated. None if the need is unknown, the machine has no GPU, or all that is
    known is a least need that every GPU has."""
    device, node = device_of(case), case.node
    if device is None or device.capacity is not None or case.job.machine.accelerator == "cpu":
        return None
    if device.lower_bound and _smallest(device.process.expected, case) == _smallest(0, case):
        return None
    stated = node is not None and (node.gpu is not None or not node.gpus)
    return None if stated else device


def _smallest(need: int, case: Case) -> str | None:
    """The smallest GPU that has so many bytes."""
    return next((gpu.name for gpu in gpus_that_fit(lambda _: need, case.job)), None)


def _unsure(case: Case) -> tuple[Assumption, ...]:
    """The fields that the need rests on and that are not known well. A program that no file launches is judged as one
    process on one GPU."""
    found = case.unsure()
    return found if case.study.links else tuple(one for one in found if not one.field.startswith("parallel."))


def _if_known(case: Case) -> str:
    """The fields that the need rests on, as text."""
    found = _unsure(case)
    return f", with {assumed(found)}" if found else ""


def _launched(case: Case) -> str:
    """What the figure rests on if no file says how the job is launched."""
    strategy = case.bound("parallel.strategy")
    if case.study.program is not None or case.study.links or (strategy is not None and not strategy.default):
        return ""
    return " (one process on one GPU: no file says how it is launched)"


def _large_enough(device: DeviceEstimate, case: Case) -> list[str]:
    """The smallest GPUs that are certainly large enough, with their CUDA context, and can compute the job."""
    reserved = device.reserved.high
    return [gpu.name for gpu in islice(gpus_that_fit(lambda gpu: reserved + gpu.context[2], case.job), SHOWN)]


def _holding(device: DeviceEstimate, case: Case) -> str:
    """The GPUs to look for, as text."""
    if device.lower_bound:
        return "a GPU with less memory is too small"
    found = _large_enough(device, case)
    if not found:
        return "no GPU that preflight knows is large enough"
    return f"the smallest GPUs that are large enough: {', '.join(found)}"


def _place(case: Case) -> Origin | None:
    """Where a script asks for GPUs, else the line that starts the program, else the model."""
    request = case.study.request
    for name in ASKED if request is not None else ():
        if request is not None and name in request.origins:
            return request.origins[name]
    started = next((link.origin for link in case.study.links if link.origin is not None), None)
    return started or case.origin(*FIELDS)


def _unknown_type(case: Case) -> Iterator[str]:
    """A GPU type of the request that preflight does not know."""
    kind = case.study.request.gpu_type if case.study.request is not None else None
    if kind is not None and not isinstance(kind, Unknown):
        yield f'the request asks for the type "{kind}", which preflight does not know'
