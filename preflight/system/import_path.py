"""The places from which modules may be imported: none in a checked tree, whose files anyone may have written.

Python's path has the current directory for `python -m`, and the entries of PYTHONPATH, of which an empty one is the
current directory, too. This module runs before any other, while those entries are still there. So it imports only
`sys`, which is built in, and `os`, which every Python imports at its start; it has no `from __future__`.
"""

import os
import sys


def leave_checked_trees_out(words: list[str], as_module: bool = False) -> None:
    """Remove the entries of `sys.path` that PYTHONPATH added from checked trees, and with `as_module` its first entry.

    `words` are the words of the command line. The trees that they name are checked, and that of the current directory.
    Entries of an installation stay: of an environment inside the tree, and of projects installed in editable mode.
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
    """Real paths of the trees of the current directory and of every word that names a file or directory."""
    found = []
    for word in [os.curdir, *words, *_standard_input(words)]:
        try:
            if os.path.exists(word):
                found.append(_checkout(os.path.realpath(word)))
        except ValueError:  # a word with a zero byte
            continue
    return found


def _standard_input(words: list[str]) -> list[str]:
    """The folder of the file that standard input is checked as. The file need not exist."""
    found = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name == "--stdin-filename":
            found.append(os.path.dirname(os.path.abspath(value if equals else following)))
    return found


def foreign(entry: str, trees: list[str]) -> bool:
    """Whether an entry of a path is in a checked tree and belongs to no installation there."""
    if not os.path.isabs(entry):
        return True
    real = os.path.realpath(entry)
    around = [tree for tree in trees if inside(real, tree)]
    return bool(around) and not any(
        inside(real, home) and inside(home, tree) for home in _installed() for tree in around
    )


def inside(path: str, folder: str) -> bool:
    """Whether a real path is in a folder, or is the folder itself."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _checkout(path: str) -> str:
    """The version-controlled tree of a path, else its own folder. A home directory under version control is no tree:
    everything that a user installs is in it."""
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
    """The folders in which this Python and this preflight are installed."""
    homes = [sys.prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]
    user = getattr(sys.modules.get("site"), "USER_SITE", None)
    return [os.path.realpath(home) for home in [*homes, *([user] if user else [])]]
