"""Jobs that run under torch.compile: the law of the compiled step, traced where torch is (`tracer/compiled.py`).

No such law is shipped. Where none can be traced, the step that runs operator by operator stands for it, and the
interval reaches as far down as compiling saves (`intervals.COMPILED`).
"""

from __future__ import annotations

from dataclasses import replace

from preflight.job import Job
from preflight.memory.device.laws import Laws, laws_for
from preflight.memory.device.resolve import Resolved


def laws_of(job: Job, resolved: Resolved) -> Laws | None:
    """The law of a language model's compiled step on one GPU; None: it does not run compiled, or cannot be traced."""
    if not is_covered(job, resolved):
        return None
    # torchtune's recipes drop what compile_loss returns, so that a loss of whole logits runs as it is (recipes/
    # full_finetune_single_device.py, training/_compile.py); a chunked one is compiled in place.
    kept = "torchtune" in job.software and resolved.setup.get("loss") != "chunked"
    setup = {**resolved.setup, "compile": "layers" if kept else "all"}
    if setup.get("peft"):
        setup["peft"] = {**setup["peft"], "r": job.train.peft.r or 8, "options": dict(job.train.peft.options)}
    # What the partitioner keeps hangs on the sizes themselves, so that a law holds for one batch and one length.
    model = {**resolved.model, "extra": "compile", "steps_with": ["b", "s"]}
    found = laws_for(replace(resolved, family=None, structure={}, setup=setup, model=model), "train")
    return found if isinstance(found, Laws) else None


def is_covered(job: Job, resolved: Resolved) -> bool:
    """Whether a compiled step of this kind can be traced: decoders, on one GPU or copied to each."""
    if not job.train.compile or resolved.law is not None or resolved.task != "causal-lm":
        return False
    return "architecture" in resolved.model and "kind" not in resolved.model and not resolved.model.get("target")
