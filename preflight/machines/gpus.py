"""GPUs by name: their memory as CUDA reports it, and the part that a process cannot use, from `gpus.json`.

Other distributions can add files of the same form (entry point group `preflight.gpus`, value `package:file.json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypedDict, cast

from preflight.vocabulary.caches import regex
from preflight.vocabulary.extensions import GPUS, distinct, installed
from preflight.vocabulary.job import Job
from preflight.vocabulary.machine import Gpu

GIB = 2**30


class _Family(TypedDict):
    context: Sequence[float]
    nccl: Sequence[float]
    note: str


class _Row(TypedDict, total=False):
    name: str
    capacity_gib: float
    family: str
    compute_capability: Sequence[int]
    aliases: list[str]
    source: str
    partial: bool


class _Data(TypedDict):
    windows: str
    families: dict[str, _Family]
    gpus: list[_Row]


_NOISE = frozenset(
    re.findall(
        r"\w+",
        "nvidia geforce tesla quadro amd instinct rtx gtx gpu generation blackwell server workstation edition mig "
        "sxm sxm2 sxm3 sxm4 sxm5 pcie hbm2 hbm2e hbm3 hbm3e",
    )
)
"""Words of a marketing name that do not tell which card it is."""

_PREFIX = regex(r"^(?:nvidia|geforce|tesla|quadro|amd|instinct|gpu|rtx|gtx)+(?=[a-z]*\d)")


@lru_cache(maxsize=1)
def _data() -> _Data:
    text = (Path(__file__).parent / "gpus.json").read_text(encoding="utf-8")
    data: _Data = json.loads(text)
    return data


def _bytes(gib: Sequence[float]) -> tuple[int, int, int]:
    low, expected, high = (round(x * GIB) for x in gib)
    return low, expected, high


@lru_cache(maxsize=1)
def _added() -> tuple[tuple[_Row, _Family], ...]:
    """GPUs of other distributions, each with its family. Raises ExtensionError."""
    points = installed(GPUS)
    if not points:
        return ()
    from preflight.machines.gpu_file import read

    own = _data()
    rows = []
    for one in points:
        file = cast("_Data", read(one, own["families"]).model_dump())
        families = {**own["families"], **file["families"]}
        rows += [(row["name"], (row, families[row["family"]]), one) for row in file["gpus"]]
    return tuple(distinct(rows, {row["name"] for row in own["gpus"]}, "the GPU").values())


def _rows() -> list[tuple[_Row, _Family]]:
    own = _data()
    return [*((row, own["families"][row["family"]]) for row in own["gpus"]), *_added()]


@lru_cache(maxsize=1)
def gpus() -> tuple[Gpu, ...]:
    """Every known GPU, by capacity."""
    found = []
    for row, family in _rows():
        major, minor = row["compute_capability"]
        found.append(
            Gpu(
                name=row["name"],
                capacity=round(row["capacity_gib"] * GIB),
                context=_bytes(family["context"]),
                nccl=_bytes(family["nccl"]),
                compute_capability=(major, minor),
                aliases=tuple(row["aliases"]),
                source=f"{row['source']}; {family['note']}",
            )
        )
    return tuple(sorted(found, key=lambda gpu: gpu.capacity))


def normalise(name: str) -> str:
    """A GPU's name in lower case, without spaces, dashes and maker's words: "NVIDIA A100-SXM4-80GB" -> "a10080g"."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _NOISE]
    text = _PREFIX.sub("", "".join(words))
    return re.sub(r"(\d)gi?b?$", r"\1g", text)


@lru_cache(maxsize=1)
def _index() -> dict[str, tuple[Gpu, ...]]:
    index: dict[str, tuple[Gpu, ...]] = {}
    for gpu in gpus():  # by capacity: the first of several is the smallest
        for key in {normalise(name) for name in (gpu.name, *gpu.aliases)}:
            index[key] = (*index.get(key, ()), gpu)
    return index


def candidates(name: str) -> tuple[Gpu, ...]:
    """All GPUs that a name can mean, the smallest first ("a100": 40 and 80 GB)."""
    plain = normalise(_without_the_whole(name))
    sized = re.sub(r"m?(\d{2})g?$", r"\1g", plain) if plain[:1].isalpha() else plain  # A100m40, a100_80
    return _index().get(plain) or _index().get(sized, ())


