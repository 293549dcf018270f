"""Golden dumps: what preflight reads, looks up and finds today, and what differs from that after a change.

    python scripts/golden.py [DUMP]...                 what differs, by kind; exit status 1 if anything does
    python scripts/golden.py DUMP --case 'PATTERN'     every difference of these cases
    python scripts/golden.py DUMP --show 'PATTERN'     the results of these cases as they are now
    python scripts/golden.py [DUMP]... --write         prints what differs, then keeps it as it is now
    python scripts/golden.py --harvest FOLDER          projects.jsonl.gz anew, of what tests/golden/harvest.py kept

DUMP: readings (projects that tests write), laws (what each model's law is filed under), bytes (process intervals),
findings (examples, and those of every rule), corpus (public files; scripts/golden_corpus.py brings them).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "tests" / "golden")]
os.environ["PREFLIGHT_NO_CACHE"] = "1"

import golden_cases  # noqa: E402
import golden_diff  # noqa: E402
import golden_dumps  # noqa: E402


def results(dump: str, names: list[str], processes: int) -> dict[str, Any]:
    """Every case made now."""
    if processes < 2 or len(names) < 8:
        return dict(golden_dumps.made(dump, name) for name in names)
    with ProcessPoolExecutor(processes) as pool:
        return dict(pool.map(golden_dumps.made, [dump] * len(names), names, chunksize=8))


def available(dump: str) -> bool:
    """Whether the cases of a dump are on this machine; says so where they are not."""
    if dump == "corpus" and not golden_cases.has_corpus():
        print(f"corpus: left out, it is not in {golden_cases.CORPUS}: python scripts/golden_corpus.py brings it")
        return False
    return True


def compare(dump: str, options: argparse.Namespace) -> bool:
    """Prints what differs; whether something does that nobody listed."""
    began = time.monotonic()
    wanted = golden_dumps.DUMPS[dump]
    pattern = options.case or options.show
    names = [name for name in wanted.names() if pattern is None or _like(name, pattern)]
    now = results(dump, names, options.processes)
    if options.show is not None:
        print(json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False))
        return False
    kept = wanted.kept()
    if pattern is not None:
        kept = {name: result for name, result in kept.items() if _like(name, pattern)}
    found = golden_diff.differences(kept, now)
    left, covered = golden_diff.split(dump, found, golden_diff.intended())
    for entry, count in covered.items():
        if entry.dump == dump:
            print(f"{dump}: {count} values differ as intended: {entry.why}")
    if options.case is not None:
        print(golden_diff.full(dump, left) or f"{dump}: nothing differs")
    else:
        print(golden_diff.report(dump, left, len({*kept, *now})))
    if options.write:
        wanted.write(now)
        size = wanted.path.stat().st_size
        print(f"{dump}: written, {len(now)} cases, {size:,} bytes, {time.monotonic() - began:.0f} s")
    return bool(left)


def _like(name: str, pattern: str) -> bool:
    return pattern in name or fnmatchcase(name, pattern)


def harvest(folder: Path) -> None:
    """The projects that tests/golden/harvest.py kept, each once, under the name of the first test that wrote it."""
    rows: dict[str, dict[str, Any]] = {}
    for line in sorted(_lines(folder)):
        row = json.loads(line)
        test = row.pop("test")
        rows.setdefault(json.dumps(row, sort_keys=True), {**row, "test": test})
    counts: dict[str, int] = {}
    found = []
    for row in sorted(rows.values(), key=lambda one: json.dumps(one, sort_keys=True)):
        test = row.pop("test")
        counts[test] = counts.get(test, 0) + 1
        found.append({"case": test if counts[test] == 1 else f"{test} #{counts[test]}", **row})
    path = golden_cases.HERE / "projects.jsonl.gz"
    golden_dumps.write_lines(path, sorted(found, key=lambda row: str(row["case"])))
    print(f"{len(found)} projects, {path.stat().st_size:,} bytes")


def _lines(folder: Path) -> Iterable[str]:
    for path in folder.glob("*.jsonl"):
        with path.open(encoding="utf-8") as file:
            yield from file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="*", metavar="DUMP", choices=[*golden_dumps.DUMPS, []])
    parser.add_argument("--write", action="store_true", help="keep the results as they are now")
    parser.add_argument("--case", metavar="PATTERN", help="every difference of these cases")
    parser.add_argument("--show", metavar="PATTERN", help="the results of these cases as they are now")
    parser.add_argument("--harvest", type=Path, metavar="FOLDER", help="make projects.jsonl.gz")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.write and (options.case or options.show):
        parser.error("--write keeps whole dumps")
    if options.harvest is not None:
        harvest(options.harvest)
        return 0
    dumps = [dump for dump in options.dumps or golden_dumps.DUMPS if available(dump)]
    differing = [dump for dump in dumps if compare(dump, options)]
    return int(bool(differing) and not options.write)


if __name__ == "__main__":
    raise SystemExit(main())
