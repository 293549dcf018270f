"""What a site installs: the wrapper and the cli_filter, with the paths of this installation filled in."""

from __future__ import annotations

import os
import re
import sys
from importlib.resources import files

from preflight.reports.streams import complain
from preflight.slurm.sbatch.real import find_real
from preflight.vocabulary.errors import UsageError

FILES = {"wrapper": "wrapper.sh", "cli-filter": "cli_filter.lua"}


def printed(what: str, sbatch: str | None) -> str:
    """The text of one of FILES. Raises UsageError for a path that neither language takes as it is."""
    text = files("preflight.slurm.sbatch").joinpath(FILES[what]).read_text(encoding="utf-8")
    text = _with(text, "python", sys.executable)
    if what == "wrapper":
        try:
            text = _with(text, "sbatch", os.path.abspath(find_real(sbatch, os.environ)))
        except UsageError:
            complain("preflight: no sbatch here: write its path into the line that starts with sbatch=")
    return text


def _with(text: str, name: str, path: str) -> str:
    """The text with a path in the line that sets `name`."""
    if re.fullmatch(r"[\w@%+=:,./-]+", path) is None:
        raise UsageError(f"{path}: a path with other characters than letters, digits and @%+=:,./- has to be quoted")
    return re.sub(rf"^((?:local )?{name} ?= ?\"?)[^\"\n]*", lambda match: match[1] + path, text, count=1, flags=re.M)
