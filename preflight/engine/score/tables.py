"""`score`: a table of Jobs in, a table of verdicts out, of the same kind. Ray Data and Spark call it for each batch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import from_json

from preflight.engine.score.columns import COLUMNS, Row

if TYPE_CHECKING:
    from preflight.engine.score.scorer import Scorer

Table = TypeVar("Table")
AT_ONCE = 20_000
"""Rows that are judged together: enough of each kind of job, and a few tens of megabytes."""


def score(table: Table, *, machine: str | None = None, exact: bool = False, scorer: Scorer | None = None) -> Table:
    """Verdicts on a table of Jobs, one row for each row, in the columns of `preflight batch`.

    `table`: an Arrow table or record batch, a pandas DataFrame (columns by dotted Job fields, or with two underscores
    for a dot; null is "not stated"), or a list of mappings. `machine` names the GPU of all rows. `exact` replays every
    row. A row that is no Job has an `error`, and nothing is raised. `scorer` keeps what it learns from call to call;
    without one, the thread's own does.
    """
    judge = scorer or _of_thread(machine, exact)
    given: Any = table
    kind = type(table).__module__.partition(".")[0]
    if kind == "pandas":
        pandas: Any = sys.modules["pandas"]
        rows = given.astype(object).where(given.notna(), None).to_dict("records")
        return pandas.DataFrame(_scored(judge, map(stated, rows)), index=given.index, columns=list(COLUMNS))  # type: ignore[no-any-return]
    if kind == "pyarrow":
        pyarrow: Any = sys.modules["pyarrow"]
        made = arrow if isinstance(table, pyarrow.Table) else partial(arrow, kind=pyarrow.RecordBatch)
        return made(_scored(judge, map(stated, given.to_pylist())))  # type: ignore[no-any-return]
    return _scored(judge, given)  # type: ignore[return-value]


_SCORERS = threading.local()


def _of_thread(machine: str | None, exact: bool) -> Scorer:
    """The scorer of this thread, which keeps kinds of jobs from call to call."""
    from preflight.engine.score.scorer import Scorer

    mine: dict[tuple[str | None, bool], Scorer] = _SCORERS.__dict__.setdefault("of", {})
    if (machine, exact) not in mine:
        mine.clear()  # a question at a time: what another needed is let go
        mine[machine, exact] = Scorer(machine, exact)
    return mine[machine, exact]


def arrow(rows: list[Row], kind: Any = None) -> Any:
    """Verdicts as an Arrow table, or as another kind of its; its schema does not depend on the rows."""
    import pyarrow

    types = {str: pyarrow.string(), int: pyarrow.int64()}
    schema = pyarrow.schema([(name, types[of]) for name, (of, _) in COLUMNS.items()])
    return (kind or pyarrow.Table).from_pylist(rows, schema=schema)


def _scored(judge: Scorer, rows: Iterable[object]) -> list[Row]:
    found: list[Row] = []
    part: list[object] = []
    for row in rows:
        part.append(row)
        if len(part) == AT_ONCE:
            found += judge.score(part)
            part = []
    return found + judge.score(part)


def parsed(text: bytes) -> object:
    """What JSON says. Raises ValueError, for what is nested more than 200 deep as well."""
    return from_json(text)


def stated(row: Mapping[str, object]) -> dict[str, object]:
    """A row of columns as a Job: without those that state nothing, and with a dot for two underscores, since some
    engines have no dots in names of columns."""
    return {name.replace("__", "."): value for name, value in _known(row).items()}


def _known(row: Mapping[str, object]) -> dict[str, object]:
    """What is not null; pandas makes floats of integers beside a null."""
    return {
        name: int(value) if type(value) is float and value.is_integer() else value
        for name, value in (
            (name, _known(value) if isinstance(value, Mapping) else value) for name, value in row.items()
        )
        if value is not None
    }
