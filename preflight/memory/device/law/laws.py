"""The laws of one job: shipped ones, or traced ones where torch is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from preflight.memory.device.fit import pairwise_loss
from preflight.memory.device.fit.batch_one import make_law
from preflight.memory.device.fit.few_traces import make_sparse
from preflight.memory.device.fit.make import CannotMake, Made
from preflight.memory.device.fit.one_model import FREE, make_at
from preflight.memory.device.fit.subprocess import TRACING, TraceError, has_torch, request_traces
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.tape import NotRegular, expand
from preflight.memory.device.resolve import Resolved
from preflight.memory.device.step.convolution import without_workspaces
from preflight.memory.device.workloads import speech
from preflight.vocabulary.values import Cause, Unknown

_LIBRARIES = ("timm:", "torchvision:")
"""Targets that are built without importing code of the user's."""


def none_unsure(dims: Mapping[str, int]) -> int:
    """A law is its own."""
    return 0


def _shifted_more(dims: Mapping[str, int]) -> int:
    """A 16-bit copy of the logits: what the loss of transformers 4.46 to 4.48 has more than today's at its peak (traced
    laws of both; the loss before 4.46 peaks within 0.02 bytes an element of today's)."""
    return 2 * dims.get("b", 0) * dims.get("s", 0) * dims.get("V", 0)


def _wide_products(dims: Mapping[str, int]) -> int:
    """What a 4-bit layer that computes in fp32 makes beside one that computes in 16 bits: the widest weight, its input
    and its output in fp32, none of them kept (bitsandbytes, nn/modules.py, Linear4bit.forward; autograd/_functions.py,
    MatMul4Bit). Nothing before 0.47: there the input's dtype replaces fp32 (set_compute_type)."""
    wide, width = dims.get("f", 0), dims.get("h", 0)
    return 4 * (wide * width + dims.get("b", 0) * dims.get("s", 0) * (wide + width))


@dataclass(frozen=True)
class Laws:
    """One job's law of a kind of step: the tape, and its readings without and with accumulated gradients."""

    made: Made
    plain: Law
    accumulating: Law
    shipped: bool
    with_outputs: tuple[Law, Law]
    made_by: tuple[tuple[str, str], ...] = ()
    """Versions of what traced it."""
    instead: str = ""
    """What was asked for, where this law stands in for it."""
    unsure: Callable[[Mapping[str, int]], int] = none_unsure
    """Bytes that the law of what was asked for may have more, at dimensions."""

    @classmethod
    def of(cls, made: Made, shipped: bool, made_by: Mapping[str, str] | None = None) -> Laws:
        tape = made.tape
        kept = (Law(tape, False, True), Law(tape, True, True))
        return cls(made, Law(tape), Law(tape, True), shipped, kept, tuple(sorted((made_by or {}).items())))

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """What the model returns, beside the loss: indices of the sizes of its storages."""
        tape = self.made.tape
        literal = (item.blocks[0] for item in tape.items if item.stack is None)
        return tuple(token.at for block in literal for token in block if token.kind == "b" and "o" in token.mark)

    def held(self, dims: Mapping[str, int]) -> int:
        """Bytes of what lives as long as the loss has a name."""
        tape = self.made.tape
        if not any("h" in t.mark for item in tape.items for block in item.blocks for t in block if t.kind == "b"):
            return 0
        sizes = tape.values(dims)
        return sum(sizes[size] for kind, _, size, mark, _ in expand(tape, dims) if kind == "b" and "h" in mark)

    def reading(self, accumulating: bool, outputs_kept: bool) -> Law:
        """The law without or with gradients of earlier micro-steps, and without or with outputs kept."""
        return self.with_outputs[accumulating] if outputs_kept else (self.plain, self.accumulating)[accumulating]


@lru_cache(maxsize=64)
def _prepared(key: store.LawKey, channels_last: bool) -> Laws | None:
    try:
        made = store.load(key)
    except store.StaleLaw:
        return None  # as if it were not there: it is traced where torch is
    return None if made is None else Laws.of(_ordered(made, channels_last), True, store.made_by(key.family))


def _ordered(made: Made, channels_last: bool) -> Made:
    return replace(made, tape=without_workspaces(made.tape)) if channels_last else made


@lru_cache(maxsize=16)
def _own(path: Path, key: store.LawKey) -> Laws | Unknown:
    """A law from a file of the user's (`preflight model trace -o`, `model.law`)."""
    try:
        made = store.load_file(path, key)
    except (OSError, ValueError, KeyError, store.StaleLaw) as error:
        return Unknown(f"model.law {path} cannot be read: {error}", Cause.file_not_found)
    if made is None:
        return Unknown(f"model.law {path} holds no law for {key.text}", Cause.no_law)
    return Laws.of(made, False)


_TRACED: dict[str, Laws | Unknown] = {}