def _without_the_whole(name: str) -> str:
    """The name of a slice without the memory of the card that it is cut from: slurmd calls one
    nvidia_h100_80gb_hbm3_3g.40gb where it asks the driver (AutoDetect=nvml)."""
    parts = re.split(r"[\s_-]+", name)
    if not any(_SLICE.fullmatch(part) for part in parts):
        return name
    return " ".join(part for part in parts if not re.fullmatch(r"\d+gb", part, re.IGNORECASE))


_SLICE = regex(r"\d+g\.\d+gb", re.IGNORECASE)
"""A profile of MIG: slices of the processors, and memory."""


def find_gpu(name: str) -> Gpu | None:
    """The GPU of that name, the smallest if several have it (see `ambiguity`); None: unknown."""
    found = candidates(name)
    return found[0] if found else None


def ambiguity(name: str) -> str | None:
    """A note about the assumed GPU if a name means several; None: it means one or none."""
    found = candidates(name)
    if len(found) < 2:
        return None
    return f"{name} can be {' or '.join(gpu.name for gpu in found)}; {found[0].name} is assumed, the smaller"


def nearest(name: str, count: int = 3) -> tuple[str, ...]:
    """Names of known GPUs that are similar to `name`, for an error message."""
    from difflib import get_close_matches

    keys = get_close_matches(normalise(name), list(_index()), n=count, cutoff=0.5)
    return tuple(dict.fromkeys(_index()[key][0].name for key in keys))


SINCE: Mapping[str, tuple[int, int]] = {
    "bf16": (
        8,
        0,
    ),  # CUDA C++ Programming Guide, arithmetic by compute capability; AMD: every card of the table
    "flash": (8, 0),  # flash-attention's README: Ampere, Ada or Hopper
    "fp8": (8, 9),  # transformer-engine's README: Ada or Hopper
}
"""Ability -> the first compute capability that has it. AMD's numbers are those that PyTorch reports for them."""


def abilities(job: Job) -> Iterator[str]:
    """The abilities that a job asks for: a card without them stops, or is many times slower."""
    train = job.train
    quantized = train.quantization.type not in (None, "none")
    types = [train.precision, train.weights_dtype, train.quantization.compute_dtype if quantized else None]
    if any(str(one).startswith("bf16") for one in types):
        yield "bf16"
    if train.attention == "flash":
        yield "flash"
    if train.optimizer == "adamw-fp8":
        yield "fp8"


def able(capability: tuple[int, int], job: Job) -> bool:
    """Whether a GPU of this compute capability can do what the job asks for."""
    return all(capability >= SINCE[one] for one in abilities(job))


def smallest_that_fits(needed: int | Callable[[Gpu], int], job: Job | None = None) -> Gpu | None:
    """The smallest GPU with enough memory for `needed` (see `that_fit`); None: no GPU does."""
    return next(that_fit(needed, job), None)


def that_fit(needed: int | Callable[[Gpu], int], job: Job | None = None) -> Iterator[Gpu]:
    """GPUs with enough memory for `needed`, the smallest first; `needed`: process bytes, or a function of the GPU.

    Only those that can do what the `job` asks for (see SINCE).

    With a function each GPU can have its own context. Slices of cards (MIG) and half cards are left out.
    """
    partial = {row["name"] for row, _ in _rows() if row.get("partial")}
    for gpu in gpus():
        if job is not None and not able(gpu.compute_capability, job):
            continue
        if gpu.name not in partial and (needed(gpu) if callable(needed) else needed) <= gpu.capacity:
            yield gpu


def plain(gpu: Gpu) -> dict[str, object]:
    """A GPU as plain data, for `preflight machine show`."""
    low, expected, high = gpu.context
    return {
        "name": gpu.name,
        "capacity": gpu.capacity,
        "context": {"low": low, "expected": expected, "high": high},
        "nccl": dict(zip(("low", "expected", "high"), gpu.nccl, strict=True)),
        "compute_capability": ".".join(map(str, gpu.compute_capability)),
        "aliases": list(gpu.aliases),
        "source": gpu.source,
    }
