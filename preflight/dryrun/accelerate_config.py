"""What `accelerate launch` reads of its configuration file: numbers of processes, and variables for the program.

The launcher itself is not started in a dry run, so nothing else would read the file (accelerate.utils.launch).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from preflight.system.files import UnreadableFile, read_bytes
from preflight.vocabulary.errors import UsageError

MOST_BYTES = 2**20
_STRATEGIES = {
    "DEEPSPEED": ("ACCELERATE_USE_DEEPSPEED", "deepspeed_config"),
    "FSDP": ("ACCELERATE_USE_FSDP", "fsdp_config"),
}
"""The variable and the part of the file of each distributed type."""
_DEEPSPEED = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "offload_optimizer_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload_param_nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
}


def read(path: str) -> dict[str, Any]:
    """The settings of a file. Raises UsageError."""
    try:
        found = yaml.load(read_bytes(Path(path), MOST_BYTES), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except UnreadableFile as error:
        raise UsageError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is no configuration of accelerate: it is no YAML") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no configuration of accelerate: it has no settings")
    return found


def number(settings: Mapping[str, Any], name: str) -> int | None:
    """A positive whole number of a file; None where it has none."""
    value = settings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the launcher sets for a file."""
    return dict(_variables(settings))


def _variables(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    precision = settings.get("mixed_precision")
    if precision is not None:
        yield "ACCELERATE_MIXED_PRECISION", "no" if precision is False else str(precision)  # `no` is a boolean in YAML
    switch, part = _STRATEGIES.get(str(settings.get("distributed_type")), ("", ""))
    if switch:
        yield switch, "true"
    for key, value in _inner(settings, part).items():
        name = key.upper() if part == "fsdp_config" and key.startswith("fsdp_") else _DEEPSPEED.get(key)
        if name is not None and value is not None:
            yield name, _written(value)
    backend = _inner(settings, "dynamo_config").get("dynamo_backend")
    if backend is not None and backend is not False:
        yield "ACCELERATE_DYNAMO_BACKEND", str(backend).upper()


def _inner(settings: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = settings.get(part)
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
