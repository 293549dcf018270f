"""Measured points as Jobs: what the files of such a program would say, and the size of what it keeps in memory."""

from __future__ import annotations

from math import prod
from typing import Any

from preflight.memory.host.base import bytes_of, parts_of
from preflight.memory.host.checkpoint import SAVING, copies
from preflight.vocabulary.job import Job, build

Row = dict[str, Any]
KINDS = {"array": "arrays", "copies": "arrays", "tensors": "tensors", "dicts": "objects", "records": "objects",
         "lists": "objects", "strings": "strings", "tokenised": "strings", "arrow": "mapped",
         "arrow-in-memory": "arrays"}  # fmt: skip
PICTURES = ("generated", "numpy", "decoded", "doubled", "array", "copies", "tensors", "jpeg")
TEXTS = ("tokenised", "arrow", "arrow-in-memory")
TASKS = {**dict.fromkeys(PICTURES, "image-classification"), **dict.fromkeys(TEXTS, "causal-lm")}
BRINGS = {"transformers:Trainer,AutoModelForCausalLM": {"datasets", "pandas", "scipy"}, "lightning": {"scipy"},
          "transformers.models.llama.modeling_llama": {"scipy"}, "peft": {"scipy"}}  # fmt: skip
"""What a module imports where it is installed, as it was on the measured machine (sys.modules after the import)."""
DECODED = 3 * 4
"""Bytes per pixel of a picture while it is decoded: four in Pillow, as many for what `convert` and `crop` copy."""
SAMPLES = {"dicts": 16, "strings": 8, "records": 24}
"""Bytes of one sample of the kinds whose shape does not say it."""


def sample_bytes(row: Row) -> int:
    """Bytes of one decoded sample."""
    kind = row["kind"]
    if kind == "lists":
        return 8 * int(row["length"])
    if kind in SAMPLES:
        return SAMPLES[kind]
    return prod(row["shape"]) * (24 if kind in ("tokenised", "arrow", "arrow-in-memory") else 4)


def job_of(row: Row) -> Job:
    """The job that a loader's point is."""
    told = row["measured"]["told"]
    fields: dict[str, object] = {
        "train.batch_size": row["batch"], "data.workers": row["workers"], "data.prefetch": row["prefetch"],
        "data.sample_bytes": sample_bytes(row), "data.persistent_workers": row.get("persistent", False),
        "data.start_method": row.get("start", "fork"), "data.shuffle": row.get("shuffle", False),
        "data.samples": row.get("items") or row["samples"], "data.imports": loaded(row), "task": TASKS.get(row["kind"]),
        "parallel.ranks_per_node": row.get("ranks", 1), "data.pin_memory": row.get("pin_memory", False),
        "machine.accelerator": "cpu", "data.epochs": row.get("epochs", 1) + row.get("epoch_end", False),
        "data.copies_samples": row["kind"] == "copies",
        "data.samples_from": "numpy" if row["kind"] in ("numpy", "decoded", "doubled") else None,
    }  # fmt: skip
    if "machine" in row:
        fields["software.glibc"] = row["machine"]["libc"].removeprefix("glibc ")
    if row["kind"] in KINDS:
        fields |= {"data.in_memory_kind": KINDS[row["kind"]], "data.in_memory_bytes": told["dataset_bytes"]}
    if "photo" in row:
        width, height = row["photo"]
        fields["data.worker_bytes"] = DECODED * width * height
    if "val_workers" in row:
        fields |= {"data.validation_workers": row["val_workers"],
                   "validation.samples": row.get("items") or row["samples"],
                   "validation.batch_size": row.get("val_batch", row["batch"]),
                   "data.validation_overlaps": not row.get("epoch_end", False)}  # fmt: skip
    return build(fields)


def loaded(row: Row) -> list[str]:
    """The packages that were in memory: what the point imports, and what that imports where it is installed."""
    modules = row.get("imports", ["torch"])
    found = {name.partition(":")[0].partition(".")[0] for name in modules}
    for name in modules:
        found |= BRINGS.get(name, set())
    return sorted(found)


PEAKS = ("load", "model", "loaded", "assigned", "written", "save")
"""Phases of a checkpoint's point that count: what came before only warms up imports."""


def measured(row: Row) -> int:
    """The bytes that a point is judged by."""
    found = row["measured"]
    if row["what"] not in ("load", "save"):
        peak: int = found["bytes"]
        return peak
    return max(size for name, size in found["phases"].items() if name in PEAKS)


WAYS: dict[str, tuple[str, str, float]] = {
    "torch-load": ("torch-load", "gpu", -1.0), "torch-load-mmap": ("torch-load-mmap", "gpu", -1.0),
    "torch-load-into-model": ("torch-load", "gpu", 0.0), "torch-load-mmap-into-model": ("torch-load-mmap", "gpu", 0.0),
    "torch-load-mmap-into-model-assign": ("torch-load-mmap", "gpu", 0.0),
    "torch-load-full-into-model": ("torch-load-full", "gpu", 0.0),
    "from-pretrained": ("from-pretrained", "gpu", 0.0), "from-pretrained-shards": ("from-pretrained", "gpu", 0.0),
    "from-pretrained-half": ("from-pretrained", "gpu", 0.0), "from-pretrained-trained": ("from-pretrained", "cpu", 0.0),
    "from-pretrained-upcast": ("from-pretrained-cast", "gpu", 0.0),
    "from-pretrained-bf16": ("from-pretrained-cast", "gpu", -0.5),
}  # fmt: skip
"""How a point loads -> model.load, what is trained on (the processor writes to the weights), and the copies in fp32
that it differs by: no model beside the file's tensors, half of the bytes after a cast."""


def weights_expected(row: Row) -> float:
    """Bytes of all ranks of a point that loads or saves weights in fp32."""
    told = row["measured"]["told"]
    base, weights = bytes_of(parts_of(loaded(row), trains=True)), 4 * told["parameters"]
    if row["what"] == "save":  # what is held when saving begins is measured: saving is what is tested
        return float(told["held"] + SAVING * weights)
    load, accelerator, more = WAYS[row["how"]]
    job = build({"model.load": load, "machine.accelerator": accelerator})
    return float(row.get("ranks", 1) * (base + (copies(job)[1] + more) * weights))
