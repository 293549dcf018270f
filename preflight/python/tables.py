"""Tables as the static evaluator knows them: their rows, and their columns with the types of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.python.arrays import Array, arithmetic, make
from preflight.python.evaluator import Evaluator
from preflight.python.objects import Abstract, CallRecord, Instance, is_expr, sequence, to_expr
from preflight.python.tabular import TEXT
from preflight.vocabulary.values import Const, Expr

TABLE = "table"
"""The key of an object's state for its `Table`."""
_OBJECT = 57
"""Bytes of a str of ASCII and of the pointer to it (CPython 3.11), beside its characters."""


class Table:
    """What is known of a table, in the state of its object: how its arrays and the tables of its columns are made."""

    def __init__(self, record: CallRecord, ev: Evaluator, rows: Expr, types: Mapping[str, str], width: int) -> None:
        self.record, self.ev, self.rows, self.types, self.width = record, ev, rows, types, width

    def made(self) -> Instance:
        """The table as an object: its columns are its attributes, as pandas has them."""
        made = Instance(self.record.qualified, record=self.record, origin=self.record.origin)
        made.state |= {TABLE: self, "length": self.rows}
        for name, kind in self.types.items():
            size = arithmetic(self.ev, "*", self.rows, Const(_OBJECT + self.width))
            one = make(self.record, Array((size,), "uint8", "numpy") if kind == TEXT else self._array((), kind))
            assert one is not None
            if kind == TEXT:  # no array of numbers: an object that keeps so much
                one = Instance("pandas.texts", attributes={"texts": one}, origin=self.record.origin)
                one.state |= {TABLE: Table(self.record, self.ev, self.rows, {}, 0), "length": self.rows}
            made.attributes[name] = one
        return made

    def _array(self, more: tuple[Expr, ...], kind: str) -> Array:
        return Array((self.rows, *more), kind, "numpy")

    def attribute(self, name: str) -> Abstract | None:
        """`table.values`, `table.columns`, `table.shape`, `len(table)`."""
        if name in ("columns", "column_names"):
            return sequence([Const(one) for one in self.types], "list", self.record.origin)
        if name == "shape":
            return sequence([self.rows, Const(len(self.types))], "tuple", self.record.origin)
        return self.matrix() if name == "values" else None

    def matrix(self) -> Instance | None:
        """All columns as one array, which a table of texts is not."""
        kinds = set(self.types.values())
        if not kinds or TEXT in kinds:
            return None
        kind = kinds.pop() if len(kinds) == 1 else "float64" if kinds <= {"int64", "int32", "float64"} else None
        return make(self.record, self._array((Const(len(self.types)),), kind)) if kind is not None else None

    def select(self, names: Sequence[str]) -> Instance | None:
        """The table of some of its columns."""
        if not all(name in self.types for name in names):
            return None
        return Table(self.record, self.ev, self.rows, {one: self.types[one] for one in names}, self.width).made()

    def without(self, names: Sequence[str]) -> Instance | None:
        known = all(name in self.types for name in names)
        return self.select([one for one in self.types if one not in names]) if known else None

    def of_type(self, kind: str) -> Instance:
        """The table with all columns of one type, as `astype` gives it."""
        return Table(self.record, self.ev, self.rows, dict.fromkeys(self.types, kind), self.width).made()

    def computed(self) -> Instance | None:
        """What arithmetic with fractions makes of it: numbers of single precision alone stay so."""
        kinds = set(self.types.values())
        if not kinds or TEXT in kinds:
            return None
        return self.of_type("float32" if kinds == {"float32"} else "float64")


_OF_COLUMNS = ("mean", "std", "min", "max", "median", "sum", "var", "abs")


def computed(left: Abstract, right: Abstract) -> Instance | None:
    """`(table - table.mean()) / table.std()`: of a table and a number, or of what was computed of its columns."""
    one, other = table_of(left), right
    if one is None:
        one, other = table_of(right), left
    made_by = other.made_by.rpartition(".")[2] if isinstance(other, Instance) else ""
    fits = made_by in _OF_COLUMNS or (isinstance(other, Const) and isinstance(other.value, (int, float)))
    return one.computed() if one is not None and fits else None


def table_of(value: Abstract | None) -> Table | None:
    found = value.state.get(TABLE) if isinstance(value, Instance) else None
    return found if isinstance(found, Table) else None


def names_in(given: Abstract | None, ev: Evaluator) -> list[str] | None:
    """The texts of a list, or of one text; None where they are not all known."""
    one = ev.value_of(to_expr(given)) if given is not None and is_expr(given) else None
    if given is None or isinstance(one, str):
        return [one] if isinstance(one, str) else None
    found = [ev.value_of(to_expr(item)) if is_expr(item) else None for item in ev.iterate(given) or ()]
    return [str(name) for name in found] if found and all(isinstance(name, str) for name in found) else None