def laws_for(resolved: Resolved, kind: str) -> Laws | Unknown:
    """The law of a job's step ("train", "eval", "generate"), or why there is none and how to get it."""
    key = store.key_of(resolved, kind)
    channels_last = bool(resolved.setup.get("channels_last"))
    found = _prepared(key, channels_last) if resolved.law is None else _own(Path(resolved.law), key)
    nearly = speech.nearly(key.family)
    if found is None and nearly is not None:
        found = _prepared(replace(key, family=nearly), channels_last)
    if found is not None:
        return found
    setup = "/".join(str(resolved.setup[k]) for k in ("weights", "autocast", "attention"))
    what = f"no law is shipped for {resolved.name} ({kind}, {setup})"
    target = resolved.model.get("target")
    if target is not None and not str(target).startswith(_LIBRARIES) and not TRACING.trusted:
        return Unknown(f"{what}; {target} is not a model of {' or '.join(x[:-1] for x in _LIBRARIES)}", Cause.no_law)
    if not TRACING.allowed or not has_torch(TRACING.interpreter):
        other = _stand_in(resolved, kind)
        if other is not None:
            return other
    if not TRACING.allowed:
        return Unknown(f"{what}; tracing is off", Cause.cannot_trace)
    if not has_torch(TRACING.interpreter):
        return Unknown(
            f"{what}; with torch it is traced: pip install 'preflight-lint[trace]', or set `interpreter`",
            Cause.cannot_trace,
        )
    free = _free(resolved)
    fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
    name = repr((resolved.model, resolved.setup, kind, fixed))
    if resolved.family is not None:  # one law for all models of a family
        name = f"{key.family} {key.text}"
    if name not in _TRACED:
        try:
            made, versions = _kept_or_traced(name, key, resolved, kind)
            _TRACED[name] = Laws.of(_ordered(made, channels_last), False, versions)
        except (TraceError, CannotMake, NotRegular) as error:
            _TRACED[name] = Unknown(f"{what}, and tracing failed: {error}", Cause.cannot_trace)
    return _TRACED[name]


def _stand_in(resolved: Resolved, kind: str) -> Laws | None:
    """A shipped law that differs from what was asked for by a bounded number of bytes, where nothing can be traced."""
    if resolved.law is not None:
        return None
    setup, notes, unsure = dict(resolved.setup), [], []
    loss = setup.get("loss")
    if loss in ("shifted", "shifted-out"):
        del setup["loss"]
        release = "4.46 to 4.48" if loss == "shifted" else "before 4.46"
        notes.append(f"the loss is that of today's transformers: no law is shipped of how it was {release}")
        unsure += [_shifted_more] if loss == "shifted" else []
    quantized = setup.get("quantization")
    if quantized and quantized.get("compute") == "fp32" and setup["weights"] != "fp32":
        setup["quantization"] = {**quantized, "compute": setup["weights"]}
        notes.append("quantised layers compute in 16 bits here: no law is shipped of fp32")
        unsure.append(_wide_products)
    found = _prepared(store.key_of(replace(resolved, setup=setup), kind), False) if notes else None
    if found is None:
        return None
    return replace(found, instead="; ".join(notes), unsure=lambda dims: sum(each(dims) for each in unsure))


def _kept_or_traced(asked: str, key: store.LawKey, resolved: Resolved, kind: str) -> tuple[Made, Mapping[str, str]]:
    """The law, from an earlier trace of the same where there is one, and the versions of what made it."""
    from preflight.memory.device.fit import cache

    if not str(resolved.model.get("target", _LIBRARIES[0])).startswith(_LIBRARIES):
        return _trace(resolved, kind)  # code of the user's changes without a version
    found = cache.read(asked, key, TRACING.interpreter)
    if found is None:
        found = _trace(resolved, kind)
        cache.write(asked, key, TRACING.interpreter, *found)
    return found


def _trace(resolved: Resolved, kind: str) -> tuple[Made, dict[str, str]]:
    """The law, and the versions of what made it."""
    versions: dict[str, str] = {}

    def run(traces: Any) -> list[dict[str, Any]]:
        replies, found = request_traces(traces, TRACING.interpreter)
        versions.update(found)
        return replies

    if resolved.family is not None:
        return make_law(resolved.family, resolved.task, kind, resolved.setup, resolved.structure, run), versions
    if resolved.model.get("kind") == "pictures":
        from preflight.memory.device.workloads import vision_language  # which needs what is here

        return vision_language.make(resolved, kind, run), versions
    if pairwise_loss.applies(resolved):
        return pairwise_loss.make(resolved, kind, run), versions
    if "filed" in resolved.model:  # its traces take long: as few as can be
        from preflight.memory.device.workloads import registry  # which need what is here

        fixed = {name: value for name, value in resolved.all_dims.items() if name not in ("b", "L", "M")}
        return make_sparse(registry.request(resolved, kind), ("b",), run, fixed, registry.depths(resolved)), versions
    return make_at(resolved.model, kind, resolved.setup, resolved.lengths, run, _free(resolved)), versions


def _free(resolved: Resolved) -> list[str]:
    """Lengths that a traced law is a function of: not those in which the model's own step moves by steps."""
    return [name for name in FREE if name not in resolved.model.get("steps_with", ())]
