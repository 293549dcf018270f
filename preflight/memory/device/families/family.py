"""A family of models: its dimensions, and their keys in a Hugging Face config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

Config: TypeAlias = "Mapping[str, Any]"
Dims: TypeAlias = "dict[str, int]"
Named: TypeAlias = "Mapping[str, tuple[int, Mapping[str, int]]]"


class Coincidence(Struct, frozen=True):
    """Dimensions that are equal, or one, where the model's code then takes another path: these need a separate law.

    It is a part of a law's key, `name`=`value` or `name`=`otherwise`. `holds` says so of dimensions. `drops` gives the
    dimensions that are no longer free, from the others; `named` replaces what is made of base variables in another way.
    """

    name: str
    value: object
    holds: Callable[[Mapping[str, int]], bool]
    drops: Mapping[str, Callable[[Mapping[str, int]], int]]
    named: Named = field(default_factory=dict)
    otherwise: object = False


class Family(Struct, frozen=True):
    """One `model_type` of transformers, or a part of it.

    `named`: dimension -> (constant, {base variable: exponent}), see `fit.primes.Basis`. `config`: dimensions -> config
    keys. `dims`: a model's config -> dimensions (lengths excluded). `depths`: the list of layers in the module tree
    (its last component) -> the dimension that counts it. `structure`: config keys that change the tape itself, with
    their default: part of a law's key.
    """

    name: str
    tasks: tuple[str, ...]
    named: Named
    config: Callable[[Mapping[str, int]], dict[str, Any]]
    dims: Callable[[Config], Dims]
    depths: Mapping[str, str]
    structure: Mapping[str, object]
    lengths: tuple[str, ...] = ("s",)
    padded: bool = True
    """Whether batches may carry a padding mask."""
    attentions: tuple[str, ...] = ("sdpa", "eager")
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    """Default targets of adapters: peft's (peft.utils.constants), or the usual ones of this family."""
    architecture: str = ""
    """The `model_type`, where the family's own name is another."""
    coincidences: tuple[Coincidence, ...] = ()
    tokens: int = 1
    """Tokens in addition to an image's patches (class, distillation, registers)."""

    @property
    def model_type(self) -> str:
        return self.architecture or self.name

    @property
    def usual(self) -> dict[str, object]:
        """Structure of a model with the defaults of its config, where no dimensions coincide."""
        return {**self.structure, **{one.name: one.otherwise for one in self.coincidences}}

    def coinciding(self, dims: Mapping[str, int]) -> dict[str, object]:
        """The part of a law's key for equal dimensions (coincidences)."""
        holding = {one.name: one.value for one in self.coincidences if one.holds(dims)}
        return {**{one.name: one.otherwise for one in self.coincidences}, **holding}

    def at(self, structure: Mapping[str, object]) -> Family:
        """The family with the dimensions that are left free where the coincidences of `structure` hold."""
        found = self
        for one in self.coincidences:
            if structure.get(one.name) == one.value:
                found = found._where(one)
        return found

    def _where(self, one: Coincidence) -> Family:
        whole = self.config

        def config(dims: Mapping[str, int]) -> dict[str, Any]:
            filled = dict(dims)
            for name, value in one.drops.items():
                filled[name] = value(filled)
            return whole(filled)

        again = {name: made for name, made in one.named.items() if name in self.named}
        named = {name: made for name, made in {**self.named, **again}.items() if name not in one.drops}
        return replace(self, named=named, config=config)

    def switches(self, structure: Mapping[str, object]) -> dict[str, object]:
        """The part of `structure` that is written into a config."""
        names = {one.name for one in self.coincidences}
        return {key: value for key, value in structure.items() if key not in names}


class Spelling(Struct, frozen=True):
    """How the dimensions of one stack of layers stand in a config: dimension -> (key, default). A key with the default
    None must be there.

    `width`: key and default of the width, which is heads x head size; None: the width is a dimension in `keys`.
    `multiples`: dimension -> (key, factor), of those whose default is so many widths. `fixed`: keys with one value.
    `heads`, `size`: the names of the numbers of heads and of the head size.
    """

    width: tuple[str, int | None] | None
    keys: Mapping[str, tuple[str, int | None]]
    multiples: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    heads: str = "a"
    size: str = "d"

    def config(self, x: Mapping[str, int]) -> dict[str, Any]:
        """The config of a model with these dimensions."""
        width = {} if self.width is None else {self.width[0]: x[self.heads] * x[self.size]}
        named = {**self.keys, **self.multiples}
        return {**width, **{key: x[name] for name, (key, _) in named.items()}, **self.fixed}

    def dims(self, c: Config) -> Dims:
        """The dimensions of a model with this config. Raises KeyError for a key that must be there."""
        found = {name: _value(c, *spelled) for name, spelled in self.keys.items()}
        if self.width is not None:
            width = _value(c, *self.width)
            found[self.size] = width // found[self.heads]
            found |= {name: c.get(key) or factor * width for name, (key, factor) in self.multiples.items()}
        return found


def _value(c: Config, key: str, default: int | None) -> int:
    value: int = c[key] if default is None else c.get(key, default)
    return value


def var(name: str, constant: int = 1, **more: int) -> tuple[int, dict[str, int]]:
    """A dimension made of base variables: constant x name x more."""
    return constant, {name: 1, **more}


B_S = {"b": var("b"), "s": var("s")}
"""Batch and length."""
HEAD = var("e", 8)
"""Head size: whole multiples of 8 (kernels pad other sizes)."""
GROUPED = "grouped"
"""Whether several heads share keys and values (the name in a law's key)."""
ALL_HEADS = Coincidence(
    GROUPED, False, lambda x: x["k"] == x["a"], {"k": lambda x: x["a"]}, {"a": var("g"), "h": var("u", g=1)}, True
)
"""As many key-value heads as heads: nothing is repeated for groups of them."""
ONE_HEAD = Coincidence(
    GROUPED, "one", lambda x: x["k"] == 1 < x["a"], {"k": lambda x: 1}, {"a": var("g"), "h": var("u", g=1)}, True
)
"""One key-value head for all: a view instead of a copy for each head."""
SAME_EMBEDDING = Coincidence(
    "embedding", "width", lambda x: x["E"] == x["a"] * x["d"], {"E": lambda x: x["a"] * x["d"]}
)
"""Embeddings as wide as the layers: nothing projects one to the other."""
