"""`python -m preflight`, and the console script: the checked tree is taken off the import path before anything else.

Nothing may be imported above that line but `sys` and `preflight.system.import_path`; `__future__` would be a module,
too.
"""

import sys

from preflight.system import import_path


def main(as_module: bool = False) -> None:
    """The console script. `as_module`: Python has put the current directory on the path, for `python -m`."""
    import_path.leave_checked_trees_out(sys.argv[1:], as_module)
    kept = None
    if sys.argv[1:2] == ["check"]:
        from importlib import import_module

        kept = import_module("preflight.engine.result_cache")
        kept.answered(sys.argv[1:])
    from preflight.cli import main as command_line

    command_line(kept.end if kept is not None else None)


if __name__ == "__main__":
    main(as_module=not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)))
