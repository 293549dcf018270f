"""Jobs that run under torch.compile: the law of the compiled step, traced where torch is (`tracer/compiled.py`).

No such law is shipped. Where none can be traced, the step that runs operator by operator stands for it, and the
interval reaches as far down as compiling saves (`intervals.COMPILED`).
"""

from __future__ import annotations

from dataclasses import replace

from preflight.job import Job
from preflight.memory.device.laws import Laws, laws_for
from preflight.memory.device.workload import Resolved
from preflight.memory.tracing import Tracing


def laws_of(job: Job, resolved: Resolved, tracing: Tracing) -> Laws | None:
    """The law of a language model's compiled step on one GPU; None: it does not run compiled, or cannot be traced."""
    compiled = resolved.workload.as_compiled() if is_covered(job, resolved) else None
    if compiled is None:
        return None
    # torchtune's recipes drop what compile_loss returns, so that a loss of whole logits runs as it is (recipes/
    # full_finetune_single_device.py, training/_compile.py); a chunked one is compiled in place.
    kept = "torchtune" in job.software and resolved.setup.loss != "chunked"
    peft = resolved.setup.peft
    if peft is not None:
        peft = replace(peft, rank=job.train.peft.r or 8, options=dict(job.train.peft.options))
    setup = replace(resolved.setup, compile="layers" if kept else "all", peft=peft)
    found = laws_for(replace(resolved, family=None, structure={}, setup=setup, workload=compiled), "train", tracing)
    return found if isinstance(found, Laws) else None


def is_covered(job: Job, resolved: Resolved) -> bool:
    """Whether a compiled step of this kind can be traced: decoders, on one GPU or copied to each."""
    return bool(job.train.compile) and resolved.law is None and resolved.task == "causal-lm"
