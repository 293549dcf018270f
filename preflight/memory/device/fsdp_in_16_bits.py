"""The law of a model that FSDP gathers in 16 bits: its step is that of a model which is stored in them.

The embedding is gathered in 16 bits as the layers are, and what enters a layer is cast (MixedPrecisionPolicy:
param_dtype, cast_forward_inputs; FSDP1's MixedPrecision likewise). So the residual stream, and what is kept of it, has
2 bytes an element, where autocast over weights in fp32 has 4. Shards, their gradients and states stay in fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import MadeLaw, ParameterRow, Parameters
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.laws_of_job import laws_for
from preflight.memory.device.parallel.layout import ShardLayout
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.caches import BoundedCache
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.tracing import Tracing
from preflight.vocabulary.values import Unknown

SAME_UNDER_AUTOCAST = frozenset(["gemma", "gemma2", "llama", "olmo2", "phi3", "qwen2", "qwen3"])
"""Families whose step over 16-bit weights is the same with autocast (which Trainer uses with FSDP) and without:
norms are written out (traced both ways: tests/memory/device/test_fsdp_in_16_bits.py). Autocast computes other families'
norms in fp32; these keep the law of weights in fp32, which has more."""
HALF, SINGLE = 2, 4
_STORED: BoundedCache[Laws] = BoundedCache(64)


def laws_of(job: Job, layout: ShardLayout, resolved: Resolved, gpu: Gpu | None, tracing: Tracing) -> Laws | None:
    """The law of the training step under such a layout; None: the job's own holds."""
    if not layout.scheme.startswith("fsdp") or layout.param_bytes != HALF or not _whole_fp32(job, resolved):
        return None
    precision = job.train.precision or ""
    mixed = precision.endswith("-mixed")
    if mixed and (resolved.family is None or resolved.family.name not in SAME_UNDER_AUTOCAST):
        return None
    cast = {"precision": precision.removesuffix("-mixed") if mixed else "bf16", "weights_dtype": None}
    as_stored = resolve(job.model_copy(update={"train": job.train.model_copy(update=cast)}), gpu, tracing)
    if isinstance(as_stored, Unknown):
        return None
    laws = laws_for(as_stored, "train", tracing)
    return None if isinstance(laws, Unknown) else _in_fp32(laws)


def _whole_fp32(job: Job, resolved: Resolved) -> bool:
    setup = resolved.setup
    plain = setup.weights == "fp32" and setup.peft is None and setup.quantization is None
    return plain and resolved.family is not None and resolved.like is None and not job.train.frozen


def _in_fp32(laws: Laws) -> Laws:
    """The same law of weights that are stored in fp32: one object for each, which others remember it by."""
    p = laws.made.parameters

    def stored() -> Laws:
        rows = Parameters(_rows(p.outside), _stacks(p.layer), _stacks(p.first), p.buffers)
        return replace(laws, made=MadeLaw(laws.made.tape, rows))

    return _STORED.get(laws, None, stored)


def _rows(rows: Iterable[ParameterRow]) -> tuple[ParameterRow, ...]:
    return tuple((size, SINGLE if nbytes == HALF else nbytes, trains) for size, nbytes, trains in rows)


def _stacks(stacks: Mapping[str, tuple[ParameterRow, ...]]) -> dict[str, tuple[ParameterRow, ...]]:
    return {name: _rows(rows) for name, rows in stacks.items()}
