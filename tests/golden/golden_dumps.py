"""The three dumps: how each case is made, and how they are kept (one case a line, keys sorted, compressed)."""

from __future__ import annotations

import gzip
import json
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import adapter
import golden_cases as cases

Plain = dict[str, Any]


@dataclass(frozen=True)
class Dump:
    """One dump: `names` lists its cases, `make` gives the result of one of them."""

    name: str
    names: Callable[[], list[str]]
    make: Callable[[str], Plain]

    @property
    def path(self) -> Path:
        return cases.HERE / f"{self.name}.jsonl.gz"

    def kept(self) -> dict[str, Plain]:
        """Case -> result, as it was written."""
        if not self.path.is_file():
            return {}
        with gzip.open(self.path, "rt", encoding="utf-8") as file:
            return dict(json.loads(line) for line in file)

    def write(self, found: Mapping[str, Plain]) -> None:
        write_lines(self.path, ([name, found[name]] for name in sorted(found)))


def write_lines(path: Path, rows: Iterable[object]) -> None:
    """JSON lines, compressed to the same bytes whenever they are the same."""
    text = "".join(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))


def settled(found: Any) -> Any:
    """The result as it is when it was written and read again."""
    return json.loads(json.dumps(found, sort_keys=True, ensure_ascii=False))


# --- readings ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _projects() -> dict[str, cases.Row]:
    return {row["case"]: row for row in cases.projects()}


def _reading(name: str) -> Plain:
    row = _projects()[name]
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        root = Path(folder).resolve()
        put(root, row["files"])
        return adapter.reading(root, row["named"], row["settings"], row["set"])


def put(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode("utf-8"))


# --- findings ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _examples() -> dict[str, Path | tuple[dict[str, str], Mapping[str, object]]]:
    found: dict[str, Path | tuple[dict[str, str], Mapping[str, object]]] = dict(cases.examples())
    for name, files, options in adapter.rule_examples():
        found[name] = ({path: textwrap.dedent(text).lstrip("\n") for path, text in files.items()}, options)
    return found


def _finding(name: str) -> Plain:
    given = _examples()[name]
    if isinstance(given, Path):
        return summary(adapter.check_folder(given))
    files, options = given
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        root = Path(folder).resolve()
        put(root, files)
        return summary(adapter.check(root, [next(iter(files))], options))


@lru_cache(maxsize=1)
def _corpus() -> dict[str, cases.Row]:
    return {f"{row['id']} {row['repo']}@{row['commit'][:12]}": row for row in cases.corpus()}


def _of_corpus(name: str) -> Plain:
    row = _corpus()[name]
    return summary(adapter.check(cases.checkout(row["repo"], row["commit"]), row["paths"], {}))


def summary(document: Plain) -> Plain:
    """Of the JSON output all that is no sentence: what was found where, at which bytes, with which edits."""
    if "refused" in document:
        return document
    return {
        "findings": adapter.named_apart((f"{one['rule']} {one['path']}", _found(one)) for one in document["findings"]),
        "studies": adapter.named_apart((one["paths"][0], _judged(one)) for one in document["studies"]),
        "files": document["summary"]["files"],
        "refused": document["refused_files"],
    }


def _at(one: Plain) -> str:
    return f"{one['line']}:{one['column']}-{one['end_line']}:{one['end_column']}"


def _found(one: Plain) -> Plain:
    fix = one["fix"]
    return {
        "at": _at(one),
        "severity": one["severity"],
        "confidence": one["confidence"],
        "settings": one["settings"],
        "related": [f"{each['path']}:{each['line']}:{each['column']}" for each in one["related"]],
        **({"bytes": _expected(one["estimate"])} if one["estimate"] is not None else {}),
        "fix": None
        if fix is None
        else {"safety": fix["safety"], "edits": {f"{each['path']}:{_at(each)}": each["text"] for each in fix["edits"]}},
    }


def _expected(estimate: Plain) -> Plain:
    device, host = estimate["device"], estimate["host"]
    return {
        "device": device and device["process"]["expected"],
        "host": host and host["per_node"]["expected"],
    }


def _judged(one: Plain) -> Plain:
    device, host = one["device"], one["host"]
    return {
        "paths": one["paths"],
        "dialects": one["dialects"],
        "combinations": one["combinations"],
        "counts": one["counts"],
        "unknown": one["unknown"],
        "job": _leaves(one["worst"], ""),
        "origins": {field: f"{at['path']}:{at['line']}:{at['column']}" for field, at in one["origins"].items()},
        "device": device
        and {
            "process": [device["process"][end] for end in ("low", "expected", "high")],
            "phase": device["phase"],
            "verdict": device["verdict"],
            "largest_batch_size": device["largest_batch_size"],
        },
        "host": host
        and {
            "per_node": [host["per_node"][end] for end in ("low", "expected", "high")],
            "limit": host["limit"],
            "verdict": host["verdict"],
        },
    }


@lru_cache(maxsize=1)
def _usual() -> Plain:
    return _flat(adapter.usual_job(), "")


def _leaves(job: Plain, prefix: str) -> Plain:
    """The fields of a Job that are not as they are in one that says nothing."""
    return {name: value for name, value in _flat(job, prefix).items() if _usual().get(name) != value}


def _flat(value: Plain, prefix: str) -> Plain:
    found: Plain = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found


# --- laws -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _models() -> dict[str, tuple[str, str]]:
    return {name: (family, task) for name, family, task in adapter.models()}


@lru_cache(maxsize=1)
def _measured() -> dict[str, tuple[str, ...]]:
    """Model -> the setups under which its interval is kept: one by its name, all for the first of many families."""
    setups = tuple(cases.SETUPS)
    chosen: dict[str, tuple[str, ...]] = {}
    families: set[str] = set()
    for name, (family, _) in _models().items():
        whole = family not in families and len(families) < cases.WHOLE_FAMILIES
        families.add(family)
        chosen[name] = setups if whole else (setups[crc32(name.encode()) % len(setups)],)
    return chosen


def _keys(name: str) -> Plain:
    task = _models()[name][1]
    found: Plain = {setup: {"key": adapter.law_of(cases.job(name, task, setup))} for setup in cases.SETUPS}
    found["validation"]["eval"] = adapter.law_of(cases.job(name, task, "validation"), "eval")
    return found


def _intervals(name: str) -> Plain:
    task = _models()[name][1]
    return {setup: {"process": _process(name, task, setup)} for setup in _measured()[name]}


def _process(name: str, task: str, setup: str) -> list[int] | str:
    try:
        return adapter.process(cases.job(name, task, setup))
    except Exception as error:  # one setup's crash must not hide the others
        return f"crashed: {type(error).__name__}: {error}"


DUMPS = {
    dump.name: dump
    for dump in (
        Dump("readings", lambda: list(_projects()), _reading),
        Dump("laws", lambda: list(_models()), _keys),
        Dump("bytes", lambda: list(_models()), _intervals),
        Dump("findings", lambda: list(_examples()), _finding),
        Dump("corpus", lambda: list(_corpus()), _of_corpus),
    )
}


def made(dump: str, name: str) -> tuple[str, Plain]:
    """A case with its result, an exception of ours as one."""
    try:
        return name, settled(DUMPS[dump].make(name))
    except Exception as error:
        return name, {"crashed": f"{type(error).__name__}: {error}"}
