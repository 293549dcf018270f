"""What differs between two dumps, said so that one sees at a glance which study changed and how."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ABSENT = "(absent)"
NAMED = ("studies", "findings", "problems", "skipped", "edits", "boxes", "links")
"""Below these stand names of a case's own: files, numbers. The same difference in many cases has other names there."""
PLACES = ("at", "via", "origins", "losers", "related", "insert_at")


@dataclass(frozen=True)
class Difference:
    """One value of one case that is not as it was."""

    case: str
    field: tuple[str, ...]
    old: Any
    new: Any

    @property
    def path(self) -> str:
        return " / ".join(self.field)

    @property
    def kind(self) -> tuple[str, str, str]:
        """What it has in common with the same difference of other cases: of places only that they moved."""
        moved = any(part in PLACES for part in self.field) and ABSENT not in (self.old, self.new)
        names = (*NAMED, "fields", "axes", "facts") if moved else NAMED
        general = " / ".join(
            _general(self.field[number - 1], part) if number and self.field[number - 1] in names else part
            for number, part in enumerate(self.field)
        )
        if not moved:
            return general, said(self.old), said(self.new)
        for part in PLACES:  # the places of a request's options stand below it
            general = f"{general.partition(f' / {part} / ')[0]} / {part}" if f" / {part} / " in general else general
        same = _file(self.old) == _file(self.new)
        return general + (" (moved)" if same else " (in another file)"), "", ""


def _file(place: Any) -> str:
    return str(place).partition(":")[0]


def _general(above: str, part: str) -> str:
    return f"{part.split(' ')[0]} *" if above in ("findings", "problems") else "*"


def said(value: Any) -> str:
    if value == ABSENT:
        return ABSENT
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 160 else text[:120] + f"... ({len(text)} characters)"


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that holds no other, with the keys that lead to it; an empty mapping is one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, str(number)))
    else:
        yield path, value


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON too: True is not 1, and 1 is not 1.0."""
    return one is other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """All that differs between two dumps of the same cases."""
    found = []
    for case in sorted({*old, *new}):
        if case not in old or case not in new:
            found.append(
                Difference(case, ("the case itself",), *((ABSENT, "new") if case in new else ("kept", ABSENT)))
            )
            continue
        if not alike(old[case], new[case]):
            found += _within(case, old[case], new[case])
    return found


def _within(case: str, old: Any, new: Any) -> Iterator[Difference]:
    before, after = dict(leaves(old)), dict(leaves(new))
    gone, come = _whole(before, after), _whole(after, before)
    for field in [*before, *(field for field in after if field not in before)]:
        one, other = before.get(field, ABSENT), after.get(field, ABSENT)
        if not alike(one, other) and not any(field[: len(part)] == part for part in (*gone, *come)):
            yield Difference(case, field, one, other)
    yield from (Difference(case, part, _short(old, part), ABSENT) for part in gone)
    yield from (Difference(case, part, ABSENT, _short(new, part)) for part in come)


def _whole(here: Mapping[tuple[str, ...], Any], there: Mapping[tuple[str, ...], Any]) -> list[tuple[str, ...]]:
    """The shortest paths under which nothing stands on the other side: a study or a finding that is gone as a whole."""
    known = {field[:end] for field in there for end in range(len(field) + 1)}
    found: dict[tuple[str, ...], None] = {}
    for field in here:
        for end in range(1, len(field)):
            if field[:end] not in known:
                found.setdefault(field[:end])
                break
    return list(found)


def _short(whole: Any, path: Sequence[str]) -> Any:
    """A part of a result; of a large one what names it."""
    for key in path:
        whole = whole[int(key)] if isinstance(whole, list) else whole[key]
    if isinstance(whole, dict) and len(said(whole)) > 150:
        return {key: whole[key] for key in ("value", "at", "severity", "paths", "dialects") if key in whole} or "(much)"
    return whole


# --- intended differences ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intended:
    """A difference that is meant: in `dump`, cases and fields of these patterns, and why."""

    dump: str
    case: str
    field: str
    why: str

    def covers(self, dump: str, one: Difference) -> bool:
        return self.dump == dump and fnmatchcase(one.case, self.case) and fnmatchcase(one.path, self.field)


def intended(path: Path = HERE / "intended.toml") -> tuple[Intended, ...]:
    """The differences that intended.toml lists."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("intended", [])
    return tuple(Intended(row["dump"], row.get("case", "*"), row.get("field", "*"), row["why"]) for row in rows)


def split(
    dump: str, found: Iterable[Difference], meant: Sequence[Intended]
) -> tuple[list[Difference], dict[Intended, int]]:
    """Differences that nobody listed, and how many each entry of the list covers."""
    left, covered = [], dict.fromkeys(meant, 0)
    for one in found:
        entry = next((entry for entry in meant if entry.covers(dump, one)), None)
        if entry is None:
            left.append(one)
        else:
            covered[entry] += 1
    return left, covered


# --- what is printed --------------------------------------------------------------------------------------------------


def report(dump: str, found: Sequence[Difference], cases: int, shown: int = 40) -> str:
    """Kinds of differences, the most frequent first, each with cases to look at."""
    if not found:
        return f"{dump}: {cases} cases, nothing differs"
    kinds: dict[tuple[str, str, str], list[Difference]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    touched = len({one.case for one in found})
    lines = [f"{dump}: {touched} of {cases} cases differ, in {len(found)} values of {len(kinds)} kinds"]
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    for (field, _, _), members in ordered[:shown]:
        first = members[0]
        apart = sorted({one.case for one in members})
        lines += [
            f"  {field}",
            f"      {said(first.old)} -> {said(first.new)}",
            f"      in {len(apart)} case{'s' * (len(apart) != 1)}: {'; '.join(apart[:3])}{' ...' * (len(apart) > 3)}",
        ]
    if len(ordered) > shown:
        lines.append(f"  and {len(ordered) - shown} kinds more")
    lines.append(f"one case in full: python scripts/golden.py {dump} --case '{found[0].case}'")
    return "\n".join(lines)


def full(dump: str, found: Sequence[Difference]) -> str:
    """Every difference, case by case."""
    lines = []
    for case in dict.fromkeys(one.case for one in found):
        lines.append(f"{dump}: {case}")
        lines += [f"  {one.path}: {said(one.old)} -> {said(one.new)}" for one in found if one.case == case]
    return "\n".join(lines)
