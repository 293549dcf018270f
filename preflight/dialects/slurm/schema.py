"""Schema of sbatch's options: the values that sbatch takes, and its answer to any other value."""

from __future__ import annotations

import re
import signal as known
from collections.abc import Callable, Mapping
from typing import NamedTuple

from preflight.slurm.controller import job as answers
from preflight.vocabulary.caches import regex
from preflight.vocabulary.notation import UNLIMITED, slurm_minutes

MIB = 2**20
_SCALE = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MEMORY = regex(r"\s*\+?(\d+)([kmgt]?)b?", re.IGNORECASE)
_COUNT = regex(r"\s*(-?)\+?(\d+)([km]?)\s*", re.IGNORECASE)
_WHOLE = regex(r"\s*\+?(\d+)")
_UNITED = regex(r"(\d+)([a-z]*)", re.IGNORECASE)
_ALMOST = regex(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt])i?b?\s*", re.IGNORECASE)


class Count(NamedTuple):
    """A count, or a range of counts (`--nodes=2-4`)."""

    low: int
    high: int


class TaskLayout(NamedTuple):
    """The least number of sockets of a node, cores of a socket and threads of a core (None: any)."""

    sockets: int | None
    cores: int | None
    threads: int | None


class Gpus(NamedTuple):
    """Requested GPUs: their number, and their GRES type as written (types are case-sensitive)."""

    number: int
    type: str | None


