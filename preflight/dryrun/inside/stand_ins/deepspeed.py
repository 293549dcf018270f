"""DeepSpeed's engine: its own code shards, gathers and keeps its buffers; its compiled kernels are stood in for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..loops import Loops
from ..patches import answers, replace, wrap

_CUDA = (12, 8)
"""A release of CUDA with which all kernels can be compiled."""
_IN_PLACE = {
    "fused_adam": ("multi_tensor_adam",), "fused_lion": ("multi_tensor_lion",), "fused_lamb": ("lamb",),
    "cpu_adam": ("create_adam", "adam_update", "adam_rollback", "destroy_adam"),
    "cpu_lion": ("create_lion", "lion_update", "destroy_lion"),
    "cpu_adagrad": ("create_adagrad", "adagrad_update", "destroy_adagrad"),
}  # fmt: skip
"""Extensions whose functions write in place and allocate nothing on the device."""
Refuse = Callable[[str], None]


class _Extension:
    """An extension of which these functions do nothing."""

    def __init__(self, functions: tuple[str, ...]) -> None:
        for name in functions:
            setattr(self, name, answers(None))


def extensions(module: Any, refuse: Refuse) -> None:
    """DeepSpeed compiles its kernels when they are first wanted. Those that allocate are refused by name."""

    def loaded(builder: Any, *_: Any, **__: Any) -> Any:
        known = _IN_PLACE.get(builder.name)
        if known is None:
            refuse(f"the program wants DeepSpeed's extension {builder.name}, whose kernels a dry run does not know")
        return _Extension(known or ())

    replace(module.OpBuilder, "load", loaded)
    replace(module, "installed_cuda_version", answers(_CUDA))  # asked when it is imported, of a compiler


def engine(module: Any, loops: Loops) -> None:
    """A step of the engine is one step, though it calls its optimizer once for each group of parameters: two of them
    alone would be the first step, before which there are no states, and a peak that is too low.
    """

    def stepped(real: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
        stage = own.zero_optimization_stage()
        loops.facts["strategy"] = f"zero{stage}" if stage else "ddp"
        return loops.whole_step(own, lambda: real(own, *args, **kwargs))

    wrap(module.DeepSpeedEngine, "_take_model_step", stepped)


def pipeline(module: Any, refuse: Refuse) -> None:
    """Stages of a pipeline send each other what the first alone cannot have."""

    def made(*_: Any, **__: Any) -> None:
        refuse("the program trains a pipeline, which a dry run does not follow (preflight estimate has its layouts)")

    replace(module.PipelineEngine, "__init__", made)
