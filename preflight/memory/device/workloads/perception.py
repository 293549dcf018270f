"""Models of transformers that see or hear, by their class: what their law is filed under.

Which class is trained: the one that `model.config.architectures` names, else that of the task, else the usual one of
the architecture. Lengths that a batch has beside its size are Job's: `image_size` (the shorter side of detectors),
`seq_len` (tokens; samples of sound), `target_len` (labels; objects of one image), `text_len` (text beside an image).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from preflight.memory.device.workloads import perception_table as kinds
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "perception"
UNIT = 64
"""Pixels of an image's side that `u` counts, in laws of every side."""
OBJECTS = 93
"""The most that an image of COCO's train2017 holds: what a batch is taken to have where train.target_len is absent."""
SAM_FROZEN = ["vision_encoder", "prompt_encoder"]
"""What is not trained of SAM where nothing is said: its decoder alone is, as fine-tuning notebooks have it."""


def knows(architecture: str, task: str = "") -> bool:
    """Whether this architecture, trained for this task, is one of these."""
    return kinds.chosen(architecture.replace("_", "-"), task, ()) is not None


def resolve(job: Job, name: str, architecture: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What the law of such a model is looked up by."""
    from preflight.memory.device.attention import kernel
    from preflight.memory.device.resolve import Resolved, setup_of

    architecture = architecture.replace("_", "-")
    stated = config.get("architectures") or ()
    found = kinds.chosen(architecture, job.task or "", (stated,) if isinstance(stated, str) else stated)
    if found is None:
        return Unknown(
            f"what of {name} is trained is not known: state model.config.architectures",
            Cause.not_set,
            ("model.config.architectures",),
        )
    if found.refused:
        return Unknown(f"no law holds for {name}: {found.refused}", Cause.no_law)
    lengths = _lengths(job, architecture, config, found.recipe)
    if isinstance(lengths, Unknown):
        return lengths
    setup = setup_of(job, None, config, gpu)
    if isinstance(setup, Unknown):
        return setup
    mask = found.recipe in kinds.PADDED and job.train.sequences not in ("exact", "packed")
    in_half = job.train.precision != "fp32"
    chosen = kernel(job.train.attention or "sdpa", mask, in_half, gpu)
    setup = {**setup, "attention": "sdpa" if chosen == "flash" else chosen, "mask": mask}
    if architecture in kinds.PROMPTED and "frozen" not in job.train.model_fields_set:
        setup["frozen"] = SAM_FROZEN
    counts = {k: lengths.pop(k) for k in ("wide", "frames") if k in lengths}
    whole = kinds.usual(architecture, config) | dict(config)
    whole.pop("architectures", None)
    dims: dict[str, int] = {}
    if found.recipe == "segmentation":
        dims["V"] = whole["vocab_size"] = kinds.classes(whole)
    if architecture in kinds.SIDED and lengths["i"] % UNIT == 0:
        lengths["u"] = lengths.pop("i") // UNIT
    said = sorted([*counts.items(), *lengths.items()])
    extra = " ".join(f"{k}={v}" for k, v in said if k not in ("b", "u")) or "-"
    model = {"kind": KIND, "architecture": architecture, "config": whole, "class": found.name, "recipe": found.recipe,
             "task": found.recipe, "counts": counts, "filed": filed(architecture, found.name, whole),
             "extra": extra}  # fmt: skip
    return Resolved(None, found.recipe, dims, lengths, {}, setup, model, name)


def filed(architecture: str, of: str, config: Mapping[str, Any]) -> str:
    """The name of a model's law file: its class, and what its config says but for words and counts of classes."""
    said = {k: v for k, v in config.items() if k not in kinds.NO_SIZES and not k.startswith("_")}
    text = json.dumps([of, said], sort_keys=True, default=str)
    return f"{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def is_convolutional(model: Mapping[str, Any]) -> bool:
    """Whether convolutions are much of a model."""
    return model.get("architecture") not in kinds.WITHOUT_CONVOLUTIONS


def with_possible(ready: Ready, gpu: Gpu | None) -> Ready:
    """With what a job may be as well, where it does not say how many objects an image has or what is trained."""
    from preflight.memory.device.prepare import prepare

    job, model = ready.job, ready.resolved.model
    if model["recipe"] in kinds.WITH_OBJECTS and job.train.target_len is None:
        fewest = prepare(job.model_copy(update={"train": job.train.model_copy(update={"target_len": 1})}), gpu)
        note = f"at most {OBJECTS} objects in an image, as COCO has; state train.target_len"
        possible = () if isinstance(fewest, Unknown) else (fewest,)
        ready = replace(ready, others=(*ready.others, *possible), notes=(*ready.notes, note))
    if model["architecture"] in kinds.PROMPTED and "frozen" not in job.train.model_fields_set:
        note = "the mask decoder alone is trained, as fine-tuning notebooks have it: state train.frozen"
        ready = replace(ready, notes=(*ready.notes, note))
    return ready


def _lengths(job: Job, architecture: str, config: Mapping[str, Any], recipe: str) -> dict[str, int] | Unknown:
    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    found = {"b": train.batch_size}
    needs = kinds.NEEDS[recipe]
    if "i" in needs:
        sides = _sides(job, architecture, config)
        found["i"] = sides[0]
        if len(sides) > 1:
            found["wide"] = sides[1]
    if "frames" in needs:
        found["frames"] = int(config.get("num_frames") or kinds.FRAMES.get(architecture, 16))
    if "s" in needs:
        if train.seq_len is None:
            what = "samples of sound" if recipe in kinds.HEARD else "tokens"
            return missing("train.seq_len", what)
        found["s"] = train.seq_len
    if "objects" in needs:
        found["t"] = train.target_len or OBJECTS
    if "words" in needs:
        words = train.text_len or train.target_len or kinds.TEXTS.get(architecture)
        if words is None:
            return missing("train.text_len")
        found["t"] = words
    if "labels" in needs:
        if train.target_len is None:
            return missing("train.target_len")
        found["t"] = train.target_len
    return found


def _sides(job: Job, architecture: str, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Sides of an image, the shorter one first where they differ."""
    own = config.get("image_size") or (config.get("vision_config") or config.get("encoder") or {}).get("image_size")
    said = job.train.image_size or own or kinds.IMAGES.get(architecture, kinds.USUAL_IMAGE)
    if isinstance(said, (list, tuple)):
        return (int(said[0]), int(said[1])) if said[0] != said[1] else (int(said[0]),)
    if isinstance(own, (list, tuple)) and own[0] != own[1]:
        return int(said), round(int(said) * own[1] / own[0])
    if architecture in kinds.OBLONG:
        return int(said), round(int(said) * kinds.LONGEST / kinds.SHORTEST)
    return (int(said),)
