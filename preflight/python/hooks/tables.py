"""pandas: the tables that a program reads from files beside it, and the arrays of their columns."""

from __future__ import annotations

from collections.abc import Mapping

from preflight.python.arrays import array_of, dtype_of, make, new
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.files import find_file, path_text
from preflight.python.hooks import arrays
from preflight.python.objects import Abstract, CallRecord, Instance
from preflight.python.tables import Table, names_in, table_of
from preflight.python.tabular import TEXT, Columns, read_csv
from preflight.vocabulary.values import Const

_PLAIN = frozenset({"sep", "encoding", "engine", "low_memory"})
"""Arguments of `read_csv` that leave rows, columns and their types as the file has them."""


def _known(found: Columns | None, record: CallRecord, ev: Evaluator) -> Instance | None:
    if found is None:
        return None
    return Table(record, ev, Const(found.rows, record.origin), found.types, found.width).made()


def _file(record: CallRecord, ev: Evaluator, name: str) -> str | None:
    text = path_text(ev, record.object(name, 0))
    return find_file(ev, text, record) if text is not None else None


def _read_csv(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`pd.read_csv(path)`, without arguments that change rows or columns."""
    path = _file(record, ev, "filepath_or_buffer")
    if path is None or len(record.arguments) > 1 or not _PLAIN.issuperset(record.keywords):
        return None
    separator = record.argument("sep")
    mark = ev.value_of(separator) if separator is not None else ","
    return _known(read_csv(ev, path, mark), record, ev) if isinstance(mark, str) and len(mark) == 1 else None


def _drop(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`table.drop(columns=["y"])`, `table.drop("y", axis=1)`"""
    table, axis = table_of(record.receiver_object), record.argument("axis", 1)
    by_column = axis is not None and ev.value_of(axis) in (1, "columns")
    names = names_in(record.object("columns") or (record.object("labels", 0) if by_column else None), ev)
    return table.without(names) if table is not None and names is not None else None


def _to_numpy(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`table.to_numpy(dtype)`, `column.to_numpy()`"""
    table = table_of(record.receiver_object)
    array = array_of(table.matrix() if table is not None else record.receiver_object)
    given = record.object("dtype", 0)
    kind = dtype_of(given, "numpy") if given is not None else None
    if array is None or (given is not None and kind is None):
        return record.receiver_object if table is not None and not table.types else None
    return make(record, array if kind is None else new(array, dtype=kind))


def _same(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`table.astype(dtype)`, `table.copy()`: a table of the same rows; an array's own method else."""
    table = table_of(record.receiver_object)
    if table is None:
        hook = arrays.HOOKS.get(f"*.{record.method}")
        return hook(record, ev) if hook is not None else None
    if record.method == "astype":
        kind = dtype_of(record.object("dtype", 0), "numpy")
        return table.of_type(kind) if kind is not None and table.types and TEXT not in table.types.values() else None
    return record.receiver_object


HOOKS: Mapping[str, Hook] = {
    **dict.fromkeys(("*.astype", "*.copy", "*.fillna", "*.reset_index", "*.sort_values"), _same),
    "pandas.read_csv": _read_csv, "*.drop": _drop, "*.to_numpy": _to_numpy,
}  # fmt: skip
