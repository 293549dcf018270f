"""Starts the program: `python main.py SETTINGS`. Everything is in place, and preflight knows it, before its first line.

Nothing here depends on PYTHONPATH, sitecustomize or any other variable of the environment: the program is run by this
file, as `python PROGRAM` or `python -m MODULE` would.
"""

from __future__ import annotations

import importlib.util
import os
import sys

PACKAGE = "preflight_dry_run"


def _load_package() -> None:
    """This folder as a package under a name that no program has."""
    here = os.path.dirname(os.path.abspath(__file__))
    init = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[here])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    if sys.path and os.path.abspath(sys.path[0]) == here:
        del sys.path[0]


if __name__ == "__main__":
    _load_package()
    from preflight_dry_run.run import main  # type: ignore[import-not-found]

    main(sys.argv[1])
