"""What the values of sbatch's options look like; a value of another shape is an error that says what sbatch answers."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from preflight.machines.sizes import UNLIMITED, slurm_minutes

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
    from preflight.scheduler.gres import number

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
