"""Models of transformers for images, video and sound: resolving a job that trains one, by its class.

Which class is trained: the one that `model.config.architectures` names, else that of the task, else the usual one of
the architecture. Other lengths of a batch are fields of the Job: `image_size` (the shorter side of detectors),
`seq_len` (tokens; samples of sound), `target_len` (labels; objects of one image), `text_len` (text of an image).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.setup import with_kernel
from preflight.memory.device.law.workload import Config, Resolved, WorkloadRequest
from preflight.memory.device.workloads import perception_table as table
from preflight.memory.device.workloads.own_step import OwnStep, begin, digest, objects_of_data
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown, missing

UNIT = 64
"""Pixels of an image's side that `u` counts, in laws of every side."""
OBJECTS = 93
"""The maximum of objects in an image of COCO's train2017: the default of train.target_len."""
FIRST_STEP = "denoised-boxes"
"""The recipe of models that keep anchors and positions of their first step (RT-DETR, D-FINE: lru_cache)."""
SAM_FROZEN = ("vision_encoder", "prompt_encoder")
"""Parts of SAM that are frozen where it is not stated: only its decoder is trained, as in fine-tuning notebooks."""


class Perception(OwnStep, frozen=True):
    """A model of transformers for images, video or sound, by the class that is trained."""

    kind: ClassVar[str] = "perception"
    warm_up: ClassVar[bool] = True
    trained: str
    """The class."""
    recipe: str
    """Which batches it is trained on (tracer/perception_batches.py)."""
    counts: Mapping[str, int]
    """Lengths that the tracer is told with the model: the longer side of images, frames of a clip."""
    sizes: Mapping[str, int]
    """Every length that a law is of, and not a function of."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return table.chosen(asked.known_as.replace("_", "-"), asked.task, ()) is not None

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        job, config = asked.job, asked.config
        architecture = asked.known_as.replace("_", "-")
        stated = config.get("architectures") or ()
        found = table.chosen(architecture, asked.task, (stated,) if isinstance(stated, str) else stated)
        if found is None:
            return Unknown(
                f"it is not known which part of {asked.name} is trained: state model.config.architectures",
                Cause.not_set,
                ("model.config.architectures",),
            )
        if found.refused:
            return Unknown(f"no law holds for {asked.name}: {found.refused}", Cause.no_law)
        setup = begin(asked)
        if isinstance(setup, Unknown):
            return setup
        lengths = _lengths(job, architecture, config, found.recipe)
        if isinstance(lengths, Unknown):
            return lengths
        mask = found.recipe in table.PADDED and job.train.sequences not in ("exact", "packed")
        setup = with_kernel(setup, job, asked.gpu, mask)
        if _is_prompted(job, architecture):
            setup = replace(setup, frozen=SAM_FROZEN)
        counts: dict[str, int] = {k: lengths.pop(k) for k in ("wide", "frames") if k in lengths}
        whole = table.usual(architecture, config) | dict(config)
        whole.pop("architectures", None)
        dims: dict[str, int] = {}
        if found.recipe == "segmentation":
            dims["V"] = whole["vocab_size"] = table.classes(whole)
        if architecture in table.SIDED and lengths["i"] % UNIT == 0:
            lengths["u"] = lengths.pop("i") // UNIT
        sizes = {k: v for k, v in {**counts, **lengths}.items() if k not in ("b", "u")}
        model = cls(architecture, whole, found.recipe, found.name, found.recipe, counts, sizes)
        return Resolved(model, asked.name, found.recipe, dims, lengths, setup)

    def told(self) -> dict[str, Any]:
        return {"class": self.trained, "recipe": self.recipe, "counts": dict(self.counts)}

    @property
    def filed(self) -> str:
        said = {k: v for k, v in self.config.items() if k not in table.NO_SIZES and not k.startswith("_")}
        return f"{self.architecture}-{digest([self.trained, said])}"

    @property
    def extra(self) -> str:
        return " ".join(f"{name}={size}" for name, size in sorted(self.sizes.items())) or "-"

    @property
    def convolutional(self) -> bool:
        return self.architecture not in table.WITHOUT_CONVOLUTIONS

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw | None:
        if self.recipe in table.WITH_OBJECTS:
            from preflight.memory.device.fit import pairwise_loss

            return pairwise_loss.make(resolved, kind, run, self.recipe == FIRST_STEP)
        return None

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """One object in each image, where train.target_len is not stated."""
        if self.recipe in table.WITH_OBJECTS and job.train.target_len is None:
            yield job.model_copy(update={"train": job.train.model_copy(update={"target_len": 1})})

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        found = dict(objects_of_data(job)) if self.recipe in table.WITH_OBJECTS else {}
        if _is_prompted(job, self.architecture):
            found["train.frozen"] = "no file states it, and only the mask decoder is taken to be trained"
        return found

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        if self.recipe in table.WITH_OBJECTS and job.train.target_len is None:
            yield f"assumed: at most {OBJECTS} objects in an image, as in COCO; state train.target_len"
        if _is_prompted(job, self.architecture):
            yield "assumed: only the mask decoder is trained, as in fine-tuning notebooks; state train.frozen"


def _is_prompted(job: Job, architecture: str) -> bool:
    """Whether a promptable model is trained and train.frozen is not stated."""
    return architecture in table.PROMPTED and "frozen" not in job.train.model_fields_set


def _lengths(job: Job, architecture: str, config: Config, recipe: str) -> dict[str, int] | Unknown:
    train = job.train
    found = {"b": train.batch_size or 1}
    needs = table.NEEDS[recipe]
    if "i" in needs:
        sides = _sides(job, architecture, config)
        found["i"] = sides[0]
        if len(sides) > 1:
            found["wide"] = sides[1]
    if "frames" in needs:
        found["frames"] = int(config.get("num_frames") or table.FRAMES.get(architecture, 16))
    if "s" in needs:
        if train.seq_len is None:
            what = "samples of sound" if recipe in table.HEARD else "tokens"
            return missing("train.seq_len", what)
        found["s"] = train.seq_len
    if "objects" in needs:
        found["t"] = train.target_len or OBJECTS
    if "words" in needs:
        words = train.text_len or train.target_len or table.TEXTS.get(architecture)
        if words is None:
            return missing("train.text_len")
        found["t"] = words
    if "labels" in needs:
        if train.target_len is None:
            return missing("train.target_len")
        found["t"] = train.target_len
    return found


def _sides(job: Job, architecture: str, config: Config) -> tuple[int, ...]:
    """Sides of an image, the shorter one first where they differ."""
    own = config.get("image_size") or (config.get("vision_config") or config.get("encoder") or {}).get("image_size")
    said = job.train.image_size or own or table.IMAGES.get(architecture, table.USUAL_IMAGE)
    if isinstance(said, (list, tuple)):
        return (int(said[0]), int(said[1])) if said[0] != said[1] else (int(said[0]),)
    if isinstance(own, (list, tuple)) and own[0] != own[1]:
        return int(said), round(int(said) * own[1] / own[0])
    if architecture in table.OBLONG:
        return int(said), round(int(said) * table.LONGEST / table.SHORTEST)
    return (int(said),)
