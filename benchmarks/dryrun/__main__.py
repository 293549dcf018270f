"""The commands of this benchmark: `agreement` (against the laws) and `run` (public scripts)."""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("agreement", "run"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_intermixed_args()
    names = tuple(asked.names)
    if asked.what == "agreement":
        from benchmarks.dryrun.agreement import compared, shown

        failed = 0
        for found in compared(names, asked.python):
            print(shown(found), flush=True)
            failed += not found.agrees
        return int(failed > 0)
    from benchmarks.dryrun.scripts import results

    for line in results(names, asked.python):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
