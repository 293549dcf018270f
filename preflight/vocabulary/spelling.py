"""Turns values as files spell them into the Job's spelling, and refuses those that a field cannot have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args, get_origin

from msgspec import Struct
from msgspec.structs import replace

from preflight.vocabulary import optimizer
from preflight.vocabulary.caches import regex
from preflight.vocabulary.extensions import wrong
from preflight.vocabulary.job import MOST, Job, Part
from preflight.vocabulary.notation import parse_size
from preflight.vocabulary.reading import FALSE, TRUE, Problem
from preflight.vocabulary.study import Bound, Source
from preflight.vocabulary.values import Cause, Const, Expr, Op, Scalar, Unknown, Value, brief, evaluate, frozen, names

STRATEGIES: Mapping[str, str] = {
    # Lightning's registered strategies, Accelerate's distributed_type, DeepSpeed's stages
    "ddp_spawn": "ddp", "ddp_fork": "ddp", "ddp_notebook": "ddp", "ddp_find_unused_parameters_true": "ddp",
    "ddp_find_unused_parameters_false": "ddp", "ddp_static_graph": "ddp", "multi_gpu": "ddp", "fsdp2": "fsdp",
    "deepspeed_stage_1": "zero1", "deepspeed_stage_2": "zero2", "deepspeed_stage_3": "zero3",
    "single_device": "none", "no": "none",
    # as people write DeepSpeed's stages and one GPU
    "zero-1": "zero1", "zero-2": "zero2", "zero-3": "zero3", "zero_1": "zero1", "zero_2": "zero2", "zero_3": "zero3",
    "deepspeed_zero1": "zero1", "deepspeed_zero2": "zero2", "deepspeed_zero3": "zero3", "single": "none",
    "single_gpu": "none",
}  # fmt: skip
ATTENTIONS: Mapping[str, str] = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attention": "flash", "flash_attn": "flash",
    "flash-attn": "flash", "flash-attention": "flash", "flash_attn_2": "flash", "fa2": "flash",
    "mem_efficient": "efficient", "memory_efficient": "efficient", "xformers": "efficient",
}  # fmt: skip
TASKS: Mapping[str, str] = {
    # transformers' names of pipelines (pipelines/__init__.py)
    "text-classification": "sequence-classification", "sentiment-analysis": "sequence-classification",
    "text-generation": "causal-lm", "fill-mask": "masked-lm", "ner": "token-classification",
    "summarization": "seq2seq-lm", "translation": "seq2seq-lm", "text2text-generation": "seq2seq-lm",
    # peft's TaskType
    "causal_lm": "causal-lm", "seq_cls": "sequence-classification", "token_cls": "token-classification",
    "seq_2_seq_lm": "seq2seq-lm",
}  # fmt: skip
QUANTIZATIONS: Mapping[str, str] = {"4bit": "fp4", "8bit": "int8", "no": "none"}
"""bitsandbytes' own defaults: `load_in_4bit` alone is fp4."""
KEPT: Mapping[str, str] = {"true": "step", "false": "no"}


class FieldKind(Struct, frozen=True):
    """The type of a Job field: `name` is int, float, bool, enum, str, list, dict or any."""

    name: str
    low: int | None = None
    choices: tuple[str, ...] = ()


class Invalid(Exception):
    """A value that its field cannot have. The message names the allowed values, in words for the user."""


@lru_cache(maxsize=512)
def kind_of(field: str) -> FieldKind | None:
    """The type of a field; None if there is no such field."""
    part: type[Part] = Job
    names_ = field.split(".")
    for index, name in enumerate(names_):
        info = part.model_fields.get(name)
        if info is None:
            return None
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Part):
            part = kind
            continue
        found = _kind(kind, [*info.metadata])
        if index + 1 == len(names_):
            return found
        return FieldKind("any") if found.name == "dict" else None
    return None


