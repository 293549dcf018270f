"""Interpolations of OmegaConf as expressions: `${a.b}`, `${.sibling}`, `${oc.env:X,1}`, `${eval:'${a} * 2'}`.

Nothing is run. Resolvers that only compute are emulated with `preflight.vocabulary.values.OPERATIONS`; the value of any
other resolver is unknown. Grammar: omegaconf/grammar (2.3); the built-in resolvers: omegaconf/resolvers/oc.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from preflight.dialects.hydra.arithmetic import EXPRESSIONS, FUNCTIONS, arithmetic
from preflight.dialects.hydra.parse import InterpolatedKey, Literal, Part, ResolverCall, Sequence, parse, primitive
from preflight.dialects.hydra.tree import ConfigTable, Item, Leaf, Listing, Path, select, split_key
from preflight.vocabulary.budgets import RESOLVED_CHARACTERS, RESOLVED_DEPTH
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown, Value, unknown

_UNKNOWABLE: Mapping[str, str] = {
    "now": "the time of the run", "device_count": "how many GPUs the program sees", "cwd": "the working directory",
    "uuid": "a random value", "random": "a random value", "hostname": "the machine's name",
}  # fmt: skip


class Resolver(Struct):
    """Resolves the values of one composed configuration. `loops` collects paths that refer to each other in a cycle."""

    root: ConfigTable
    choices: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Expr] = field(default_factory=dict)
    loops: dict[Path, tuple[Path, ...]] = field(default_factory=dict)
    _done: dict[Path, Expr] = field(default_factory=dict)
    _open: list[Path] = field(default_factory=list)

    def leaf(self, leaf: Leaf, path: Path) -> Expr:
        """The expression for the leaf at `path`."""
        if leaf.expr is not None:
            return leaf.expr
        if leaf.missing:
            return unknown("??? (it must be given on the command line)", leaf.origin, Cause.not_set)
        if not leaf.interpolated:
            return Const(leaf.value, leaf.origin)
        if path in self._done:
            return self._done[path]
        if path in self._open or len(self._open) > RESOLVED_DEPTH:
            return self._loop(path, leaf.origin)
        self._open.append(path)
        try:
            found = self._text(str(leaf.value), leaf.origin, path)
        finally:
            self._open.pop()
        self._done[path] = found
        return found

    def item(self, item: Item, path: Path) -> Expr:
        """A leaf, a list or a whole table as one expression."""
        if isinstance(item, Leaf):
            return self.leaf(item, path)
        parts: list[Expr] = []
        if isinstance(item, Listing):
            parts = [self.item(inner, (*path, str(index))) for index, inner in enumerate(item.items)]
            return _folded("tuple", parts, item.origin)
        for name, inner in item.items.items():
            parts += [Const(name), self.item(inner, (*path, name))]
        return _folded("dict", parts, item.origin)

    def _loop(self, path: Path, origin: Origin | None) -> Const:
        at = self._open.index(path) if path in self._open else 0
        chain = (*self._open[at:], path)
        self.loops.setdefault(min(chain), chain)
        return unknown(
            "it refers to itself: " + " -> ".join(".".join(one) for one in chain[:5]), origin, Cause.not_possible
        )

    def _text(self, text: str, origin: Origin | None, path: Path) -> Expr:
        parts = parse(text)
        if parts is None:
            return unknown(f"the interpolation {text!r} is not read", origin)
        if len(parts) == 1:
            return self._part(parts[0], origin, path)
        return _joined([self._part(part, origin, path) for part in parts], origin)

    def _part(self, part: Part, origin: Origin | None, path: Path) -> Expr:
        if isinstance(part, Literal):
            return Const(part.value, _computed(origin))
        if isinstance(part, Sequence):
            return _folded("tuple", [self._argument(one, origin, path) for one in part.items], _computed(origin))
        if isinstance(part, InterpolatedKey):
            return self._lookup(part, origin, path)
        return self._call(part, origin, path)

    def _argument(self, parts: tuple[Part, ...], origin: Origin | None, path: Path) -> Expr:
        found = [self._part(part, origin, path) for part in parts]
        return found[0] if len(found) == 1 else _joined(found, origin)

    def _lookup(self, part: InterpolatedKey, origin: Origin | None, path: Path) -> Expr:
        key = _const_text(self._argument(part.key, origin, path))
        if key is None:
            return unknown("it refers to a name that is unknown", origin)
        target = self._target(key, path)
        return (
            self._at(target, key, origin)
            if target is not None
            else unknown(f"{key} leads out of the configuration", origin, Cause.not_set)
        )

    def _target(self, key: str, path: Path) -> Path | None:
        """The absolute path of a key. One leading dot is the table of the value, each further dot is a table above."""
        dots = len(key) - len(key.lstrip("."))
        if dots > len(path):
            return None
        base = path[: len(path) - dots] if dots else ()
        return (*base, *split_key(key[dots:]))

    def _at(self, target: Path, key: str, origin: Origin | None, default: Expr | None = None) -> Expr:
        item = select(self.root, target)
        if item is None:
            item = self._through(target)
        if item is None:
            return (
                default
                if default is not None
                else unknown(f"{key} is not set in the configuration", origin, Cause.not_set)
            )
        found = self.item(item, target)
        return _via(found, origin)

    def _through(self, target: Path) -> Item | None:
        """An item below a table that is an interpolation: `${a.b}` with `a: ${c}`."""
        for cut in range(len(target) - 1, 0, -1):
            upper = select(self.root, target[:cut])
            if isinstance(upper, Leaf) and upper.interpolated and len(self._open) <= RESOLVED_DEPTH:
                parts = parse(str(upper.value))
                if parts is None or len(parts) != 1 or not isinstance(parts[0], InterpolatedKey):
                    return None
                key = _const_text(self._argument(parts[0].key, upper.origin, target[:cut]))
                inner = self._target(key, target[:cut]) if key is not None else None
                if inner is None or inner == target[:cut]:
                    return None
                return select(self.root, (*inner, *target[cut:]))
        return None

    def _call(self, part: ResolverCall, origin: Origin | None, path: Path) -> Expr:
        name = part.name
        arguments = [self._argument(argument, origin, path) for argument in part.arguments]
        if name in EXPRESSIONS:
            return arithmetic(arguments, _computed(origin))
        if name == "device_count" and "SLURM_GPUS_ON_NODE" in self.environment:
            return _via(Op("int", (self.environment["SLURM_GPUS_ON_NODE"],), origin), origin)
        if name in _UNKNOWABLE:
            return unknown(_UNKNOWABLE[name], origin, Cause.run_time)
        if name in ("oc.env", "env"):
            return self._environment(arguments, origin)
        if name == "oc.decode" and arguments:
            text = _const_text(arguments[0])
            return Const(primitive(text), _computed(origin)) if text is not None else arguments[0]
        if name in ("oc.select", "oc.deprecated") and arguments:
            key = _const_text(arguments[0])
            target = self._target(key, path) if key is not None else None
            if key is None or target is None:
                return unknown(f"the argument of {name} is unknown", origin)
            default = arguments[1] if name == "oc.select" and len(arguments) > 1 else None
            return self._at(target, key, origin, default or (Const(None, origin) if name == "oc.select" else None))
        if name == "oc.dict.keys" and arguments:
            key = _const_text(arguments[0])
            table = select(self.root, split_key(key)) if key is not None else None
            return (
                Const(tuple(table.items), _computed(origin))
                if isinstance(table, ConfigTable)
                else unknown(name, origin)
            )
        if name == "hydra" and arguments:
            return self._hydra(_const_text(arguments[0]) or "", origin)
        if name in FUNCTIONS and arguments:
            return FUNCTIONS[name](arguments, _computed(origin))
        return unknown(f"the program defines the resolver {name}", origin, Cause.out_of_project)

    def _environment(self, arguments: list[Expr], origin: Origin | None) -> Expr:
        """The value of `oc.env`: text that the launch sets, or the default in the file."""
        name = _const_text(arguments[0]) if arguments else None
        if name is not None and name in self.environment:
            return _via(self.environment[name], origin)
        if len(arguments) > 1:
            default = arguments[1]
            if isinstance(default, Const) and default.value is not None and not isinstance(default.value, Unknown):
                return Const(str(default.value), default.origin)
            return default
        return unknown(f"the environment variable {name} is set when the program runs", origin, Cause.run_time)

    def _hydra(self, key: str, origin: Origin | None) -> Expr:
        choice = key.removeprefix("runtime.choices.")
        if choice != key and choice in self.choices:
            return Const(self.choices[choice], _computed(origin))
        target = ("hydra", *split_key(key))
        if select(self.root, target) is not None:
            return self._at(target, f"hydra.{key}", origin)
        return unknown(f"hydra.{key} is set when the program runs", origin, Cause.run_time)


def _via(found: Expr, origin: Origin | None) -> Expr:
    """The same value with one more place in its origin's `via`."""
    if origin is None or found.origin is None:
        return found
    if origin == found.origin or origin in found.origin.via:
        return found
    return replace(found, origin=replace(found.origin, via=(*found.origin.via, replace(origin, via=()))))


