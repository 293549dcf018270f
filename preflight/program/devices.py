"""machine.accelerator of a hand-written loop: the processor trains if nothing of the program names another device."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, constant, fold, is_constant
from preflight.python.hooks.loaders import SAMPLES, Samples
from preflight.python.module import Module, load_module, resolve_import
from preflight.python.objects import Abstract, Attribute, CallRecord, FunctionValue, Instance, has_unknown, to_expr
from preflight.vocabulary.caches import regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Op

_NAMED = regex(
    r"cuda|\b(mps|xpu|hpu|npu|rocm)\b|accelerat|deepspeed|lightning|Fabric|fsdp|fully_shard|bitsandbytes|triton|Trainer\b|device_map|nccl|\bhip\b",
    re.I,
)
"""Words of another device, and of libraries that choose the device themselves."""
_COMMENT = regex(r"^[ \t]*#.*", re.M)
"""A line that is switched off: `# device = torch.device("cuda")`."""


_KNOWN = sys.stdlib_module_names | frozenset(
    ("torch", "torchvision", "torchaudio", "numpy", "PIL", "cv2", "albumentations", "timm", "datasets",
     "tokenizers", "transformers", "pandas", "pyarrow", "h5py", "scipy", "sklearn", "skimage", "tqdm", "yaml",
     "matplotlib", "webdataset", "imageio", "hydra", "omegaconf", "click", "tensorboard", "wandb", "einops", "joblib",
     "zarr", "torchmetrics", "psutil")
)  # fmt: skip
"""Packages that move no model to a device of their own choice. Whether another one does is not known."""


def device_bindings(records: Sequence[CallRecord], project: Project) -> list[Binding]:
    """The processor, where a loop of the program's own trains, and every device that it names is the processor."""
    step = next((r for r in records if r.method == "backward" or _runs_closure(r)), None)
    if step is None:
        return []
    modules = [load_module(path, project) for path in dict.fromkeys(r.path for r in records)]
    if any(module is None or _NAMED.search(_COMMENT.sub("", module.source.text)) for module in modules):
        return []
    devices = list(_devices(records))
    chosen = [one for one in devices if not is_constant(one)]
    if any(has_unknown(one) for one in devices) or (len(chosen) > 1 and any(one != chosen[0] for one in chosen)):
        return []
    fixed = [constant(one) for one in devices if is_constant(one)]
    if any(not isinstance(one, str) or one.partition(":")[0] != "cpu" for one in fixed):
        return []
    if chosen:  # a flag says which
        given = Op("if", (Op("==", (chosen[0], Const("cpu"))), Const("cpu"), Const("gpu")), chosen[0].origin)
        return [bind("machine.accelerator", given, Rank.read)]
    if not devices and not any(_read(record) for record in records):  # a part of a program
        return []
    if not devices and any(set(_foreign(module, project)) - _KNOWN for module in modules if module is not None):
        return []
    origin = next((one.origin for one in devices if one.origin is not None), step.origin)
    return [bind("machine.accelerator", Const("cpu", origin), Rank.read if devices else Rank.default)]


def _runs_closure(record: CallRecord) -> bool:
    """`optimizer.step(closure)`: the function has the backward pass."""
    return record.method == "step" and any(isinstance(one, FunctionValue) for one in record.arguments)


def _read(record: CallRecord) -> bool:
    """Whether it is a loader whose samples are known, or whose data set the program makes."""
    found = record.value.state.get(SAMPLES) if isinstance(record.value, Instance) else None
    return isinstance(found, Samples) and (found.bytes is not None or _is_made(record.object("dataset", 0)))


def _is_made(data: Abstract | None) -> bool:
    """Whether a library's function made the data set, in a call of the program that was followed."""
    while isinstance(data, Attribute):
        data = data.receiver
    return isinstance(data, Instance) and data.cls is None and data.record is not None and data.record.reached


def _foreign(module: Module, project: Project) -> Iterator[str]:
    """The packages of others that a module imports."""
    for node in ast.walk(module.tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [] if node.level else [node.module or ""]
        for name in names:
            if resolve_import(name, 0, module, project) is None:
                yield name.partition(".")[0]


def _devices(records: Sequence[CallRecord]) -> Iterator[Expr]:
    """What the program names as a device: an expression, unknown where it is not known whether it is one."""
    for record in records:
        given = record.object("device", 0 if record.name == "torch.device" else None)
        if given is None and record.method == "to" and record.arguments:
            given = record.arguments[0]
        made = str(getattr(given, "made_by", "") or getattr(given, "name", ""))
        if given is not None and not made.startswith("torch."):  # a type, or the object of `torch.device(...)`
            yield fold(to_expr(given))