def _kind(annotation: Any, metadata: list[Any]) -> FieldKind:
    low = next((bound.ge for bound in metadata if hasattr(bound, "ge")), None)
    if get_origin(annotation) is Literal:
        return FieldKind("enum", choices=tuple(str(choice) for choice in get_args(annotation)))
    if hasattr(annotation, "__metadata__"):
        inner = annotation.__metadata__
        bounds = [item for one in inner for item in getattr(one, "metadata", [one])]
        return _kind(annotation.__origin__, [*metadata, *bounds])
    origin = get_origin(annotation)
    if origin in (list, dict):
        return FieldKind(origin.__name__)
    if isinstance(annotation, type):
        return FieldKind(annotation.__name__, low)
    kinds = [_kind(arg, metadata) for arg in get_args(annotation) if arg is not type(None)]
    return kinds[0] if len(kinds) == 1 else FieldKind("any")


def normal(field: str, value: Value, setting: str = "") -> Value:
    """A value in the Job's spelling; Unknown where that cannot be told. Raises Invalid.

    `setting` is the key that an alias took it from: `fp16: true` is a precision only together with its name.
    """
    if value is None or isinstance(value, Unknown):
        return value
    return _of_scalar(field, value, setting) if type(value) in _SCALARS else _normal(field, value, setting)


_SCALARS = (str, int, float, bool)


@lru_cache(maxsize=4096, typed=True)
def _of_scalar(field: str, value: Value, setting: str) -> Value:
    """The same of a plain value, which is asked for in every study of a tree."""
    return _normal(field, value, setting)


def _normal(field: str, value: Value, setting: str) -> Value:
    kind = kind_of(field)
    if kind is None:
        raise Invalid(f"{field} is no field of a Job")
    if kind.name == "enum":
        return _enum(field, value, kind, setting)
    if kind.name == "int":
        return _int(field, value, kind)
    if kind.name == "float":
        return _float(field, value)
    if kind.name == "bool":
        return _bool(field, value)
    if kind.name == "list":
        return (value,) if isinstance(value, str) else frozen(value)
    if field == "train.optimizer" and isinstance(value, str):
        return OPTIMIZERS.get(value.lower(), value.lower())
    if kind.name == "str":
        return str(value) if isinstance(value, (str, int, float)) else _refuse(field, value, "a name")
    return value


def _refuse(field: str, value: Value, wanted: str) -> Value:
    raise Invalid(f"{field} is {brief(value)}: it must be {wanted}")


_COUNTED = frozenset({"parallel.gpus_per_node", "parallel.ranks_per_node"})
"""Fields that a list of GPUs gives (`gpus: [0, 1]`), and -1 where all of the machine are meant."""
_DECIDED_LATER = frozenset({"auto", "all", "max"})


