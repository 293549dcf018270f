"""The laws of one job: shipped ones, or traced ones where torch is there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from preflight.memory.device.fit import cache
from preflight.memory.device.fit.make import CannotMake, Made
from preflight.memory.device.fit.subprocess import TraceError, can_trace, request_traces
from preflight.memory.device.law import store
from preflight.memory.device.law.law import Law
from preflight.memory.device.law.tape import NotRegular, expand
from preflight.memory.device.step.convolution import without_workspaces
from preflight.memory.device.workload import Resolved
from preflight.system import observed
from preflight.system.regular import UnreadableFile
from preflight.vocabulary.bounded_cache import BoundedCache
from preflight.vocabulary.tracing import TRACE, Tracing
from preflight.vocabulary.values import Cause, Unknown, brief


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


def _stated(path: Path, key: store.LawKey, tracing: Tracing) -> Laws | Unknown:
    if not tracing.may_read(path):
        return Unknown(
            f"model.law {path} lies outside the project: it is not read without --trust {path}", Cause.file_not_found
        )
    if not observed.is_file(path):
        return Unknown(f"model.law {path} cannot be read: there is no such file", Cause.file_not_found)
    return _own(path, key)


@lru_cache(maxsize=16)
def _own(path: Path, key: store.LawKey) -> Laws | Unknown:
    """A law from a file of the user's (`preflight model trace -o`, `model.law`)."""
    try:
        made = store.load_file(path, key)
    except UnreadableFile as error:
        return Unknown(f"model.law {path} cannot be read: {error}", Cause.file_not_found)
    except store.StaleLaw as error:
        return Unknown(f"model.law {path} cannot be used: {error}", Cause.no_law)
    except (OSError, EOFError, zlib.error, ArithmeticError, AttributeError, ValueError, LookupError, TypeError,
            RecursionError) as error:  # fmt: skip
        return Unknown(f"model.law {path} holds no law: {type(error).__name__}: {brief(str(error), 80)}", Cause.no_law)
    if made is None:
        return Unknown(f"model.law {path} holds no law for {key.text}", Cause.no_law)
    return Laws.of(made, False)


TRACED: BoundedCache[Laws | Unknown] = BoundedCache(256)
"""Laws that were traced in this process, by interpreter and what was asked for."""


def laws_for(resolved: Resolved, kind: str, tracing: Tracing = TRACE) -> Laws | Unknown:
    """The law of a job's step ("train", "eval", "generate"), or why there is none and how to get it."""
    key = store.key_of(resolved, kind)
    channels_last = bool(resolved.setup.channels_last)
    found = _prepared(key, channels_last) if resolved.law is None else _stated(Path(resolved.law), key, tracing)
    if found is None and resolved.workload.nearly is not None:
        found = _prepared(replace(key, family=resolved.workload.nearly), channels_last)
    if found is not None:
        return found
    setup = f"{resolved.setup.weights}/{resolved.setup.autocast}/{resolved.setup.attention}"
    what = f"no law is shipped for {resolved.name} ({kind}, {setup})"
    foreign = resolved.workload.foreign
    if foreign is not None and not tracing.trusted:
        return Unknown(f"{what}; {foreign} is not a model of timm or torchvision", Cause.no_law)
    if not can_trace(tracing):
        other = _stand_in(resolved, kind)
        if other is not None:
            return other
        if not tracing.allowed:
            return Unknown(f"{what}; tracing is off", Cause.cannot_trace)
        return Unknown(
            f"{what}; with torch it is traced: pip install 'preflight-lint[trace]', or set `interpreter`",
            Cause.cannot_trace,
        )
    if resolved.family is not None:  # one law for all models of a family
        name = f"{key.family} {key.text}"
    else:
        name = repr((resolved.workload.wire(), resolved.setup.wire(), kind, resolved.fixed))

    def traced_law() -> Laws | Unknown:
        try:
            made, versions = _kept_or_traced(name, key, resolved, kind, tracing)
        except (TraceError, CannotMake, NotRegular) as error:
            return Unknown(f"{what}, and tracing failed: {error}", Cause.cannot_trace)
        return Laws.of(_ordered(made, channels_last), False, versions)

    return TRACED.get(None, (tracing.interpreter, name), traced_law)


def _stand_in(resolved: Resolved, kind: str) -> Laws | None:
    """A shipped law that differs from what was asked for by a bounded number of bytes, where nothing can be traced."""
    if resolved.law is not None:
        return None
    setup, notes, unsure = resolved.setup, [], []
    if setup.loss in ("shifted", "shifted-out"):
        release = "4.46 to 4.48" if setup.loss == "shifted" else "before 4.46"
        notes.append(f"the loss is that of today's transformers: no law is shipped of how it was {release}")
        unsure += [_shifted_more] if setup.loss == "shifted" else []
        setup = replace(setup, loss=None)
    quantized = setup.quantization
    if quantized is not None and quantized.compute == "fp32" and setup.weights != "fp32":
        setup = replace(setup, quantization=replace(quantized, compute=setup.weights))
        notes.append("quantised layers compute in 16 bits here: no law is shipped of fp32")
        unsure.append(_wide_products)
    found = _prepared(store.key_of(replace(resolved, setup=setup), kind), False) if notes else None
    if found is None:
        return None
    return replace(found, instead="; ".join(notes), unsure=lambda dims: sum(each(dims) for each in unsure))


def _kept_or_traced(asked: str, key: store.LawKey, resolved: Resolved, kind: str,
                    tracing: Tracing) -> tuple[Made, Mapping[str, str]]:  # fmt: skip
    """The law, from an earlier trace of the same where there is one, and the versions of what made it."""
    if resolved.workload.foreign is not None:
        return _trace(resolved, kind, tracing)  # code of the user's changes without a version
    found = cache.read(asked, key, tracing.interpreter)
    if found is None:
        found = _trace(resolved, kind, tracing)
        cache.write(asked, key, tracing.interpreter, *found)
    return found


def _trace(resolved: Resolved, kind: str, tracing: Tracing) -> tuple[Made, dict[str, str]]:
    """The law, and the versions of what made it."""
    versions: dict[str, str] = {}

    def run(traces: Any) -> list[dict[str, Any]]:
        with tracing.shown(resolved.name):
            replies, found = request_traces(traces, tracing.interpreter)
        versions.update(found)
        return replies

    return resolved.workload.make(resolved, kind, run), versions
