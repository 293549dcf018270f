"""Arguments by name, each with its place: those of a call, a file or a command, else the tool's default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.program.bindings import bind, constant, first_origin, is_constant
from preflight.python.objects import CallRecord
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Const, Expr, Origin, Scalar, Unknown, Value


class Arguments:
    """Arguments by dotted names (`fsdp_config.version`): the given value, else the default of the library's version.

    `rank` is that of values which are given: None where it follows from the expression, as in a program.
    """

    def __init__(
        self,
        given: Mapping[str, Expr],
        defaults: Mapping[str, Scalar] | None = None,
        empty: Mapping[str, Origin | None] | None = None,
        rank: Rank | None = Rank.read,
        call: CallRecord | None = None,
    ) -> None:
        self.given, self.defaults = dict(given), defaults or {}
        self.empty = empty or {}
        """Places of keys without a value; they count as not given."""
        self.rank, self.call = rank, call

    def completed(self, more: Mapping[str, Expr], defaults: Mapping[str, Scalar] | None = None) -> Arguments:
        """The arguments with further ones, or with other defaults."""
        defaults = self.defaults if defaults is None else defaults
        return Arguments({**self.given, **more}, defaults, self.empty, self.rank, self.call)

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def get(self, name: str, default: Value = None) -> Expr:
        """The value with its place; a default has none."""
        return self.given.get(name) or Const(self.defaults.get(name, default))

    __getitem__ = get

    def value(self, name: str) -> Value:
        """The plain value; None if it is not given, Unknown if it depends on something else."""
        return constant(self.get(name))

    def some(self, name: str) -> bool:
        """Whether the value is not false, empty or zero; an unknown value counts."""
        value = self.value(name)
        return isinstance(value, Unknown) or bool(value)

    def origin(self, name: str) -> Origin | None:
        """Where the value is written; of an argument that a call does not have, the place of the call."""
        return first_origin(self.given.get(name)) or self.empty.get(name) or (self.call.origin if self.call else None)

    def bind(self, field: str, name: str, expr: Expr | None = None) -> Binding:
        """The field takes the argument's value (or `expr`, made of it); a default has a default's rank."""
        value = self[name] if expr is None else expr
        used = name in self.given or not is_constant(value)
        return bind(field, value, None if used else Rank.default, first_origin(self[name]))

    def inner(self, name: str) -> Arguments:
        """The keys of an argument that is a mapping, each with its place if it has one."""
        whole, prefix = self.given.get(name), f"{name}."
        value = constant(whole) if whole is not None else None
        found = dict(flattened(value, first_origin(whole))) if isinstance(value, Mapping) else {}
        placed = {key.removeprefix(prefix): expr for key, expr in self.given.items() if key.startswith(prefix)}
        return Arguments(found | placed)


def arguments_of_call(record: CallRecord, signature: Sequence[str] = ()) -> Arguments:
    """Arguments of a call; `signature` are the names of its parameters by position."""
    given = {**dict(zip(signature, record.args, strict=False)), **record.kwargs}
    empty = {name: first_origin(expr) for name, expr in given.items() if constant(expr) is None}
    return Arguments({k: v for k, v in given.items() if k not in empty}, None, empty, None, record)


def flattened(top: Mapping[str, Value], place: Origin | None) -> Iterator[tuple[str, Expr]]:
    """The keys of a mapping at one place in a file; those of inner mappings have dotted names."""
    for name, value in top.items():
        yield str(name), Const(value, place)
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", expr) for key, expr in flattened(value, place))