def memory_bytes(text: str) -> int | None:
    """Bytes of a size as sbatch reads it (str_to_mbytes): an integer in MiB, or with K, M, G or T and an optional B.

    K is rounded up to MiB. None: sbatch refuses the text, as it refuses "256B".
    """
    found = _MEMORY.fullmatch(text)
    if found is None or (not found[2] and text[-1:] in "bB"):
        return None
    size = int(found[1]) * _SCALE[found[2].lower()]
    return -(-size // MIB) * MIB


def memory_meant(text: str) -> str | None:
    """The only possible spelling of a size that sbatch refuses: "1.5G" -> "1536M". None if there is not one."""
    found = _ALMOST.fullmatch(text)
    if found is None or len(found[1]) > 12:
        return None
    size, unit = float(found[1]) * _SCALE[found[2].lower()], found[2].upper()
    for smaller in ("T", "G", "M")["TGMK".index(unit) :]:
        scale = _SCALE[smaller.lower()]
        if size > 0 and size % scale == 0:
            return f"{int(size) // scale}{smaller}"
    return None


def array_indices(text: str) -> tuple[int, ...] | None:
    """The task indices of `--array=0-15:4,20%2`; None if it is not such a list, or longer than SLURM's usual 1001."""
    found: list[int] = []
    for part in text.split("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip("[]"))
        if match is None:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step or (last - first) // step > 1000:
            return None
        found += range(first, last + 1, step)
    return tuple(found)


def _refused(text: str, taken: str) -> ValueError:
    """The error of a value that sbatch refuses; a `$` in it explains more than what sbatch takes."""
    return ValueError("directives are not expanded: sbatch reads this text literally" if "$" in text else taken)


def _memory(text: str) -> int:
    size = memory_bytes(text)
    if size is None:
        raise _refused(text, "sbatch takes an integer, bare (MiB) or with K, M, G or T")
    return size


def _count(text: str) -> Count:
    """A node count or a range of them (verify_node_count, src/common/proc_args.c): 0 is one, `k` and `m` multiply."""
    low, dash, high = text.partition("-")
    numbers = [_nodes(part) for part in ((low, high) if dash else (low,))]
    values = [number for number in numbers if number is not None]
    if dash and len(values) == 2:
        values[0] = max(values[0], 1) if values[0] < 0 else values[0]
    wrong = len(values) != len(numbers) or (not dash and values[0] < 0) or (values[-1] and values[-1] < values[0])
    if wrong:
        raise _refused(text, "sbatch takes a count or a range of them here")
    return Count(values[0], values[-1])


def _nodes(text: str) -> int | None:
    """None: not a number; an empty text is -1."""
    if not text.strip():
        return -1
    found = _COUNT.fullmatch(text)
    if found is None:
        return None
    number = int(found[2]) * {"": 1, "k": 1024, "m": 1024**2}[found[3].lower()]
    return -number if found[1] else number


def _one(text: str) -> int:
    """A count above 0 (parse_int, src/common/proc_args.c)."""
    found = _WHOLE.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 2**31:
        raise _refused(text, "sbatch takes one number above 0 here")
    return int(found[1])


def _tally(text: str) -> int | None:
    """A count of resources with an optional suffix; None if the text is not a count."""
    from preflight.slurm.controller.gres import number

    return number(text) if _UNITED.fullmatch(text) else None


def _gpus(text: str) -> Gpus | None:
    """The GPUs in `[type:]count,...`. Parts that SLURM cannot read are left to the simulated controller."""
    total, kind = 0, None
    for part in filter(None, text.split(",")):
        name, colon, count = part.rpartition(":")
        number = _tally(count)
        if not colon and number is None:
            name, number = part, 1
        total += number or 0
        kind = kind or name or None
    if "$" in text:
        raise _refused(text, "")
    return Gpus(total, kind) if total else None


def _gres(text: str) -> Gpus | None:
    """The GPUs in `--gres=gpu[:type][:count],...`; None if only other resources or shares of a GPU are requested."""
    total, kind = 0, None
    for part in text.split(","):
        name, *rest = part.removeprefix("gres:").removeprefix("gres/").split(":")
        if name != "gpu":
            continue
        number = _tally(rest[-1]) if rest else 1
        if rest and number is not None:
            rest.pop()
        total += 1 if number is None else number
        kind = kind or (rest[0] if rest else None)
        if "$" in part:
            raise _refused(part, "")
    return Gpus(total, kind) if total else None


def _exclusive(text: str) -> str:
    if text.lower() not in ("", "exclusive", "oversubscribe", "user", "mcs"):
        raise _refused(text, "sbatch takes user or mcs here, or nothing")
    return text.lower()


def _time(text: str) -> int:
    found = slurm_minutes(text)
    if found is None:
        raise _refused(text, "sbatch takes minutes, H:M:S or D-H:M:S")
    return found or UNLIMITED


def _name(text: str) -> str:
    if "$" in text:
        raise _refused(text, "")
    return text


def _layout(text: str) -> TaskLayout:
    """`sockets[:cores[:threads]]`, each a number, a range or `*` (verify_socket_core_thread_count)."""
    parts = [*text.split(":")[:3], "", ""][:3]
    return TaskLayout(*(_least(part) for part in parts))


def _least(text: str) -> int | None:
    """The lower end of a range; None if any number is accepted (get_resource_arg_range)."""
    if not text or text[0] == "*":
        return None
    low, dash, high = text.partition("-")
    numbers = [_nodes(part) for part in ((low, high) if dash else (low,))]
    if any(number is None or number < 0 for number in numbers) or (dash and not numbers[-1]):
        raise _refused(text, "sbatch takes sockets, cores and threads here, as in 2:8:1")
    return numbers[0]


class _Said(NamedTuple):
    """An option that decides what a job gets: the field of `Request` with its value, and what reads a text of it.

    `reads` raises ValueError for a text that sbatch refuses; its words say what sbatch takes."""

    field: str
    reads: Callable[[str], object]


_DECIDING = {
    "nodes": _Said("nodes", _count),
    "ntasks": _Said("tasks", _one),
    "ntasks-per-node": _Said("tasks_per_node", _one),
    "ntasks-per-gpu": _Said("tasks_per_gpu", _one),
    "cpus-per-task": _Said("cpus_per_task", _one),
    "cpus-per-gpu": _Said("cpus_per_gpu", _one),
    "mem": _Said("memory", _memory),
    "mem-per-cpu": _Said("memory_per_cpu", _memory),
    "mem-per-gpu": _Said("memory_per_gpu", _memory),
    "gres": _Said("gres", _gres),
    "gpus-per-socket": _Said("gpus_per_socket", _gpus),
    "gpus": _Said("gpus", _gpus),
    "gpus-per-node": _Said("gpus_per_node", _gpus),
    "gpus-per-task": _Said("gpus_per_task", _gpus),
    "partition": _Said("partition", _name),
    "constraint": _Said("constraint", _name),
    "time": _Said("time_minutes", _time),
    "time-min": _Said("time_min_minutes", _time),
    "mincpus": _Said("cpus_per_node", _one),
    "ntasks-per-socket": _Said("tasks_per_socket", _one),
    "ntasks-per-core": _Said("tasks_per_core", _one),
    "sockets-per-node": _Said("sockets_per_node", _one),
    "cores-per-socket": _Said("cores_per_socket", _one),
    "threads-per-core": _Said("threads_per_core", _one),
    "nodelist": _Said("node_list", _name),
    "exclude": _Said("exclude", _name),
    "exclusive": _Said("exclusive", _exclusive),
    "array": _Said("array", _name),
    "tmp": _Said("local_disk", _memory),
    "licenses": _Said("licenses", str),
    "prefer": _Said("prefer", _name),
    "dependency": _Said("dependency", str),
    "extra-node-info": _Said("extra_node_info", _layout),
}

FIELDS: Mapping[str, str] = {option: said.field for option, said in _DECIDING.items()}
"""Long option -> field, of the options that decide what a job gets."""


def read_value(option: str, text: str) -> object:
    """The value of one of FIELDS. Raises ValueError where sbatch refuses the text, with what it takes instead."""
    return _DECIDING[option].reads(text)


REQUEST_FIELDS = {
    option: "gpus_per_node" if name == "gres" else name
    for option, name in FIELDS.items()
    if name not in ("exclusive", "extra_node_info")
}
"""Long option -> the field of Request that has its value."""

MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")


# Times of --begin and --deadline, as sbatch reads them (parse_time, 22.05).

_NAMED = regex(r"today|tomorrow|midnight|noon|fika|teatime", re.IGNORECASE)
_NOW = regex(r"now[ \t]*(?:[+-]\s*\d[\d\s]*(?:(?:second|minute|hour|day|week)s?)?)?", re.IGNORECASE)
_CLOCK = regex(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*([ap]m)?", re.IGNORECASE)
_ISO = regex(r"\d{4}-(\d{1,2})-(\d{1,2})")
_DATE = regex(r"(\d{2}|\d(?!\d))[./]?(\d{2}|\d(?!\d))[./]?(?:\d\d)?")
"""Months and days take two digits where two follow each other: `12` is a month without a day."""
_SINCE_1970 = regex(r"uts(\d+)", re.IGNORECASE)


def is_date(text: str) -> bool:
    """Whether sbatch takes a text as a time: words and numbers in a row, as in `now+1hour` or `2030-01-20T12:34`."""
    since = _SINCE_1970.fullmatch(text)
    if since is not None:
        return int(since[1]) >= 1_000_000
    at = 0
    while at < len(text):
        if text[at] in " \t-T" and not _NAMED.match(text, at):
            at += 1
            continue
        end = _piece(text, at)
        if end is None:
            return False
        at = end
    return True


def _piece(text: str, at: int) -> int | None:
    """Where a word, time of day or date ends that starts at `at`; None if none starts there."""
    named = _NAMED.match(text, at)
    if named is not None:
        return named.end()
    now = _NOW.match(text, at)
    if now is not None:
        return now.end() if now.end() == len(text) else None  # only a difference may follow
    clock = _CLOCK.match(text, at)
    if clock is not None:
        hour, minute, second, half = int(clock[1]), int(clock[2]), int(clock[3] or 0), (clock[4] or "").lower()
        late = hour > 12 if half else hour > 23
        return None if late or minute > 59 or second > 59 else clock.end()
    iso = _ISO.match(text, at)
    found = iso or _DATE.match(text, at)
    if found is None or text[at + 1 : at + 2] == ":" or text[at + 2 : at + 3] == ":":
        return None
    return found.end() if 1 <= int(found[1]) <= 12 and 1 <= int(found[2]) <= 31 else None


# Options of sbatch whose value is one of a few words (22.05 and later).

_SIGNAL = regex(r"(?:[RB]|BR|RB)?:?\s*(-?\w+)(?:@(\d+))?", re.IGNORECASE)
_MAIL = (
    "NONE|ARRAY_TASKS|BEGIN|END|FAIL|INVALID_DEPEND|REQUEUE|ALL|STAGE_OUT|TIME_LIMIT|TIME_LIMIT_90|TIME_LIMIT_80|"
    "TIME_LIMIT_50"
)
_MEM_BIND = (
    r"(q|quiet|v|verbose|no|none|rank|local|map_mem|mask_mem|mapmem|maskmem|sort|nosort|p|prefer|help|"
    r"(0x)?[0-9a-f]+(\*\d+)?)(:[^,;]*)?"
)
_TASKS = r"(block|cyclic|arbitrary|\*)(:(block|cyclic|fcyclic|\*)){0,2}(,(no)?pack)?"
_SHARING = "disable-binding|enforce-binding|one-task-per-sharing|multiple-tasks-per-sharing|allow-task-sharing"


def _is_signal(text: str) -> bool:
    """Whether a text has the form `[R][B:]SIGNAL[@SECONDS]` (get_signal_opts)."""
    found = _SIGNAL.fullmatch(text)
    name = found[1].upper() if found is not None else ""
    number = int(name) if name.lstrip("-").isdecimal() else None
    by_name = f"SIG{name.removeprefix('SIG')}" in known.Signals.__members__
    right = by_name if number is None else 0 != number <= 0xFFFF
    return found is not None and int(found[2] or 0) <= 0xFFFF and right


_NUMBER = r"\s*\+?\d+"
_TIMES = "sbatch takes a time such as 16:00, now+1hour or 2030-01-20T12:34:00"
WORDS: Mapping[str, tuple[str | Callable[[str], bool], str]] = {
    "mail-type": (
        f"(.*,)?({_MAIL})(,.*)?",
        "sbatch takes NONE, BEGIN, END, FAIL, REQUEUE, ALL, TIME_LIMIT and the like",
    ),
    "signal": (_is_signal, "sbatch takes a signal and seconds: B:USR1@120"),
    "distribution": (rf"plane=[1-9]\d*|{_TASKS}|(no)?pack", "sbatch takes block, cyclic, plane=N, ..."),
    "hint": (
        "compute_bound|memory_bound|multithread|nomultithread|help",
        "sbatch takes compute_bound, memory_bound, multithread, nomultithread",
    ),
    "gres-flags": (_SHARING, "sbatch takes disable-binding or enforce-binding"),
    "begin": (is_date, _TIMES),
    "deadline": (is_date, _TIMES),
    "mem-bind": (
        f"{_MEM_BIND}([,;]{_MEM_BIND})*",
        "sbatch takes none, rank, local, map_mem:LIST, mask_mem:LIST, and quiet or verbose",
    ),
    "switches": (rf"{_NUMBER}(@.*)?", "sbatch takes a number and a time: 1@10:00"),
    "core-spec": (_NUMBER, "sbatch takes a number"),
    "thread-spec": (_NUMBER, "sbatch takes a number"),
    "priority": (r"\s*([^\s-].*)?", "sbatch takes TOP or a number above 0"),
    "kill-on-invalid-dep": ("yes|no", "sbatch takes yes or no"),
    "wait-all-nodes": ("0|1", "sbatch takes 0 or 1"),
    "open-mode": ("[at].*", "sbatch takes append or truncate"),
}
"""Long option -> what its whole text is, in letters of either case, and what sbatch takes: options whose value is one
of a few words. Nothing is read from them, but sbatch refuses any other value.

One known word is enough for --mail-type (parse_mail_type, src/common/proc_args.c); for --mem-bind see
slurm_verify_mem_bind (src/common/slurm_resource_info.c)."""


def words_taken(option: str, text: str) -> str | None:
    """The values that sbatch accepts for a word option, if it refuses this text; else None."""
    accepted, taken = WORDS[option]
    try:
        fits = re.fullmatch(accepted, text, re.IGNORECASE) if isinstance(accepted, str) else accepted(text)
    except ValueError:  # a number of more digits than Python reads
        return taken
    return None if fits else taken


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
"""Options that the controller checks, with its answer."""

_UNSAID = ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "extra-node-info", "priority")
"""Options for which sbatch's message depends on other options, or on the place of the mistake."""


def said_of(name: str, text: str) -> str:
    """The message of sbatch about a refused value; empty if it depends on other options."""
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