def _int(field: str, value: Value, kind: FieldKind) -> Value:
    wanted = "a whole number" if kind.low is None else f"a whole number of at least {kind.low}"
    number: object = value
    if isinstance(value, tuple) and value and all(type(item) is int for item in value):
        if field in _COUNTED:
            return len(set(value))
        if field == "train.image_size" and len(value) == 2 and value[0] == value[1]:
            return _int(field, value[0], kind)
    if (isinstance(value, str) and value.lower() in _DECIDED_LATER) or (field in _COUNTED and value in (-1, "-1")):
        return Unknown(f"{value!r} is decided when the program runs", Cause.run_time)
    if isinstance(value, str):
        number = _number(value)
        if number is None:  # "24GiB", as --set and a request give sizes
            number = parse_size(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return _refuse(field, value, wanted)
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        return _refuse(field, value, wanted)
    if (kind.low is not None and number < kind.low) or abs(number) > MOST:
        return _refuse(field, value, wanted if abs(number) <= MOST else "a number of at most 36 digits")
    return int(number)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _float(field: str, value: Value) -> Value:
    number = _number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or abs(number) > MOST:
        return _refuse(field, value, "a number")
    return float(number)


def _bool(field: str, value: Value) -> Value:
    if isinstance(value, bool):
        return value
    low = str(value).lower()
    if low in TRUE | FALSE:
        return low in TRUE
    if field == "train.gradient_checkpointing" and low in ("offload", "offload_disk", "unsloth", "full", "selective"):
        return True if low == "full" else Unknown(f"what {value!r} keeps is not modelled", Cause.not_modelled)
    if field == "train.compile" and isinstance(value, (str, Mapping)):
        return True
    return _refuse(field, value, "true or false")


def _enum(field: str, value: Value, kind: FieldKind, setting: str) -> Value:
    text = str(value).lower()
    if text in kind.choices:
        return text
    found = _tables(field).get(text)
    if found is not None and found in kind.choices:
        return found
    if field == "train.precision" and value is True:
        key = setting.lower()
        return (
            "bf16-mixed"
            if "bf16" in key
            else "fp16-mixed"
            if key
            else Unknown("mixed precision of which type", Cause.not_set)
        )
    if text.replace("_", "-") in kind.choices:
        return text.replace("_", "-")
    if text in ("auto", ""):
        return Unknown(f"{value!r} is decided when the program runs", Cause.run_time)
    return _refuse(field, value, f"one of {', '.join(kind.choices)}")


def _tables(field: str) -> Mapping[str, str]:
    """Spellings of a field's values by libraries, lower case."""

    if field == "train.precision":
        return PRECISIONS
    if field.endswith("dtype"):
        return DTYPES
    if field == "train.optimizer_impl":
        return {"single": "for-loop", "forloop": "for-loop", "for_loop": "for-loop"}
    named = {
        "parallel.strategy": STRATEGIES,
        "train.attention": ATTENTIONS,
        "train.outputs_kept": KEPT,
        "task": TASKS,
        "train.quantization.type": QUANTIZATIONS,
    }
    return named.get(field, {})


def checked(bound: Bound) -> tuple[Bound, Problem | None]:
    """A bound whose constant value its field can have; else it becomes unknown.

    There is a Problem at its place only if whoever gets the value refuses it too: a program may mean "off" by 0 or -1,
    convert a text, or take a list where a Job has a number.
    """
    if any(True for _ in names(bound.expr)):
        return bound, None
    value = evaluate(bound.expr)
    if isinstance(value, Unknown):
        return bound, None
    try:
        found = normal(bound.field, value, bound.setting)
        if isinstance(found, Unknown) and found.cause is Cause.run_time:  # devices: auto
            if bound.stated_by_user:  # the user states what the files leave open
                raise Invalid(f"{bound.field} is {value!r}, which only the program decides: state a number")
            return replace(bound, expr=Const(found, bound.origin)), None
    except Invalid as error:
        expr = Const(Unknown(str(error), Cause.invalid), bound.origin)
        if bound.origin is None or not _is_refused(bound, value):
            return replace(bound, expr=expr), None
        return replace(bound, expr=expr), Problem("invalid-config", str(error), bound.origin)
    return bound, None


_LEAST = {"train.batch_size": 1, "validation.batch_size": 1, "data.workers": 0}
"""The least that torch.utils.data.DataLoader takes; for smaller numbers it raises ValueError."""


def _is_refused(bound: Bound, value: Value) -> bool:
    """Whether the user maps the setting to the field, or a DataLoader gets the number itself."""
    if bound.source is Source.map or bound.stated_by_user:
        return True
    least = _LEAST.get(bound.field)
    number = type(value) is int and least is not None and value < least
    return number and bound.source is Source.file and not bound.setting and value != -1


# How libraries spell optimizers, precisions and dtypes, as data; and putting an expression into the Job's spelling.
#
# The tables list what the libraries accept: `transformers.training_args.OptimizerNames`, Lightning's and Fabric's
# `precision`, Accelerate's `mixed_precision`, dtype names, classes of torch.optim, bitsandbytes and torchao.


class _Tables(TypedDict):
    in_backward: list[str]
    optimizers: dict[str, list[str | None]]
    precisions: dict[str, str]
    dtypes: dict[str, str]
    parts: dict[str, dict[str, list[str]]]
    attention: dict[str, str]


_DATA: _Tables = json.loads(Path(__file__).with_name("spellings.json").read_bytes())


class _Optimizers(Mapping[str, str]):
    """The table of the library's spellings; other distributions are asked where it says "other" or nothing."""

    def __init__(self) -> None:
        self._own = {name: entry[0] or "other" for name, entry in _DATA["optimizers"].items()}

    def __getitem__(self, name: str) -> str:
        found = self._own.get(name, "other")
        if found != "other":
            return found
        return _added_spellings().get(name) or self._own[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **_added_spellings()})

    def __len__(self) -> int:
        return len({**self._own, **_added_spellings()})


