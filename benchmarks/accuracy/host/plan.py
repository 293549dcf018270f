"""The points that are measured. A point is JSON: `id`, `group` (points that are left out together), settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Point = dict[str, Any]
SMALL, LARGE, TINY = [3, 224, 224], [3, 640, 640], [8]


def points(quick: bool = False) -> list[Point]:
    """Every point, or a handful that takes a minute."""
    found = [*_base(), *_loaders(), *_in_memory(), *_decoding(), *_text(), *_both(), *_ranks(), *_weights()]
    for point in found:
        point.setdefault("id", name_of(point))
    return [point for point in found if point.get("quick")] if quick else found


def name_of(point: Point) -> str:
    """What a point is, in a line."""
    hidden = ("group", "what", "quick", "samples")
    return " ".join(f"{key}={_shown(value)}" for key, value in point.items() if key not in hidden)


def _shown(value: Any) -> str:
    return "x".join(str(part) for part in value) if isinstance(value, list) else str(value)


IMPORTS: dict[str, list[str]] = {
    "torch": ["torch"],
    "trainer": ["torch", "transformers:Trainer,AutoModelForCausalLM"],
    "datasets": ["torch", "datasets"],
    "lightning": ["torch", "lightning"],
    "trainer + datasets": ["torch", "datasets", "transformers:Trainer,AutoModelForCausalLM"],
    "accelerate": ["torch", "accelerate"],
    "pandas": ["torch", "pandas"],
    "scipy": ["torch", "scipy.stats"],
    "pillow": ["torch", "PIL.Image"],
    "model classes": ["torch", "transformers.models.llama.modeling_llama"],
    "peft": ["torch", "peft"],
    "lightning + datasets": ["torch", "lightning", "datasets"],
}
"""Name of a base -> modules (and attributes of lazy ones) that a program imports."""


def _base() -> Iterator[Point]:
    for name, modules in IMPORTS.items():
        yield {"group": "base", "what": "base", "base": name, "imports": modules, "quick": name in ("torch", "trainer")}


def loader(group: str, kind: str, shape: list[int], batch: int, workers: int, **more: Any) -> Point:
    """A loader's point, with as many samples as its run takes."""
    point = {"group": group, "what": "loader", "kind": kind, "shape": shape, "batch": batch, "workers": workers,
             "prefetch": 2, **more}  # fmt: skip
    flight = max(1, workers) * point["prefetch"]
    point.setdefault("samples", batch * (1 + 2 * max(1, workers) + 3 * flight + 6 + point.get("steps", 0)))
    return point


def _loaders() -> Iterator[Point]:
    for shape, batch, workers, prefetch in (
        (SMALL, 128, 0, 2), (SMALL, 32, 1, 2), (SMALL, 32, 2, 2), (SMALL, 128, 2, 4), (SMALL, 64, 4, 2),
        (SMALL, 64, 4, 4), (SMALL, 64, 8, 2), (SMALL, 8, 8, 2), (SMALL, 128, 8, 2), (SMALL, 256, 2, 1),
        (LARGE, 16, 0, 2), (LARGE, 8, 2, 2), (LARGE, 32, 2, 2), (LARGE, 16, 4, 2), (LARGE, 4, 8, 2), (LARGE, 1, 4, 2),
        (TINY, 8, 8, 2), (TINY, 64, 16, 2), ([65536], 64, 4, 2), ([16384], 256, 4, 2), ([4096], 512, 4, 4),
    ):  # fmt: skip
        quick = (shape, batch, workers) in ((SMALL, 32, 2), (TINY, 8, 8))
        yield loader("generated", "generated", shape, batch, workers, prefetch=prefetch, quick=quick)
    for batch, workers in ((4, 2), (2, 4), (4, 0)):
        yield loader("huge", "generated", [3, 2048, 2048], batch, workers)
    yield loader("shuffle", "generated", TINY, 32, 2, shuffle=True, samples=1_000_000)
    yield loader("shuffle", "generated", TINY, 32, 0, shuffle=True, samples=4_000_000)
    yield loader("shuffle", "generated", TINY, 32, 4, shuffle=True, samples=4_000_000)
    for imports in ("trainer", "lightning", "trainer + datasets"):
        yield loader("imports", "generated", SMALL, 16, 4, imports=IMPORTS[imports])
        yield loader("imports", "generated", TINY, 8, 8, imports=IMPORTS[imports])
    for imports in ("torch", "trainer"):
        yield loader("collections", "generated", TINY, 512, 4, imports=IMPORTS[imports], prefetch=4)
        yield loader("collections", "generated", TINY, 128, 4, imports=IMPORTS[imports], prefetch=4)
    for shape, batch in ((LARGE, 4), (LARGE, 16), (SMALL, 8), (SMALL, 64)):
        yield loader("long", "generated", shape, batch, 2, steps=300)
    for shape, batch, workers, steps in (
        (LARGE, 4, 2, 300),
        (LARGE, 16, 2, 300),
        (SMALL, 64, 4, 0),
        (SMALL, 8, 2, 300),
    ):
        yield loader("newer glibc", "generated", shape, batch, workers, steps=steps, glibc="2.41")
    yield loader("spawn", "generated", TINY, 8, 4, start="spawn")
    yield loader("spawn", "generated", SMALL, 64, 2, start="spawn", quick=True)
    yield loader("spawn", "generated", TINY, 8, 2, start="spawn", imports=IMPORTS["trainer"])
    yield loader("spawn", "generated", TINY, 8, 4, start="forkserver")
    yield loader("spawn", "array", SMALL, 32, 2, start="spawn", items=500)
    yield loader("spawn", "dicts", TINY, 256, 2, start="spawn", items=300_000)
    yield loader("spawn", "strings", TINY, 256, 2, start="spawn", items=600_000, length=100)


