"""`python -m preflight`, and the console script: the checked tree is taken off the import path before anything else.

Nothing may be imported above that line but `gc` and `sys`, which are built in, and `preflight.system.import_path`;
`__future__` would be a module, too.
"""

import gc
import sys

from preflight.system import import_path

GARBAGE = (250_000, 20, 20)
"""Nearly all objects of a command live to its end, so the collector runs seldom: after so many new objects. The check
of one file makes 100,000, and one collection of them takes 30 ms."""


def main(as_module: bool = False) -> None:
    """The console script. `as_module`: Python has put the current directory on the path, for `python -m`."""
    import_path.leave_checked_trees_out(sys.argv[1:], as_module)
    try:
        _start()
    except KeyboardInterrupt:  # while modules are imported; `preflight.cli` says it of all that comes later
        from preflight.reports.streams import complain

        complain("preflight: interrupted")
        sys.exit(130)


def _start() -> None:
    gc.set_threshold(*GARBAGE)
    kept = None
    if sys.argv[1:2] == ["check"]:
        from importlib import import_module

        kept = import_module("preflight.engine.result_cache")
        kept.answered(sys.argv[1:])
    from preflight.cli import main as command_line

    command_line(kept.end if kept is not None else None)


if __name__ == "__main__":
    main(as_module=not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)))