@lru_cache(maxsize=1)
def _added_spellings() -> Mapping[str, str]:
    """How optimizers of other distributions are spelled. Raises ExtensionError."""
    found: dict[str, str] = {}
    for name, (row, one) in optimizer.added().items():
        for spelling in row.spellings:
            own = _DATA["optimizers"].get(spelling, [None])[0]
            if own not in (None, "other", name):
                raise wrong(one, f"the spelling {spelling} is preflight's own, of {own}")
            found[spelling] = name
    return found


OPTIMIZERS: Mapping[str, str] = _Optimizers()
"""Lower-case spelling -> the Job's name of the optimizer."""
IMPLEMENTATIONS: Mapping[str, str] = {
    name: impl for name, entry in _DATA["optimizers"].items() if (impl := entry[1]) is not None
}
"""Lower-case spelling -> foreach, fused or for-loop, where the spelling decides it."""
IN_BACKWARD: frozenset[str] = frozenset(_DATA["in_backward"])
"""Spellings of optimizers that use and free each gradient during backward (transformers, trainer_optimizer.py)."""
PRECISIONS: Mapping[str, str] = _DATA["precisions"]
"""Spellings of the precision of autocast (a bare "bf16" is mixed precision here)."""
DTYPES: Mapping[str, str] = _DATA["dtypes"]
"""Spellings of the dtype in which a tensor is stored."""
ATTENTION_IMPLEMENTATIONS: Mapping[str, str] = _DATA["attention"]
"""transformers' `attn_implementation`."""
PARTS: Mapping[str, Mapping[str, list[str]]] = _DATA["parts"]
"""How a family names its layers -> part of a layer (litgpt's words, litgpt/lora.py) -> transformers' modules of it."""

YOLO_HOMES = ("ultralytics:", "yolov5:")
"""The package `ultralytics`, and the repository ultralytics/yolov5."""
YOLO_NAME = regex(r"(?:.*/)?yolo(v5|v8|11|v11)([nsmlx])(u?)(?:-(seg|pose|cls))?(?:\.pt|\.yaml|\.yml)?")
YOLO_NOMINAL_BATCH = 64
"""`nbs` of ultralytics/cfg/default.yaml: its trainer accumulates gradients up to this batch by itself."""


def yolo_target(name: str) -> str | None:
    """The import target of a YOLO model: of "yolov8n.pt" it is "ultralytics:yolov8n.pt". None for any other name."""
    if name.startswith(YOLO_HOMES):
        return name
    return f"ultralytics:{name.rpartition('/')[2]}" if YOLO_NAME.fullmatch(name) else None


def spelled(expr: Expr, spellings: Mapping[str, Scalar], default: Scalar = None) -> Expr:
    """`expr` in the Job's spelling; unknown where the table lacks it and there is no default.

    A constant is looked up at once and keeps its origin; anything else becomes a look-up that `study` evaluates.
    """
    if not any(True for _ in names(expr)):
        value = evaluate(expr)
        if isinstance(value, Unknown):
            return expr
        found = spellings.get(_text(value), default)
        reason = f"{value!r} is not a spelling that preflight knows"
        return Const(Unknown(reason, Cause.invalid) if found is None else found, expr.origin)
    key = Op("lower", (Op("str", (expr,)),))
    operands: tuple[Expr, ...] = (Const(dict(spellings)), key)
    return Op("get", operands if default is None else (*operands, Const(default)), expr.origin)


def _text(value: object) -> str:
    return str(value).lower()