def _computed(origin: Origin | None) -> Origin | None:
    return replace(origin, editable=False) if origin is not None else None


def _const_text(expr: Expr) -> str | None:
    if isinstance(expr, Const) and expr.value is not None and isinstance(expr.value, (bool, int, float, str)):
        return str(expr.value)
    return None


def _joined(parts: list[Expr], origin: Origin | None) -> Expr:
    """The concatenation of the parts of one text."""
    for part in parts:
        if isinstance(part, Const) and isinstance(part.value, Unknown):
            return part
    if all(isinstance(part, Const) for part in parts):
        text = "".join(str(part.value) for part in parts if isinstance(part, Const))
        return Const(
            text if len(text) <= RESOLVED_CHARACTERS else Unknown("its text grows without limit", Cause.budget),
            _computed(origin),
        )
    return Op("concat", tuple(parts), _computed(origin))


def _folded(operator: str, parts: list[Expr], origin: Origin | None) -> Expr:
    """A list or dictionary. A list of constants is one constant; a dictionary keeps its parts with their places."""
    if len(parts) > RESOLVED_CHARACTERS:
        return unknown("it has too many parts", origin, Cause.budget)
    whole = Op(operator, tuple(parts), origin)
    value = _constant(whole) if operator == "tuple" or not parts else None
    return whole if value is None else Const(value, origin)


def _constant(expr: Expr) -> Value | None:
    """The value of lists and dictionaries of constants (which may be unknown); None for anything else."""
    if not isinstance(expr, Op) or expr.operator not in ("tuple", "dict"):
        return None
    values: list[Value] = []
    for operand in expr.operands:
        value = operand.value if isinstance(operand, Const) else _constant(operand)
        if value is None and not isinstance(operand, Const):
            return None
        values.append(value)
    if expr.operator == "tuple":
        return tuple(values)
    return {str(key): value for key, value in zip(values[::2], values[1::2], strict=True)}
