"""What the values of sbatch's options look like; a value of another shape is an error that says what sbatch answers."""

from __future__ import annotations

import re
import signal as known
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from preflight.slurm.controller import answers
from preflight.vocabulary.notation import UNLIMITED, slurm_minutes

MIB = 2**20
_SCALE = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MEMORY = re.compile(r"\s*\+?(\d+)([kmgt]?)b?", re.IGNORECASE)
_COUNT = re.compile(r"\s*(-?)\+?(\d+)([km]?)\s*", re.IGNORECASE)
_WHOLE = re.compile(r"\s*\+?(\d+)")
_UNITED = re.compile(r"(\d+)([a-z]*)", re.IGNORECASE)
_ALMOST = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt])i?b?\s*", re.IGNORECASE)


class Count(NamedTuple):
    """A count, or a range of them (`--nodes=2-4`)."""

    low: int
    high: int


class Layout(NamedTuple):
    """Sockets of a node, cores of a socket, threads of a core: what a node must have at least (None: any)."""

    sockets: int | None
    cores: int | None
    threads: int | None


class Gpus(NamedTuple):
    """GPUs asked for: how many, and of which GRES type (as written: types are case-sensitive)."""

    number: int
    type: str | None


def memory_bytes(text: str) -> int | None:
    """Bytes of a size as sbatch reads it (str_to_mbytes): an integer, bare in MiB, K M G T with an optional B.

    K rounds up to MiB. None: sbatch refuses it. A bare "256B" is refused too.
    """
    found = _MEMORY.fullmatch(text)
    if found is None or (not found[2] and text[-1:] in "bB"):
        return None
    size = int(found[1]) * _SCALE[found[2].lower()]
    return -(-size // MIB) * MIB


def memory_meant(text: str) -> str | None:
    """The spelling sbatch accepts for a size that it refuses, where there is exactly one: "1.5G" -> "1536M"."""
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
    """The task indices of `--array=0-15:4,20%2`; None: no such list, or more than SLURM's usual limit of 1001."""
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


def _variable(text: str, otherwise: str) -> str:
    return "directives are not expanded: sbatch reads this text as it stands" if "$" in text else otherwise


def _fail(kind: str, message: str) -> PydanticCustomError:
    return PydanticCustomError(kind, "{message}", {"message": message})


def _memory(text: object) -> int:
    size = memory_bytes(str(text))
    if size is None:
        raise _fail("memory", _variable(str(text), "sbatch takes an integer, bare (MiB) or with K, M, G or T"))
    return size


def _count(text: object) -> Count:
    """A node count or a range of them (verify_node_count, src/common/proc_args.c): 0 is one, `k` and `m` multiply."""
    low, dash, high = str(text).partition("-")
    numbers = [_nodes(part) for part in ((low, high) if dash else (low,))]
    values = [number for number in numbers if number is not None]
    if dash and len(values) == 2:
        values[0] = max(values[0], 1) if values[0] < 0 else values[0]
    wrong = len(values) != len(numbers) or (not dash and values[0] < 0) or (values[-1] and values[-1] < values[0])
    if wrong:
        raise _fail("count", _variable(str(text), "sbatch takes a count or a range of them here"))
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


def _one(text: object) -> int:
    """A count above 0 (parse_int, src/common/proc_args.c)."""
    found = _WHOLE.fullmatch(str(text))
    if found is None or not 0 < int(found[1]) < 2**31:
        raise _fail("count", _variable(str(text), "sbatch takes one number above 0 here"))
    return int(found[1])


def _tally(text: str) -> int | None:
    """A count of resources with an optional suffix; None: it is none."""
    from preflight.slurm.controller.gres import number

    return number(text) if _UNITED.fullmatch(text) else None


def _gpus(text: object) -> Gpus | None:
    """The GPUs in `[type:]count,...`; what SLURM cannot read in it is the scheduler's to say."""
    total, kind = 0, None
    for part in filter(None, str(text).split(",")):
        name, colon, count = part.rpartition(":")
        number = _tally(count)
        if not colon and number is None:
            name, number = part, 1
        total += number or 0
        kind = kind or name or None
    if "$" in str(text):
        raise _fail("gpus", _variable(str(text), ""))
    return Gpus(total, kind) if total else None


def _gres(text: object) -> Gpus | None:
    """The GPUs in `--gres=gpu[:type][:count],...`; None where only other resources or shares of a GPU are asked for."""
    total, kind = 0, None
    for part in str(text).split(","):
        name, *rest = part.removeprefix("gres:").removeprefix("gres/").split(":")
        if name != "gpu":
            continue
        number = _tally(rest[-1]) if rest else 1
        if rest and number is not None:
            rest.pop()
        total += 1 if number is None else number
        kind = kind or (rest[0] if rest else None)
        if "$" in part:
            raise _fail("gres", _variable(part, ""))
    return Gpus(total, kind) if total else None


def _exclusive(text: object) -> str:
    if str(text).lower() not in ("", "exclusive", "oversubscribe", "user", "mcs"):
        raise _fail("exclusive", _variable(str(text), "sbatch takes user or mcs here, or nothing"))
    return str(text).lower()


def _time(text: object) -> int:
    found = slurm_minutes(str(text))
    if found is None:
        raise _fail("time", _variable(str(text), "sbatch takes minutes, H:M:S or D-H:M:S"))
    return found or UNLIMITED


def _name(text: object) -> str:
    if "$" in str(text):
        raise _fail("name", _variable(str(text), ""))
    return str(text)


def _array(text: object) -> str:
    if "$" in str(text):
        raise _fail("array", _variable(str(text), ""))
    return str(text)


def _layout(text: object) -> Layout:
    """`sockets[:cores[:threads]]`, each a number, a range or `*` (verify_socket_core_thread_count)."""
    parts = [*str(text).split(":")[:3], "", ""][:3]
    return Layout(*(_least(part) for part in parts))


def _least(text: str) -> int | None:
    """The lower end of a range; None: any number will do (get_resource_arg_range)."""
    if not text or text[0] == "*":
        return None
    low, dash, high = text.partition("-")
    numbers = [_nodes(part) for part in ((low, high) if dash else (low,))]
    if any(number is None or number < 0 for number in numbers) or (dash and not numbers[-1]):
        raise _fail("layout", _variable(text, "sbatch takes sockets, cores and threads here, as in 2:8:1"))
    return numbers[0]


Memory = Annotated[int, BeforeValidator(_memory)]
Number = Annotated[int, BeforeValidator(_one)]
Name = Annotated[str, BeforeValidator(_name)]


class Directives(BaseModel):
    """The options that decide what a job gets; every other one is left as it is."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True, defer_build=True)
    nodes: Annotated[Count | None, BeforeValidator(_count)] = None
    ntasks: Number | None = None
    ntasks_per_node: Annotated[Number | None, Field(alias="ntasks-per-node")] = None
    ntasks_per_gpu: Annotated[Number | None, Field(alias="ntasks-per-gpu")] = None
    cpus_per_task: Annotated[Number | None, Field(alias="cpus-per-task")] = None
    cpus_per_gpu: Annotated[Number | None, Field(alias="cpus-per-gpu")] = None
    mem: Memory | None = None
    mem_per_cpu: Annotated[Memory | None, Field(alias="mem-per-cpu")] = None
    mem_per_gpu: Annotated[Memory | None, Field(alias="mem-per-gpu")] = None
    gres: Annotated[Gpus | None, BeforeValidator(_gres)] = None
    gpus_per_socket: Annotated[Gpus | None, BeforeValidator(_gpus), Field(alias="gpus-per-socket")] = None
    gpus: Annotated[Gpus | None, BeforeValidator(_gpus)] = None
    gpus_per_node: Annotated[Gpus | None, BeforeValidator(_gpus), Field(alias="gpus-per-node")] = None
    gpus_per_task: Annotated[Gpus | None, BeforeValidator(_gpus), Field(alias="gpus-per-task")] = None
    partition: Name | None = None
    constraint: Name | None = None
    time: Annotated[int | None, BeforeValidator(_time)] = None
    time_min: Annotated[int | None, BeforeValidator(_time), Field(alias="time-min")] = None
    mincpus: Number | None = None
    ntasks_per_socket: Annotated[Number | None, Field(alias="ntasks-per-socket")] = None
    ntasks_per_core: Annotated[Number | None, Field(alias="ntasks-per-core")] = None
    sockets_per_node: Annotated[Number | None, Field(alias="sockets-per-node")] = None
    cores_per_socket: Annotated[Number | None, Field(alias="cores-per-socket")] = None
    threads_per_core: Annotated[Number | None, Field(alias="threads-per-core")] = None
    nodelist: Name | None = None
    exclude: Name | None = None
    exclusive: Annotated[str | None, BeforeValidator(_exclusive)] = None
    array: Annotated[str | None, BeforeValidator(_array)] = None
    tmp: Memory | None = None
    licenses: str | None = None
    prefer: Name | None = None
    dependency: str | None = None
    extra_node_info: Annotated[Layout | None, BeforeValidator(_layout), Field(alias="extra-node-info")] = None


FIELDS = {info.alias or name: name for name, info in Directives.model_fields.items()}
"""Long option -> field."""

MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")


# Dates and times as sbatch reads them in --begin and --deadline: whether it takes them (parse_time, 22.05).

_NAMED = re.compile(r"today|tomorrow|midnight|noon|fika|teatime", re.IGNORECASE)
_NOW = re.compile(r"now[ \t]*(?:[+-]\s*\d[\d\s]*(?:(?:second|minute|hour|day|week)s?)?)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*([ap]m)?", re.IGNORECASE)
_ISO = re.compile(r"\d{4}-(\d{1,2})-(\d{1,2})")
_DATE = re.compile(r"(\d{2}|\d(?!\d))[./]?(\d{2}|\d(?!\d))[./]?(?:\d\d)?")
"""Months and days take two digits where two follow each other: `12` is a month without a day."""
_SINCE_1970 = re.compile(r"uts(\d+)", re.IGNORECASE)


def is_date(text: str) -> bool:
    """Words and numbers after each other, of which any may be left out: `now+1hour`, `16:00`, `2030-01-20T12:34`."""
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
    """Where one word, time of day or date ends; None: it is none."""
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


# Options of sbatch whose value is one of a few words: whether sbatch takes them (22.05 and later).

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


def _words_count(text: str) -> bool:
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
    "switches": (lambda text: _words_count(text.partition("@")[0]), "sbatch takes a number and a time: 1@10:00"),
    "core-spec": (_words_count, "sbatch takes a number"),
    "thread-spec": (_words_count, "sbatch takes a number"),
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
