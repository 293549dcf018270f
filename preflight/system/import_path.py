"""Which places modules may be imported from: none in a tree that is checked, for its files may be a stranger's.

Python puts the current directory on its path for `python -m`, and whatever PYTHONPATH names, where an empty entry is
the current directory again. This module runs before any other, while those entries are still there. So it imports only
`sys`, which is built in, and `os`, which every Python has imported at its start; it has no `from __future__`.
"""

import os
import sys


def leave_checked_trees_out(words: list[str], as_module: bool = False) -> None:
    """Take off `sys.path` what PYTHONPATH put there of the checked trees, and with `as_module` its first entry.

    `words` are those of the command line: the trees that they name are checked, and so is the current directory's.
    What an installation put there stays: an environment inside the tree, and what is installed in editable mode.
    """
    stated = os.environ.get("PYTHONPATH", "")
    given = {os.path.abspath(entry) for entry in stated.split(os.pathsep)} if stated else set()
    if as_module and sys.path:
        given.add(sys.path[0])
    trees = checked_trees(words)
    sys.path[:] = [
        entry for entry in sys.path if os.path.isabs(entry) and not (entry in given and foreign(entry, trees))
    ]


def checked_trees(words: list[str]) -> list[str]:
    """Real paths of the checkouts of the current directory and of every word that names a file or a directory."""
    found = []
    for word in [os.curdir, *words]:
        try:
            if os.path.exists(word):
                found.append(_checkout(os.path.realpath(word)))
        except ValueError:  # a word with a zero byte
            continue
    return found


def foreign(entry: str, trees: list[str]) -> bool:
    """Whether an entry of a path leads into a checked tree, to something else than what is installed there."""
    if not os.path.isabs(entry):
        return True
    real = os.path.realpath(entry)
    around = [tree for tree in trees if inside(real, tree)]
    return bool(around) and not any(
        inside(real, home) and inside(home, tree) for home in _installed() for tree in around
    )


def inside(path: str, folder: str) -> bool:
    """Whether a real path is a folder's, or the folder itself."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _checkout(path: str) -> str:
    """The version-controlled tree of a path, else its own folder. A home directory under version control is no tree:
    all that a user has installed lies in it."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    home, here = os.path.realpath(os.path.expanduser("~")), folder
    while True:
        if here == home:
            return folder
        if os.path.lexists(os.path.join(here, ".git")):
            return here
        above = os.path.dirname(here)
        if above == here:
            return folder
        here = above


def _installed() -> list[str]:
    """Where this Python and this preflight are installed."""
    homes = [sys.prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    user = getattr(sys.modules.get("site"), "USER_SITE", None)
    return [os.path.realpath(home) for home in [*homes, *([user] if user else [])]]
