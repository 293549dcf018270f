"""Options of sbatch whose value is one of a few words: whether sbatch takes them (22.05 and later)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from preflight.dialects.slurm_dates import is_date
from preflight.scheduler import answers

_MAIL = frozenset(
    re.findall(
        r"\w+",
        "NONE ARRAY_TASKS BEGIN END FAIL INVALID_DEPEND REQUEUE ALL STAGE_OUT TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 "
        "TIME_LIMIT_50",
    )
)
_DIST = re.compile(
    r"plane=[1-9]\d*|(block|cyclic|arbitrary|\*)(:(block|cyclic|fcyclic|\*)){0,2}(,(no)?pack)?|(no)?pack", re.IGNORECASE
)
_SIGNAL = re.compile(r"(?:[RB]|BR|RB)?:?\s*(-?\w+)(?:@(\d+))?", re.IGNORECASE)
_BINDINGS = frozenset(
    {"disable-binding", "enforce-binding", "one-task-per-sharing", "multiple-tasks-per-sharing", "allow-task-sharing"}
)
_MEM_BIND = frozenset(
    re.findall(r"\w+", "q quiet v verbose no none rank local map_mem mask_mem mapmem maskmem sort nosort p prefer help")
)
_HINTS = frozenset({"compute_bound", "memory_bound", "multithread", "nomultithread", "help"})


def mail_type(text: str) -> bool:
    """One word that sbatch knows is enough (parse_mail_type, src/common/proc_args.c)."""
    return any(part.upper() in _MAIL for part in text.split(","))


def signal(text: str) -> bool:
    """`[R][B:]SIGNAL[@SECONDS]` (get_signal_opts)"""
    import signal as known

    found = _SIGNAL.fullmatch(text)
    if found is None or int(found[2] or 0) > 0xFFFF:
        return False
    name = found[1].upper()
    if name.lstrip("-").isdecimal():
        return 0 != int(name) <= 0xFFFF
    return f"SIG{name.removeprefix('SIG')}" in known.Signals.__members__


def mem_bind(text: str) -> bool:
    """Words with or without a list of nodes (slurm_verify_mem_bind, src/common/slurm_resource_info.c)."""
    words = (part.partition(":")[0].lower() for part in re.split(r"[,;]", text))
    return all(word in _MEM_BIND or re.fullmatch(r"(0x)?[0-9a-f]+(\*\d+)?", word) for word in words)


_YES_OR_NO = frozenset({"yes", "no"})


def _count(text: str) -> bool:
    return re.fullmatch(r"\s*\+?\d+", text) is not None


WORDS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "mail-type": (mail_type, "sbatch takes NONE, BEGIN, END, FAIL, REQUEUE, ALL, TIME_LIMIT and the like"),
    "signal": (signal, "sbatch takes a signal and seconds: B:USR1@120"),
    "distribution": (
        lambda text: _DIST.fullmatch(text) is not None,
        "sbatch takes block, cyclic, plane=N, ...",
    ),
    "hint": (lambda text: text.lower() in _HINTS, f"sbatch takes {', '.join(sorted(_HINTS - {'help'}))}"),
    "gres-flags": (lambda text: text.lower() in _BINDINGS, "sbatch takes disable-binding or enforce-binding"),
    "begin": (is_date, "sbatch takes a time such as 16:00, now+1hour or 2030-01-20T12:34:00"),
    "deadline": (is_date, "sbatch takes a time such as 16:00, now+1hour or 2030-01-20T12:34:00"),
    "mem-bind": (mem_bind, "sbatch takes none, rank, local, map_mem:LIST, mask_mem:LIST, and quiet or verbose"),
    "switches": (lambda text: _count(text.partition("@")[0]), "sbatch takes a number and a time: 1@10:00"),
    "core-spec": (_count, "sbatch takes a number"),
    "thread-spec": (_count, "sbatch takes a number"),
    "priority": (lambda text: not text.lstrip().startswith("-"), "sbatch takes TOP or a number above 0"),
    "kill-on-invalid-dep": (lambda text: text.lower() in _YES_OR_NO, "sbatch takes yes or no"),
    "wait-all-nodes": (lambda text: text in ("0", "1"), "sbatch takes 0 or 1"),
    "open-mode": (lambda text: text[:1].lower() in ("a", "t"), "sbatch takes append or truncate"),
}
"""Long option -> whether a value is taken, and what is."""


_NUMBERS = frozenset(
    re.findall(
        r"\S+",
        "ntasks ntasks-per-node ntasks-per-gpu ntasks-per-socket ntasks-per-core cpus-per-task cpus-per-gpu mincpus "
        "sockets-per-node cores-per-socket threads-per-core switches core-spec thread-spec wait-all-nodes",
    )
)
_ASKED = {
    "partition": answers.PARTITION, "constraint": answers.FEATURE, "prefer": answers.PREFER,
    "nodelist": answers.NODE_NAME, "exclude": answers.NODE_NAME, "array": answers.ARRAY,
}  # fmt: skip
"""Options of which the controller says what is wrong."""

_UNSAID = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "extra-node-info", "priority")
"""Options whose message hangs on what else is asked for, or on where it is wrong."""


def said_of(name: str, text: str) -> str:
    """What sbatch prints of a value that it does not take; empty where that hangs on other things."""
    if name in _ASKED:
        return _ASKED[name]
    if name in _UNSAID:
        return ""
    if name in _NUMBERS:
        return f'Invalid numeric value "{text}" for --{name}.'
    if name == "nodes":
        return f'"{text}" is not a valid node count'
    if name in ("hint", "mem-bind"):
        return f'unrecognized --{name} argument "{text}"'
    return f"Invalid --{name} specification"
