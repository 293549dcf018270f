"""The request of a trace, and the law that is made from traces: a symbolic tape and the model's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.sizes import Size, evaluate
from preflight.memory.device.law.tape import Tape, without_workspaces
from preflight.vocabulary.caches import BoundedCache

Runner: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], "list[dict[str, Any]]"]
"""Runs the requested traces, and returns the tracer's replies."""
ParameterRow: TypeAlias = "tuple[Size, float, bool]"
"""Elements, bytes per element, trainable: of one parameter, as formulas."""
Weight: TypeAlias = "tuple[int, float, bool]"
"""The same at dimensions. A fraction of a byte per element where weights are quantised."""

FREE = ("b", "s", "t")
"""Lengths that the tape of a model which is traced when it is asked for is a function of."""
PROBE_LAYERS = 6
CHECK_LAYERS = 8
"""Layers of the traces that a law is made of, and of the one that it is checked against."""
DEPTH_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def depth_key(model: Mapping[str, Any]) -> str | None:
    """The config key that counts a model's layers, where it has more of them than a probe. None for a model that is
    traced `whole`, because what is asked for names layers by their number."""
    if model.get("whole"):
        return None
    config = model.get("config") or {}
    return next((k for k in DEPTH_KEYS if isinstance(config.get(k), int) and config[k] > CHECK_LAYERS), None)


class Parameters(Struct, frozen=True):
    """A model's parameters as formulas: (elements, bytes per element, trainable) for those outside stacks and, per
    stack, for one layer; `buffers` in bytes."""

    outside: tuple[ParameterRow, ...]
    layer: Mapping[str, tuple[ParameterRow, ...]]
    first: Mapping[str, tuple[ParameterRow, ...]]
    """Parameters that only the first layer of a stack has, in addition."""
    buffers: Size = ()

    def sizes(self, depths: Mapping[str, str], dims: Mapping[str, int]) -> tuple[Weight, ...]:
        """Every parameter at dimensions: one object for all batches and lengths, so that what is made of it is kept."""
        names = _NAMES.get(self, None, self._names)
        key = tuple(dims[name] for name in names), tuple(dims[depths[stack]] for stack in self.layer)
        return _SIZES.get(self, key, lambda: tuple(self._sizes(depths, dims)))

    def _names(self) -> tuple[str, ...]:
        """The dimensions that the parameters depend on."""
        rows = (*self.outside, *(row for rows in (*self.layer.values(), *self.first.values()) for row in rows))
        return tuple(sorted({name for size, _, _ in rows for _, monomial in size for name, _ in monomial}))

    def _sizes(self, depths: Mapping[str, str], dims: Mapping[str, int]) -> list[Weight]:
        found = [(evaluate(size, dims), nbytes, trainable) for size, nbytes, trainable in self.outside]
        for stack, rows in self.layer.items():
            first = self.first.get(stack, ())
            found += [(evaluate(size, dims), nbytes, trainable) for size, nbytes, trainable in first]
            one = [(evaluate(size, dims), nbytes, trainable) for size, nbytes, trainable in rows]
            found += one * dims[depths[stack]]
        return found


_NAMES: BoundedCache[tuple[str, ...]] = BoundedCache(64)
_SIZES: BoundedCache[tuple[Weight, ...]] = BoundedCache(64)


class MadeLaw(Struct, frozen=True):
    """The result of the traces of one setup."""

    tape: Tape
    parameters: Parameters

    def laid_out(self, channels_last: bool) -> MadeLaw:
        """The law with images in the layout of a job: with channels last, convolutions need no workspaces."""
        return replace(self, tape=without_workspaces(self.tape)) if channels_last else self


class TraceRequest(Struct, frozen=True):
    """The request to the tracer, without the point. `model`: as the tracer is told of it; `kind`: of step;
    `warm_up`: whether the second step is traced."""

    model: Mapping[str, Any]
    setup: Setup
    kind: str
    warm_up: bool = False

    def at(self, point: Mapping[str, int], config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The request at a point. `config`: of the model there, where it is another than that of `model`."""
        model = dict(self.model) if config is None else {**self.model, "config": dict(config)}
        return {
            "model": model,
            "setup": self.setup.wire(point),
            "point": dict(point),
            "kind": self.kind,
            "warm_up": self.warm_up,
        }


class Depth(Struct, frozen=True):
    """A stack of equal layers: the suffix of its module, the key of the config that counts it, and what its depth is
    called among the dimensions."""

    stack: str
    key: str
    name: str
