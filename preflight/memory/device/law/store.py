"""Law files: one compressed JSON file per family, with a tape and its parameters per task, kind of step and setup."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import from_json

from preflight.memory.device.law import block_diffs as filed
from preflight.memory.device.law import tape as tapes
from preflight.memory.device.law.adapters import Adapters
from preflight.memory.device.law.made import MadeLaw, ParameterRow, Parameters
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.sizes import decode, encode
from preflight.memory.device.law.workload import Resolved
from preflight.system import observed
from preflight.system.files import UnreadableFile, read_bytes
from preflight.vocabulary.budgets import LAW_BYTES
from preflight.vocabulary.caches import regex

LAWS = Path(__file__).with_name("laws")
FORMAT = 3
"""Rises when the form of a law file changes."""
READS = (2, FORMAT)
"""A file of another number is stale and refused. The third has laws at batch 1 in addition."""

OLDEST_TRACER = 2
"""Laws of an older tracer (`made_by`) are stale: since version 2 it sees what kernels allocate for themselves. Its
third changed what grouped heads do, and their laws are filed under keys that older ones do not have."""


NOT_A_LAW = (
    OSError,
    EOFError,
    zlib.error,
    ArithmeticError,
    AttributeError,
    ValueError,
    LookupError,
    TypeError,
    RecursionError,
)
"""The exceptions of reading a file that holds no law."""


class UnreadableLaw(Exception):
    """A law file that is no regular file, is too large, or may not be read; the message says which."""


class StaleLaw(Exception):
    """A law file of another format or an old tracer; the message names it and the remedy."""


_NAME = regex(r"[\w.-]{1,200}")


class LawKey(Struct, frozen=True):
    """The key of a law: its file, and its text in the file."""

    family: str
    text: str


def key_of(resolved: Resolved, kind: str) -> LawKey:
    """The key of a resolved job's law; kind: train, eval, generate."""
    if resolved.family is None:
        workload = resolved.workload
        return LawKey(workload.filed, key_text(resolved.task, kind, resolved.setup, {}, workload.extra))
    return LawKey(resolved.family.name, key_text(resolved.task, kind, _spelled_out(resolved), resolved.structure))


def key_text(task: str, kind: str, setup: Setup, structure: Mapping[str, object], extra: str = "") -> str:
    """A canonical text: everything that a tape depends on, in a fixed order.

    Dropout probabilities count as on or off; in validation and generation neither dropout, checkpointing nor adapters'
    training matter.
    """
    train = kind == "train"
    switches = [f"{k}={_switch(k, v)}" for k, v in sorted(structure.items()) if train or "drop" not in k]
    parts = [
        task,
        kind,
        f"{setup.weights}/{setup.autocast or 'plain'}",
        setup.attention,
        "padded" if setup.mask and kind != "generate" else "exact",
        "checkpointed" if setup.checkpointing and train else "stored",
        *([f"loss:{setup.loss}"] if setup.loss and kind != "generate" else []),
        *([f"kernels:{','.join(setup.kernels)}"] if setup.kernels else []),
        *([f"experts:{setup.experts}"] if setup.experts else []),
        *(["offloaded"] if setup.offload and train else []),
        *_quantized(setup.quantization),
        *([f"frozen:{','.join(setup.frozen)}"] if setup.frozen else []),
        _adapted(setup.peft, train),
        *switches,
        *([extra] if extra else []),
    ]
    return " ".join(parts)


_LAYERS = ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "gate_proj", "up_proj", "gate_up_proj", "down_proj")
_GATED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_LINEAR = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "gemma", "gemma2"), _GATED),
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
}
"""Every linear layer except the head, in families with laws of adapters in all of them: peft's "all-linear"."""


def in_order(names: Iterable[str]) -> list[str]:
    """Adapted layers in one order: peft takes them as a set (LoraConfig.__post_init__), so a law has no order of them.
    Layers of a decoder stand as they run, all others by name."""
    return sorted(set(names), key=lambda name: (_LAYERS.index(name) if name in _LAYERS else len(_LAYERS), name))


def _spelled_out(resolved: Resolved) -> Setup:
    """A job's setup with "all-linear" spelled out where a law may ship for the list."""
    peft = resolved.setup.peft
    every = _LINEAR.get(resolved.family.name) if resolved.family is not None else None
    if peft is None or every is None or peft.targets != "all-linear":
        return resolved.setup
    return replace(resolved.setup, peft=replace(peft, targets=every))


def _adapted(peft: Adapters | None, train: bool) -> str:
    if peft is None:
        return "full"
    names = "-".join(in_order(peft.targets)) if isinstance(peft.targets, tuple) else str(peft.targets)
    dropout = ":dropout" if peft.dropout and train else ""
    return f"{peft.method}:{names}{dropout}{':' + peft.half if peft.half else ''}"


