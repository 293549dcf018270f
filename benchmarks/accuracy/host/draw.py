"""Points drawn at random, which no constant was chosen by: `run.py --draw NAME` measures them into `drawn.jsonl`.

A draw is a name, which is its seed, so that anybody gets the same points. Each was drawn and judged once before the law
was changed by it: docs/results/host-memory.md has the errors of both moments.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import prod
from typing import Any

from benchmarks.accuracy.host import plan

DRAWS = {"first": 60, "second": 40}
"""Name of a draw -> its number of points."""
LARGEST = 2 * 2**30
"""Bytes that a point may take by the rough bound below: the machine is not ours alone."""
LARGEST_DATA = 250 * 2**20
"""Bytes of a data set in memory."""
SIDES = (32, 64, 96, 128, 160, 192, 224, 256, 299, 320, 384, 448, 512, 640, 768, 1024)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 256, 400)
KINDS = {"generated": 30, "numpy": 7, "decoded": 6, "doubled": 5, "array": 7, "copies": 5, "tensors": 5, "dicts": 6,
         "lists": 5, "records": 4, "strings": 4, "jpeg": 9, "tokenised": 6, "arrow": 6}  # fmt: skip
"""Kind of data set -> how often it is drawn, in parts."""
WHOLE = ("dicts", "lists", "records", "strings")
"""Kinds whose objects are all read, twice: what reading writes to is then what is measured."""
HEAVY = ("trainer", "datasets", "lightning", "accelerate", "pandas", "scipy")


def points(name: str) -> list[plan.Point]:
    """The points of a draw."""
    found = {point["id"]: point for point in _drawn(name, DRAWS[name])}
    return list(found.values())


def _drawn(name: str, number: int) -> Iterator[plan.Point]:
    generator, names = random.Random(f"preflight host {name}"), set[str]()
    while len(names) < number:
        point = _one(generator)
        point["id"] = plan.name_of(point)
        if _bound(point) <= LARGEST and point["id"] not in names:
            names.add(point["id"])
            yield {**point, "draw": name}


def _one(generator: random.Random) -> plan.Point:
    pick, chance = generator.choice, generator.random
    kind = generator.choices(list(KINDS), list(KINDS.values()))[0]
    workers = pick((0, 1, 2, 2, 3, 4, 4, 5, 6, 8, 10))
    more: dict[str, Any] = {"prefetch": pick((1, 2, 2, 2, 3, 4, 6))}
    if workers:
        more["start"] = pick(("fork",) * 6 + ("spawn", "forkserver"))
        if more["start"] != "fork":
            workers = min(workers, 4)
    for name, often in (("persistent", 0.4), ("pin_memory", 0.3), ("shuffle", 0.5)):
        more[name] = chance() < often
    ranks = pick((1,) * 7 + (2, 2, 3))
    if ranks > 1:
        more["ranks"], workers = ranks, min(workers, 4)
    if chance() < 0.3:
        more |= {"val_workers": pick((0, 1, 2, 3, 4)), "val_batch": pick(BATCHES), "epoch_end": chance() < 0.6}
    elif kind == "generated" and workers and chance() < 0.35:
        more["steps"] = pick((100, 200, 400))
    if chance() < 0.35:
        more["imports"] = plan.IMPORTS[pick(HEAVY)]
    shape, batch, more = _what(generator, kind, more)
    return plan.loader("drawn", kind, shape, batch, workers, **more)


def _what(generator: random.Random, kind: str, more: dict[str, Any]) -> tuple[list[int], int, dict[str, Any]]:
    """The shape of a sample, the batch, and what only this kind of data set has."""
    batch, side = generator.choice(BATCHES), generator.choice(SIDES)
    shape = [3, side, side] if generator.random() < 0.8 else [generator.choice((16, 1000, 10_000, 50_000, 150_000))]
    imports = more.get("imports", ["torch"])
    if kind in ("decoded", "doubled"):
        return [3, side, side], batch, more
    if kind in ("array", "copies", "tensors"):
        items = max(20, round(generator.uniform(0.1, 1) * LARGEST_DATA / (4 * prod(shape))))
        return shape, batch, {**more, "items": min(items, 20_000)}
    if kind in WHOLE:
        more |= {"whole": True, "epochs": generator.choice((1, 2)), "items": generator.choice((100_000, 250_000))}
        if kind in ("strings", "records", "lists"):
            more["length"] = generator.choice((30, 100, 300) if kind != "lists" else (8, 24, 60))
        return [8], generator.choice((128, 256, 512)), more
    if kind == "jpeg":
        photo = generator.choice(([500, 375], [640, 480], [1280, 720], [2048, 1536], [3000, 2000]))
        side = generator.choice((96, 160, 224, 256, 384))
        return [3, side, side], batch, {**more, "photo": photo, "imports": [*imports, "PIL.Image"]}
    if kind in ("tokenised", "arrow"):
        needs = {"tokenised": "tokenizers", "arrow": "datasets"}[kind]
        length, items = generator.choice((128, 512, 1024, 2048, 4096)), generator.choice((1000, 3000))
        more |= {"items": items, "samples": items, "imports": list(dict.fromkeys([*imports, needs]))}
        return [length], generator.choice((4, 8, 16, 32, 64)), more
    return shape, batch, more


def _bound(point: plan.Point) -> float:
    """Bytes that the point may take at most, roughly: every batch in flight, and heaps that grew as far as was seen."""
    sample = prod(point["shape"]) * (24 if point["kind"] in ("tokenised", "arrow") else 4)
    loaders = [(point["workers"], point["batch"])]
    if "val_workers" in point:
        loaders.append((point["val_workers"], point["val_batch"]))
    kept = 150 if "steps" in point else 40
    total = sum(
        ((workers * point["prefetch"] + 3 + 2 * workers) * batch + kept * (workers + 1)) * sample
        for workers, batch in loaders
    )
    return float(point.get("ranks", 1) * (total + (LARGEST_DATA if "items" in point else 0) + 150 * 2**20))
