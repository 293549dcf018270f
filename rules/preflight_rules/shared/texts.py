"""The text of a study's files, for rules that must be sure that something is nowhere in it."""

from __future__ import annotations

import re

from preflight.api import Case

COMMENT = re.compile(r"^[ \t]*#.*$", re.M)


def text_of(case: Case) -> str:
    """The text of the study's files, without comments on lines of their own."""
    read = (path for reading in case.study.readings for path in (reading.path, *reading.reads))
    paths = dict.fromkeys((*case.study.paths, *read))
    return COMMENT.sub("", "\n".join(case.project.source(path).text for path in paths if case.project.exists(path)))