def _quantized(weights: QuantizedWeights | None) -> list[str]:
    if weights is None:
        return []
    rest = ":rest32" if weights.upcast_rest else ""
    head = ":head" if weights.head else ""
    keeps = ":keeps" if weights.keeps_input else ""
    keeps += ":recomputed" if weights.recomputed else ""
    packed = f":{weights.bits}:{weights.group}" if weights.bits is not None else ""
    kernel = f":{weights.backend}" if weights.backend is not None else ""
    return [f"{weights.type}:{weights.compute or 'input'}{packed}{kernel}{rest}{head}{keeps}"]


def _switch(key: str, value: object) -> str:
    """Probabilities count as on or off, other numbers by their value."""
    if "drop" in key and isinstance(value, (int, float)):
        return "on" if value else "off"
    return str(value).lower() if isinstance(value, bool) else str(value)


def unpacked(raw: bytes) -> bytes:
    """The unpacked bytes of a gzip file. Raises ValueError, and gzip's own exceptions."""
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        data = file.read(LAW_BYTES + 1)
    if len(data) > LAW_BYTES:
        raise ValueError(f"unpacked it is larger than {LAW_BYTES >> 20} MiB")
    return data


@lru_cache(maxsize=16)
def _file(path: Path) -> dict[str, Any] | None:
    if not os.path.exists(path):  # a name that is too long for a file has none
        return None
    raw = read_bytes(path, LAW_BYTES)
    data: dict[str, Any] = from_json(unpacked(raw) if path.suffix == ".gz" else raw)
    if data.get("format") not in READS:
        raise StaleLaw(f"{path} has laws of format {data.get('format')}, this version reads {READS}: make them again")
    tracer = int(data.get("made_by", {}).get("tracer", 0))
    if tracer < OLDEST_TRACER:
        raise StaleLaw(f"{path} was made by version {tracer} of the tracer; since {OLDEST_TRACER} it sees more")
    return data


def law_path(family: str, home: Path = LAWS) -> Path:
    """The file of a family's laws (scripts/make_laws.py)."""
    return home / f"{family}.json.gz"


def image_path(family: str, home: Path = LAWS) -> Path:
    """The file of an image model's laws (scripts/make_target_laws.py)."""
    return home / "images" / f"{family}.json.gz"


def other_path(family: str, home: Path = LAWS) -> Path:
    """The file of a denoiser's, speech model's or detector's laws (scripts/make_other_laws.py)."""
    return home / "others" / f"{family}.json.gz"


def _shipped(family: str, home: Path = LAWS) -> dict[str, Any] | None:
    if not _NAME.fullmatch(family):
        return None
    found = _file(law_path(family, home))
    for path in (image_path(family, home), other_path(family, home)):
        found = found if found is not None else _file(path)
    return found


@lru_cache(maxsize=64)
def load(key: LawKey, home: Path = LAWS) -> MadeLaw | None:
    """A shipped law; None where none ships. Raises StaleLaw."""
    data = _shipped(key.family, home)
    if data is None or key.text not in data["laws"]:
        return None
    entry = data["laws"][key.text]
    if isinstance(entry, str):  # the same law as another family's
        family, _, text = entry.partition("|")
        return load(LawKey(family, text), home)
    return _unpack(data, entry)


def law_file(key: LawKey, made: MadeLaw, versions: Mapping[str, str]) -> dict[str, Any]:
    """A packed file with one law, as `load_file` reads it."""
    return {"format": FORMAT, "family": key.family, "made_by": dict(versions), **pack({key.text: made}, short=False)}


def has_file(path: Path) -> bool:
    """Whether a file of a law is there."""
    return observed.is_file(path)


def load_file(path: Path, key: LawKey) -> MadeLaw | None:
    """A law from any packed file; None where it holds none for this key. Raises StaleLaw, UnreadableLaw, and what
    NOT_A_LAW says."""
    try:
        data = _file(path)
    except UnreadableFile as error:
        raise UnreadableLaw(str(error)) from error
    if data is None:
        raise FileNotFoundError(f"there is no file {path}")
    return load_packed(data, key)


def load_packed(data: Mapping[str, Any], key: LawKey) -> MadeLaw | None:
    """A law of packed ones; None where they hold none for this key."""
    entry = data["laws"].get(key.text)
    return None if entry is None else _unpack(data, entry)


def made_by(family: str) -> Mapping[str, str]:
    """Versions of torch, transformers and the tracer that made a family's laws."""
    data = _shipped(family)
    return dict(data["made_by"]) if data is not None else {}


def keys(family: str) -> tuple[str, ...]:
    """Keys of a family's shipped laws."""
    data = _shipped(family)
    return tuple(data["laws"]) if data is not None else ()


