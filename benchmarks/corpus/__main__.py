"""`python -m benchmarks.corpus bring|run|report`: preflight on public repositories, and docs/results/corpus.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import document
from benchmarks.corpus.bring import bring
from benchmarks.corpus.git_files import HOST
from benchmarks.corpus.repositories import GROUPS, UnknownName, cache, chosen, listed
from benchmarks.corpus.run import ROOT, Limits, run

PAGE = ROOT / "docs" / "results" / "corpus.md"
GIB = 2**30


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("names", nargs="*", metavar="NAME", help="OWNER/NAME or NAME (default: all)")
    common.add_argument("--group", choices=GROUPS, help="those of one group")
    bringing = commands.add_parser("bring", parents=[common], help="bring the files of repositories that are missing")
    bringing.add_argument("--from", dest="source", metavar="URL|FOLDER", default=HOST, help=f"default: {HOST}")
    running = commands.add_parser("run", parents=[common], help="check those that have no result yet")
    running.add_argument("--jobs", type=int, default=1, metavar="N", help="repositories at once (default 1)")
    running.add_argument("--time-limit", type=int, default=600, metavar="S", help="seconds each (default 600)")
    running.add_argument("--memory-limit", type=int, default=16, metavar="GIB", help="of address space (default 16)")
    running.add_argument("--gpu", default="", metavar="NAME", help="the GPU that is stated (default: none)")
    running.add_argument("--no-cache", action="store_true", help="check those again that have a result")
    reporting = commands.add_parser("report", parents=[common], help=f"write docs/{PAGE.name} from the results")
    reporting.add_argument("--output", type=Path, default=PAGE, metavar="FILE")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        repositories = chosen(listed(), options.names, options.group)
    except UnknownName as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.command == "bring":
        missed = bring(repositories, options.source)
        print(f"{len(repositories) - len(missed)} of {len(repositories)} repositories are in {cache() / 'checkouts'}")
        for line in missed:
            print(f"missing: {line}", file=sys.stderr)
        return int(bool(missed))
    if options.command == "run":
        os.nice(5)
        limits = Limits(options.time_limit, options.memory_limit * GIB)
        run(repositories, options.jobs, limits, options.no_cache, options.gpu)
        return 0
    return document.write(repositories, options.output)


if __name__ == "__main__":
    raise SystemExit(main())
