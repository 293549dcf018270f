"""Inputs that try to stop preflight: in this process, through the command line, and fixes that are killed.

    python scripts/fuzz.py [--inputs N] [--commands N] [--kills N]     reads so many; exit status 1 if anything is wrong
    python scripts/fuzz.py --minutes M                                 stops after M minutes, and says how far it came
    python scripts/fuzz.py --show NUMBER                               the files of one input, and what becomes of them

`--seed` begins another sequence. `--processes` work at a time (default 1). PREFLIGHT_CORPUS names a folder of public
repositories (scripts/golden_corpus.py) whose files are changed too. `--write FILE` keeps what was wrong, a row a line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "rules"), str(ROOT / "tests" / "fuzz")]
os.environ["PREFLIGHT_NO_CACHE"] = "1"
os.environ["PREFLIGHT_DEBUG"] = "1"

import fuzz_commands  # noqa: E402
import fuzz_inputs  # noqa: E402
import fuzz_kills  # noqa: E402
import fuzz_readers  # noqa: E402
import fuzz_seeds  # noqa: E402
import fuzz_workers  # noqa: E402

AT_A_TIME = {"inputs": fuzz_workers.TURN, "commands": 50, "kills": 20}


def main() -> int:
    options = _options()
    home = Path(fuzz_workers.scratch())
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(home / "own")
    try:
        if options.show is not None:
            return _show(options, home)
        return _run(options, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in AT_A_TIME:
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=24 * 60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first number")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kind", choices=[*fuzz_inputs.WEIGHTS], help="inputs of one kind alone")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--show", type=int, metavar="NUMBER")
    return parser.parse_args()


def _readers(options: argparse.Namespace, home: Path) -> dict[str, fuzz_workers.Read]:
    fuzz_workers.import_everything()
    fuzz_seeds.texts()
    if options.kills:
        fuzz_kills.fixable()
    fuzz_readers.watch()

    def inputs(number: int) -> str:
        one = fuzz_inputs.made(options.seed, number, options.kind)
        fuzz_readers.read(one, home / str(number), number)
        return one.kind

    def commands(number: int) -> str:
        return fuzz_commands.run(options.seed, number, home / f"c{number}")

    def kills(number: int) -> str:
        return fuzz_kills.run(options.seed, number, home / f"k{number}")

    return {"inputs": inputs, "commands": commands, "kills": kills}


def _run(options: argparse.Namespace, home: Path) -> int:
    end = time.monotonic() + 60 * options.minutes
    readers = _readers(options, home)
    wrong = 0
    for name, size in AT_A_TIME.items():
        wanted = getattr(options, name)
        if wanted:
            wrong += _part(name, range(options.start, options.start + wanted), size, readers[name], options, end)
    return int(wrong > 0)


def _part(
    name: str, numbers: range, size: int, read: fuzz_workers.Read, options: argparse.Namespace, end: float
) -> int:
    tally = fuzz_workers.Tally()
    said = time.monotonic()
    for row in fuzz_workers.run(_turns(numbers, size), read, options.processes, _after(end)):
        tally.add(row)
        if "why" in row:
            print(f"{name} {row['number']}: {row['why']}: {str(row['words']).strip().splitlines()[-1:]}", flush=True)
            if options.write is not None:
                with options.write.open("a") as file:
                    file.write(json.dumps({"part": name, "seed": options.seed, **row}) + "\n")
        if time.monotonic() > said + 60:
            said = time.monotonic()
            print(f"  {tally.count:,} {name}, {len(tally.wrong)} wrong", flush=True)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tally.read.most_common())
    slow = ", ".join(f"{seconds:.1f} s ({kind} {number})" for seconds, number, kind in tally.slowest[:3])
    print(
        f"{name}: {tally.count:,} read in {tally.cpu:,.0f} s of CPU, {len(tally.wrong)} wrong ({kinds}); slowest {slow}"
    )
    return len(tally.wrong)


def _turns(numbers: range, size: int) -> Iterator[range]:
    for start in range(numbers.start, numbers.stop, size):
        yield range(start, min(start + size, numbers.stop))


def _after(end: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > end


def _show(options: argparse.Namespace, home: Path) -> int:
    one = fuzz_inputs.made(options.seed, options.show, options.kind)
    fuzz_readers.put(one.files, Path(f"fuzz-{options.show}"))
    print(f"{one.kind}: fuzz-{options.show}/{next(iter(one.files), '')}")
    fuzz_readers.watch()
    start = time.process_time()
    fuzz_readers.read(one, home / str(options.show), options.show)
    print(f"nothing wrong, {time.process_time() - start:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
