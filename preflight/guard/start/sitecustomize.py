"""Python imports this at its start, because `preflight run` put its folder first in PYTHONPATH.

It loads the recorder when the program imports torch, and then the `sitecustomize` that it stands before, if there is
one. An error here is one line, and the program runs unrecorded.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "preflight_guard"


def _load_package() -> None:
    """The folder above as a package under a name that no program has."""
    import importlib.util

    home = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)


def _chain() -> None:
    """The user's own sitecustomize, which is further down the path."""
    import importlib.machinery
    import importlib.util

    elsewhere = [one for one in sys.path if os.path.abspath(one or os.curdir) != _HERE]
    sys.path[:] = elsewhere
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start() -> None:
    _load_package()
    from preflight_guard import start_up  # type: ignore[import-not-found]

    start_up.install()


if os.environ.get("PREFLIGHT_RUN_RECORDS") and os.environ.get("PREFLIGHT_GUARD") != "off":
    try:
        _start()
    except Exception as error:
        sys.stderr.write(f"preflight run: this process is not recorded: {type(error).__name__}: {error}\n")
_chain()
