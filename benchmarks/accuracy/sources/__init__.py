"""From a measured row to the Job that was run: one module per source.

Each module states what the run was from the source's own code and documentation, and names the file of each fact.
What neither shows stays None (unknown) or is an `Inexpressible`; nothing is chosen because it brings a figure closer.
"""

from __future__ import annotations

from types import ModuleType

from benchmarks.accuracy.sources import detection, fitcheck, litgpt, megatron, qwen, swift, timm, torchtune, unsloth
from benchmarks.accuracy.truth import GIB, Inexpressible, Row, Run, tiers

MODULES: tuple[ModuleType, ...] = (detection, fitcheck, litgpt, megatron, qwen, swift, timm, torchtune, unsloth)
"""Each has NAME, `recognises(row)` and `fields(row)`."""


def run_of(row: Row) -> Run:
    """A row with the Job that it describes."""
    module = next((m for m in MODULES if m.recognises(row)), None)
    fields = module.fields(row) if module is not None else Inexpressible("no module knows this source")
    name = module.NAME if module is not None else "unknown"
    measured = tiers(row, getattr(module, "GB", GIB))
    return Run(row["id"], name, kind_of(row, fields), fields, measured, row["quality"], row["metric"])


def kind_of(row: Row, fields: object) -> str:
    """The family of a row in the tables."""
    task = row["task"]
    if "detection" in task:
        return "detectors"
    if "classification" in task:
        return timm.kind(row["model"].removeprefix("timm "))
    if "vlm" in task:
        return "vision-language models"
    if "FSDP" in row["parallelism"]:
        return "decoders, several GPUs"
    method = str((row.get("peft") or {}).get("method", "")).lower()
    if not method:
        return "decoders, full"
    if "nf4" in method or method.startswith(("qlora", "q-lora")):
        return "decoders, QLoRA"
    return "decoders, LoRA" if method.startswith("lora") else "decoders, other adapters"