def pack(laws: Mapping[str, MadeLaw], onto: Mapping[str, Any] | None = None, short: bool = True) -> dict[str, Any]:
    """Laws of one family as JSON. Sizes, modules, blocks and parameters stand once in pools that all laws share.

    `onto`: packed laws of the same family, which are kept unchanged. `short`: blocks are written by what they
    differ in, which takes minutes where they have tens of thousands of words.
    """
    pools = _pools(onto or {})
    before = len(pools["blocks"])

    def pooled(pool: str, item: Any) -> int:
        return pools[pool].setdefault(item, len(pools[pool]))

    def tape_entry(tape: tapes.Tape) -> list[Any]:
        sizes = [pooled("sizes", size) for size in tape.sizes]
        modules = [pooled("modules", module) for module in tape.modules]
        form = [[[item.stack, item.down, item.phase] for item in tape.items], dict(tape.depths)]
        blocks = [
            [pooled("blocks", tapes.block_text(block, sizes, modules)) for block in item.blocks] for item in tape.items
        ]
        return [pooled("forms", json.dumps(form)), blocks]

    packed = dict(onto["laws"]) if onto else {}
    for key, made in laws.items():
        entry = [*tape_entry(made.tape), pooled("parameters", json.dumps(_encode(made.parameters)))]
        packed[key] = entry if made.tape.one is None else [*entry, *tape_entry(made.tape.one)]
    return {
        "sizes": [encode(size) for size in pools["sizes"]],
        "modules": list(pools["modules"]),
        "blocks": [*(onto["blocks"] if onto else ()), *filed.shorten(list(pools["blocks"]), before, short)],
        "parameters": [json.loads(text) for text in pools["parameters"]],
        "forms": [json.loads(text) for text in pools["forms"]],
        "laws": packed,
    }


def _pools(packed: Mapping[str, Any]) -> dict[str, dict[Any, int]]:
    """The entries of the pools of packed laws -> their numbers, as `pack` fills them."""
    known: dict[int, list[str]] = {}
    filled: dict[str, list[Any]] = {
        "sizes": [decode(size) for size in packed.get("sizes", ())],
        "modules": list(packed.get("modules", ())),
        "blocks": [filed.whole(packed["blocks"], number, known) for number in range(len(packed.get("blocks", ())))],
        "parameters": [json.dumps(one) for one in packed.get("parameters", ())],
        "forms": [json.dumps(one) for one in packed.get("forms", ())],
    }
    return {name: {item: number for number, item in enumerate(items)} for name, items in filled.items()}


def packed_laws(family: str) -> dict[str, Any] | None:
    """A family's shipped laws as they are packed; None where there are none. Raises StaleLaw."""
    return _file(law_path(family))


def _unpack(data: Mapping[str, Any], entry: list[Any]) -> MadeLaw:
    """One law of a packed file: form, blocks, parameters; where batch 1 has a tape of its own, its form and blocks."""
    form, numbers, parameters, *one = entry
    known: dict[int, list[str]] = {}
    rows = [*numbers, *(one[1] if one else ())]
    parsed = {n: tapes.parse_block(filed.whole(data["blocks"], n, known)) for row in rows for n in row}
    tape = _tape(data, form, numbers, parsed)
    if one:
        tape = replace(tape, one=_tape(data, one[0], one[1], parsed))
    return MadeLaw(tape, _decode(data["parameters"][parameters]))


def _tape(
    data: Mapping[str, Any], form: int, numbers: list[list[int]], parsed: Mapping[int, tuple[tapes.Token, ...]]
) -> tapes.Tape:
    items, depths = data["forms"][form]
    mine = {n: parsed[n] for row in numbers for n in row}
    births = [token for block in mine.values() for token in block if token.kind == "b"]
    sizes = {n: local for local, n in enumerate(sorted({token.at for token in births}))}
    modules = {n: local for local, n in enumerate(sorted({token.where for token in births}))}
    own: dict[int, tapes.Token] = {}
    for token in births:  # equal births of the blocks are one object, see `parse_token`
        if id(token) not in own:
            own[id(token)] = token.renumbered(sizes[token.at], modules[token.where])
    blocks = {n: tuple([own.get(id(token), token) for token in block]) for n, block in mine.items()}
    return tapes.Tape(
        tuple(decode(data["sizes"][n]) for n in sizes),
        tuple(data["modules"][n] for n in modules),
        tuple(
            tapes.TapeItem(stack, down, tuple(blocks[n] for n in row), phase)
            for (stack, down, phase), row in zip(items, numbers, strict=True)
        ),
        dict(depths),
    )


def _encode(p: Parameters) -> dict[str, Any]:
    def rows(items: tuple[ParameterRow, ...]) -> list[Any]:
        return [[encode(size), nbytes, int(trainable)] for size, nbytes, trainable in items]

    return {
        "outside": rows(p.outside),
        "layer": {stack: rows(items) for stack, items in p.layer.items()},
        "first": {stack: rows(items) for stack, items in p.first.items() if items},
        "buffers": encode(p.buffers),
    }


def _decode(data: Mapping[str, Any]) -> Parameters:
    def rows(items: list[Any]) -> tuple[ParameterRow, ...]:
        return tuple((decode(size), nbytes, bool(trainable)) for size, nbytes, trainable in items)

    layer = {stack: rows(items) for stack, items in data["layer"].items()}
    first = {stack: rows(data["first"].get(stack, [])) for stack in layer}
    return Parameters(rows(data["outside"]), layer, first, decode(data["buffers"]))
