"""Make the shipped laws of segmenters and of embedded texts: `python scripts/make_perception_laws.py [WORD ...]`.

Needs torch, transformers, torchvision and segmentation_models_pytorch. A law is a function of the batch and of the
side or the length, of the number of classes or words, and of the depth of encoders; it is proved event by event by a
trace that it has not seen. Those that are there are kept; words choose those whose name they occur in.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from preflight.job import build
from preflight.memory.device import embeddings, others, perception_make
from preflight.memory.device.make import CannotMake, Made
from preflight.memory.device.resolve import Resolved, resolve
from preflight.memory.device.sparse import make_sparse
from preflight.memory.device.store import FORMAT, LawKey, key_of, load, other_path, pack
from preflight.memory.device.tape import NotRegular
from preflight.memory.device.tracing import TraceError
from preflight.tracer import TRACER_VERSION
from preflight.values import Unknown

PRECISIONS = ("fp32", "bf16-mixed")
SEGFORMERS = ("nvidia/mit-b0", "nvidia/mit-b1", "nvidia/mit-b2", "nvidia/mit-b3", "nvidia/mit-b4", "nvidia/mit-b5")
DENSE: Sequence[tuple[str, Mapping[str, object]]] = (
    ("torchvision:deeplabv3_resnet50", {}), ("torchvision:deeplabv3_resnet101", {}), ("torchvision:fcn_resnet50", {}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet34", "classes": 2}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet34"}),
    ("segmentation_models_pytorch:Unet", {"encoder_name": "resnet50", "classes": 2}),
    ("segmentation_models_pytorch:DeepLabV3Plus", {"encoder_name": "resnet50", "classes": 2}),
)  # fmt: skip
ENCODERS = ("sentence-transformers/all-MiniLM-L12-v2", "microsoft/mpnet-base", "bert-base-uncased", "roberta-base",
            "bert-large-uncased", "xlm-roberta-large")  # fmt: skip
LIBRARIES = ("torch", "transformers", "torchvision", "segmentation_models_pytorch")


def asked() -> Iterator[tuple[str, Resolved]]:
    """(name, what the law is looked up by), the most wanted first."""
    texts: Sequence[tuple[str, Mapping[str, object]]] = [("two", {}), ("three", {"texts": 3})]
    for how, kwargs in texts:
        for precision in PRECISIONS:
            for name in ENCODERS:
                stated = {"model.name": name, "model.kwargs": kwargs, "task": "contrastive", "train.seq_len": 128}
                yield f"{name} {precision} {how}", _resolved(precision, stated)
    for precision in PRECISIONS:
        for name in SEGFORMERS:
            yield f"{name} {precision}", _resolved(precision, {"model.name": name, "train.image_size": 512})
        for name, kwargs in DENSE:
            stated = {"model.target": name, "model.kwargs": kwargs, "train.image_size": 512}
            yield f"{name} {kwargs} {precision}", _resolved(precision, stated)


def _resolved(precision: str, stated: Mapping[str, object]) -> Resolved:
    found = resolve(build({"train.batch_size": 2, "train.precision": precision, **stated}))
    if isinstance(found, Unknown):
        raise SystemExit(f"{stated}: {found.reason}")
    return found


def run(traces: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Traces in this process."""
    from preflight.tracer.main import serve

    replies = serve({"traces": list(traces)})["traces"]
    for reply in replies:
        if "error" in reply:
            raise TraceError(reply["error"])
    return json.loads(json.dumps(replies))  # type: ignore[no-any-return]


def make_one(resolved: Resolved) -> Made:
    """One law, as a function of all its lengths. Raises CannotMake, TraceError, NotRegular."""
    if resolved.model["kind"] == embeddings.KIND:
        return perception_make.make(resolved, "train", run)
    free = [name for name in others.FREE if name in resolved.all_dims]
    fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
    return make_sparse(others.request(resolved, "train"), free, run, fixed)


def filed(family: str) -> dict[str, Made]:
    """The laws that a file has already."""
    path = other_path(family)
    if not path.is_file():
        return {}
    keys = json.loads(gzip.decompress(path.read_bytes()))["laws"]
    found = {key: load(LawKey(family, key)) for key in keys}
    return {key: made for key, made in found.items() if made is not None}


def versions() -> dict[str, str]:
    """What makes the laws."""
    found = {"tracer": TRACER_VERSION}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write(family: str, laws: Mapping[str, Made]) -> int:
    """The file, whole or not at all, the same bytes for the same laws. Returns bytes."""
    data = {"format": FORMAT, "family": family, "made_by": versions(), **pack(dict(sorted(laws.items())))}
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), 9, mtime=0)
    path = other_path(family)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(packed)
    new.replace(path)
    return len(packed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--again", action="store_true", help="make what is there as well")
    options = parser.parse_args()
    there: dict[str, dict[str, Made]] = {}  # read once: the store remembers files as it first saw them
    for name, resolved in asked():
        if not all(word.lower() in name.lower() for word in options.words):
            continue
        key = key_of(resolved, "train")
        laws = there.setdefault(key.family, filed(key.family))
        if key.text in laws and not options.again:
            continue
        start = time.perf_counter()
        try:
            made = make_one(resolved)
        except (CannotMake, TraceError, NotRegular) as error:
            print(f"{name}: not made: {str(error)[:200]}", file=sys.stderr, flush=True)
            continue
        laws[key.text] = made
        size = write(key.family, laws)
        print(f"{name}: {size} bytes in {key.family}, {time.perf_counter() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