def _in_memory() -> Iterator[Point]:
    yield loader("arrays", "array", SMALL, 32, 8, items=1000)
    yield loader("arrays", "array", SMALL, 64, 2, items=1000)
    yield loader("arrays", "array", SMALL, 64, 0, items=500)
    yield loader("arrays", "copies", SMALL, 32, 4, items=1000)
    yield loader("arrays", "tensors", SMALL, 32, 4, items=1000)
    for workers, shuffle in ((0, True), (2, True), (4, True), (8, True), (4, False)):
        more = {"whole": True, "epochs": 2, "shuffle": shuffle, "items": 400_000}
        yield loader("objects", "dicts", TINY, 512, workers, **more)
        yield loader("strings", "strings", TINY, 512, workers, length=60, **more)
    more = {"whole": True, "epochs": 2, "shuffle": True}
    yield loader("strings", "strings", TINY, 512, 4, length=200, items=400_000, **more)
    yield loader("objects", "records", TINY, 256, 4, items=200_000, **more)
    yield loader("objects", "records", TINY, 256, 2, items=300_000, **more)
    yield loader("objects", "dicts", TINY, 512, 4, items=400_000, persistent=True, **more)


def _decoding() -> Iterator[Point]:
    for kind in ("decoded", "doubled"):
        yield loader("decoding", kind, SMALL, 64, 0)
        yield loader("decoding", kind, SMALL, 64, 4)
        yield loader("decoding", kind, SMALL, 128, 2)
        yield loader("decoding", kind, LARGE, 16, 2)
    for photo, batch, workers in (
        ([500, 375], 64, 4), ([500, 375], 128, 2), ([500, 375], 32, 8), ([500, 375], 64, 0), ([3000, 2000], 8, 2),
        ([3000, 2000], 8, 0),
    ):  # fmt: skip
        imports = ["torch", "PIL.Image", "PIL.JpegImagePlugin"]
        quick = (photo, workers) == ([500, 375], 4)
        yield loader("jpeg", "jpeg", SMALL, batch, workers, photo=photo, imports=imports, quick=quick)
    yield loader("jpeg", "jpeg", LARGE, 8, 2, prefetch=1, photo=[1920, 1080], imports=["torch", "PIL.Image"])


def _text() -> Iterator[Point]:
    for workers, length, batch in ((0, 512, 32), (2, 512, 32), (4, 2048, 64), (8, 2048, 16), (4, 8192, 64)):
        imports = ["torch", "tokenizers"]
        yield loader("text", "tokenised", [length], batch, workers, items=2000, imports=imports, samples=2000)
    for workers, length, batch in ((0, 2048, 32), (2, 2048, 32), (4, 2048, 64), (4, 8192, 64)):
        yield loader("arrow", "arrow", [length], batch, workers, items=2000, imports=IMPORTS["datasets"], samples=2000)
    yield loader("arrow", "arrow-in-memory", [2048], 32, 4, items=4000, imports=IMPORTS["datasets"], samples=4000)


def _both() -> Iterator[Point]:
    for workers, val_workers, val_batch, persistent in ((4, 2, 64, True), (8, 2, 128, True), (4, 4, 64, False)):
        more = {"val_workers": val_workers, "val_batch": val_batch, "persistent": persistent}
        yield loader("validation", "generated", SMALL, 64, workers, **more)
        yield loader("validation", "generated", SMALL, 64, workers, epoch_end=True, **more)
    yield loader("validation", "generated", LARGE, 16, 2, val_workers=2, persistent=True, epoch_end=True)
    yield loader("validation", "generated", SMALL, 64, 0, val_workers=0, epoch_end=True)


def _ranks() -> Iterator[Point]:
    yield loader("ranks", "generated", SMALL, 64, 2, ranks=2)
    yield loader("ranks", "generated", SMALL, 32, 2, ranks=4)
    yield loader("ranks", "generated", SMALL, 64, 2, ranks=2, val_workers=2)
    yield loader("ranks", "dicts", TINY, 512, 2, ranks=2, items=300_000, whole=True, epochs=2, shuffle=True)


def _weights() -> Iterator[Point]:
    for how in ("torch-load", "torch-load-mmap", "torch-load-into-model", "torch-load-mmap-into-model",
                "torch-load-mmap-into-model-assign", "torch-load-full-into-model", "from-pretrained",
                "from-pretrained-trained", "from-pretrained-bf16", "from-pretrained-half", "from-pretrained-upcast",
                "from-pretrained-shards"):  # fmt: skip
        yield _weight("load", how, 8, quick=how == "torch-load")
    for how in ("torch-load-into-model", "torch-load-mmap", "from-pretrained", "from-pretrained-bf16"):
        yield _weight("load", how, 8, ranks=4 if "into" not in how else 2)
    for how in ("torch-save", "safetensors", "save-pretrained"):
        yield _weight("save", how, 8)


def _weight(what: str, how: str, layers: int, **more: Any) -> Point:
    imports = IMPORTS["trainer"]
    return {"group": "checkpoint", "what": what, "how": how, "layers": layers, "imports": imports, **more}
