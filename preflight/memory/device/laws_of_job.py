"""Finding the law of a job's step: one that ships, one in a file of the user, or one that is traced now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from preflight.memory.device.law import store
from preflight.memory.device.law.cast_outputs import with_fp32_outputs
from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.loss_and_kernels import LOG_PROBABILITIES, OF_FP32
from preflight.memory.device.law.workload import Resolved
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.job import Job
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown, brief


def _shifted_more(dims: Mapping[str, int]) -> int:
    """A 16-bit copy of the logits: only the loss of transformers 4.46 to 4.48 has it at its peak (traced laws of both;
    the loss before 4.46 peaks within 0.02 bytes an element of today's)."""
    return 2 * dims.get("b", 0) * dims.get("s", 0) * dims.get("V", 0)


def _wide_products(dims: Mapping[str, int]) -> int:
    """Additional memory of a 4-bit layer that computes in fp32 instead of 16 bits: the widest weight, its
    input and its output in fp32, none of them kept (bitsandbytes, nn/modules.py, Linear4bit.forward;
    autograd/_functions.py, MatMul4Bit). Nothing before 0.47: there the input's dtype replaces fp32
    (set_compute_type)."""
    wide, width = dims.get("f", 0), dims.get("h", 0)
    return 4 * (wide * width + dims.get("b", 0) * dims.get("s", 0) * (wide + width))


_CAST: BoundedCache[Laws] = BoundedCache(64)


def _with_fp32_outputs(laws: Laws) -> Laws:
    """The same law of a model whose outputs are cast: one object for each, which others remember it by."""

    def cast() -> Laws:
        found = Laws.of(replace(laws.made, tape=with_fp32_outputs(laws.made.tape)), laws.shipped, dict(laws.made_by))
        return replace(found, instead=laws.instead, unsure=laws.unsure, spared=laws.spared)

    return _CAST.get(laws, None, cast)


@lru_cache(maxsize=64)
def _prepared(key: store.LawKey, channels_last: bool) -> Laws | None:
    try:
        made = store.load(key)
    except store.StaleLaw:
        return None  # as if it were not there: it is traced where torch is
    return None if made is None else Laws.of(made.laid_out(channels_last), True, store.made_by(key.family))


def _stated(path: Path, key: store.LawKey, tracing: Tracing) -> Laws | Unknown:
    if not tracing.may_read(path):
        return Unknown(
            f"model.law {path} is outside the project: it is not read without --trust {path}", Cause.file_not_found
        )
    if not store.has_file(path):
        return Unknown(f"model.law {path} cannot be read: there is no such file", Cause.file_not_found)
    return _own(path, key)


@lru_cache(maxsize=16)
def _own(path: Path, key: store.LawKey) -> Laws | Unknown:
    """A law from a file of the user's (`preflight model trace -o`, `model.law`)."""
    try:
        made = store.load_file(path, key)
    except store.UnreadableLaw as error:
        return Unknown(f"model.law {path} cannot be read: {error}", Cause.file_not_found)
    except store.StaleLaw as error:
        return Unknown(f"model.law {path} cannot be used: {error}", Cause.no_law)
    except store.NOT_A_LAW as error:
        return Unknown(f"model.law {path} holds no law: {type(error).__name__}: {brief(str(error), 80)}", Cause.no_law)
    if made is None:
        return Unknown(f"model.law {path} holds no law for {key.text}", Cause.no_law)
    return Laws.of(made, False)


def laws_for(resolved: Resolved, kind: str, tracing: Tracing = TRACE) -> Laws | Unknown:
    """The law of a job's step ("train", "eval", "generate"), or why there is none and how to get it."""
    found = _as_traced(resolved, kind, tracing)
    cast = resolved.setup.casts_outputs and kind != "generate" and isinstance(found, Laws)
    return _with_fp32_outputs(found) if cast and isinstance(found, Laws) else found


def _as_traced(resolved: Resolved, kind: str, tracing: Tracing) -> Laws | Unknown:
    key = store.key_of(resolved, kind)
    channels_last = bool(resolved.setup.channels_last)
    found = _prepared(key, channels_last) if resolved.law is None else _stated(Path(resolved.law), key, tracing)
    if found is None and resolved.workload.nearly is not None:
        found = _prepared(replace(key, family=resolved.workload.nearly), channels_last)
    if found is not None:
        return found
    setup = [kind, resolved.setup.weights, resolved.setup.autocast, resolved.setup.attention]
    what = (
        resolved.workload.unshipped
        or f"no law is shipped for {resolved.name} ({', '.join(str(one) for one in setup if one is not None)})"
    )
    foreign = resolved.workload.foreign
    if foreign is not None and not tracing.trusted:
        return Unknown(f"{what}; {foreign} is not a model of timm or torchvision", Cause.no_law)
    from preflight.memory.device import traced_laws

    if not traced_laws.can_trace(tracing):
        other = _nearest_shipped(resolved, kind)
        if other is not None:
            return other
        if not tracing.allowed:
            return Unknown(f"{what}; tracing is off", Cause.cannot_trace)
        return Unknown(
            f"{what}; with torch installed it is traced: pip install 'preflight-lint[trace]', or set `interpreter`",
            Cause.cannot_trace,
        )
    return traced_laws.law_of(key, resolved, kind, tracing, what)


KERNELS_SPARE = {False: 0.32, True: 0.05}
"""The share of a step's bytes that Liger's kernels spare at most, by whether activations are recomputed.

Traced with and without them, in bf16 and fp32, batches of 4 and 32 of 2,048 tokens: Llama 3.2 1B and Qwen 2.5 0.5B
spare 22 to 28 %, Gemma 2B 24 to 31 %; with recomputation they spare nothing.
"""


def _nearest_shipped(resolved: Resolved, kind: str) -> Laws | None:
    """A shipped law whose bytes differ from the law that was asked for by a bounded number, where tracing is
    impossible."""
    if resolved.law is not None:
        return None
    setup, notes, unsure, spared = resolved.setup, [], [], 0.0
    if setup.loss in ("shifted", "shifted-out"):
        release = "releases 4.46 to 4.48" if setup.loss == "shifted" else "releases before 4.46"
        notes.append(f"estimated with the loss of current transformers: no law is shipped for the loss of {release}")
        unsure += [_shifted_more] if setup.loss == "shifted" else []
        setup = replace(setup, loss=None)
    if setup.loss in ("pieces", LOG_PROBABILITIES, OF_FP32):
        notes.append(f"estimated with more of the logits at once: no law is shipped for a loss of {setup.loss}")
        setup = replace(setup, loss="chunked" if setup.loss == "pieces" else None)
    if setup.kernels:
        notes.append("estimated without fused kernels, which keep less: no law is shipped with them")
        spared = KERNELS_SPARE[setup.checkpointing]
        setup = replace(setup, kernels=())
    quantized = setup.quantization
    if quantized is not None and quantized.compute == "fp32" and setup.weights != "fp32":
        setup = replace(setup, quantization=replace(quantized, compute=setup.weights))
        notes.append("estimated with quantised layers that compute in 16 bits: no law is shipped for fp32")
        unsure.append(_wide_products)
    found = _prepared(store.key_of(replace(resolved, setup=setup), kind), False) if notes else None
    if found is None:
        return None
    return replace(
        found, instead="; ".join(notes), unsure=lambda dims: sum(each(dims) for each in unsure), spared=spared
    )


def compiled_laws(job: Job, resolved: Resolved, tracing: Tracing) -> Laws | None:
    """The law of a language model's step under torch.compile, on one GPU, traced where torch is (`tracer/compiled.py`).
    None: the step does not run compiled, or cannot be traced. No such law is shipped: the law of the plain step is then
    used, and the interval reaches as far down as compiling saves (`intervals.COMPILED`)."""
    compiled = resolved.workload.as_compiled() if tracing.compiled and is_covered(job, resolved) else None
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
