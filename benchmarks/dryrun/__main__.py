"""The commands of this benchmark: `agreement` (against the laws), `run` (public scripts), `strangers` (both)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("agreement", "run", "strangers"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--into", type=Path, help="file that results are added to (default: results.jsonl)")
    parser.add_argument("--environment", default="", help="what is kept with each result about its interpreter")
    asked = parser.parse_intermixed_args()
    names = tuple(asked.names)
    if asked.what == "agreement":
        from benchmarks.dryrun.agreement import compared, shown

        failed = 0
        for found in compared(names, asked.python):
            print(shown(found), flush=True)
            failed += not found.agrees
        return int(failed > 0)
    if asked.what == "strangers":
        from benchmarks.dryrun import strangers

        for line in strangers.compared(names, asked.python, asked.into or strangers.COMPARED):
            print(line, flush=True)
        return 0
    from benchmarks.dryrun.scripts import RESULTS, results

    for line in results(names, asked.python, asked.into or RESULTS, asked.environment):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
