"""What the key of a shipped law stands for: the inverse of `store.key_text`."""

from __future__ import annotations

from msgspec.structs import replace

from preflight.memory.device.families import Family
from preflight.memory.device.law.adapters import Adapters
from preflight.memory.device.law.quantization import QuantizedWeights
from preflight.memory.device.law.setup import Setup

SWITCHES = {"true": True, "false": False, "None": None}


def from_key(key: str, family: Family) -> tuple[str, str, Setup, dict[str, object]]:
    """(task, kind, setup, structure)."""
    task, kind, precision, attention, padded, stored, *rest = key.split(" ")
    weights, _, autocast = precision.partition("/")
    setup = Setup(weights, None if autocast == "plain" else autocast, attention, padded == "padded",
                  stored == "checkpointed")  # fmt: skip
    if rest[0].startswith("loss:"):
        setup = replace(setup, loss=rest.pop(0).partition(":")[2])
    if rest[0] == "offloaded":
        setup = replace(setup, offload=bool(rest.pop(0)))
    if rest[0].startswith(("4bit", "int8")):
        kind_of, compute, *more = rest.pop(0).split(":")
        setup = replace(setup, quantization=QuantizedWeights(kind_of, compute, "rest32" in more))
    adapters, *switches = rest
    if adapters != "full":
        _, names, *more = adapters.split(":")
        setup = replace(setup, peft=Adapters("lora", tuple(names.split("-")), "dropout" in more))
    structure = dict(family.usual)
    for one in switches:
        name, _, value = one.partition("=")
        structure[name] = _switch(value, family.usual.get(name))
    return task, kind, setup, structure


def _switch(text: str, default: object) -> object:
    if text in SWITCHES:
        return SWITCHES[text]
    if text in ("on", "off"):
        return (default or 0.1) if text == "on" else 0.0
    return type(default)(text) if isinstance(default, (int, float)) and not isinstance(default, bool) else text
