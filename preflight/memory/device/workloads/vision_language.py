"""Models of images and text (LLaVA, Qwen2-VL, PaliGemma, Idefics, Gemma 3 and others): the key of their law.

`train.seq_len` counts all tokens of a sample, also those of its `train.images` images. A law is a
function of the batch and the length, for one size of images. Layers of the text and of the tower are extended from a
few where they are alike; where they differ (sliding windows, cross attention, features that are fed in deep) the model
is traced whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law import loss_and_kernels
from preflight.memory.device.law.law import Laws
from preflight.memory.device.law.made import CHECK_LAYERS, PROBE_LAYERS, Depth, MadeLaw, Runner
from preflight.memory.device.law.setup import RANKED, Setup, setup_of
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.law.workload import Config, Resolved, WorkloadRequest
from preflight.memory.device.workloads.image_tokens import IMAGES, MARKED, Image
from preflight.memory.device.workloads.own_step import OwnStep, digest
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown, missing

FREE = ("b", "s")
"""The dimensions of a traced law; a shipped law has the rank of adapters too."""
GRAIN = 32
"""Lengths of traces are multiples of this number of tokens, to which kernels round."""
SPELLINGS = {"blip_2": "blip-2"}
"""Architectures whose name in a config has another spelling."""
NOT_OF_A_MODEL = ("model_type", "architectures", "torch_dtype", "dtype", "transformers_version", "auto_map",
                  "_name_or_path", "quantization_config", "do_image_splitting")  # fmt: skip
"""Keys of a config.json that say nothing of the model's layers."""
TEXT = {
    "idefics2": "text_model.layers",
    "idefics3": "text_model.layers",
    "smolvlm": "text_model.layers",
    "blip_2": "decoder.layers",
}
TOWER = {
    "qwen2_vl": ("visual.blocks", "depth"),
    "qwen2_5_vl": ("visual.blocks", "depth"),
    "internvl": ("encoder.layer", "num_hidden_layers"),
}
"""Where layers lie, in modules of transformers 5; all others have `language_model.layers` and `encoder.layers`."""
WHOLE = ("gemma3", "mllama", "qwen3_vl")
"""Architectures whose layers differ by their number: sliding windows in most, cross attention in some, features of the
tower fed into others."""
ALSO_TEXT = ("gemma3",)
"""Architectures that are as often trained on text alone."""
PARTS = {
    "vision": "vision vision_tower vision_model vision_encoder image_encoder vit visual.blocks visual.patch_embed",
    "projector": "projector multi_modal_projector mm_projector merger visual.merger connector aligner qformer",
    "language": "language language_model llm text_model model.language_model lm",
}
"""Names of parts in `train.frozen`, in addition to `visual` (Qwen's tower with its merger)."""
_NAMED: dict[str, tuple[str, ...]] = {name: (part,) for part, names in PARTS.items() for name in names.split()}
_NAMED |= {"visual": ("vision", "projector")}
FREEZES_TOWER = "liuhaotian/"
"""Owner of the ids that LLaVA's own code trains, which never trains the tower (llava/model/multimodal_encoder/
clip_encoder.py: requires_grad_(False), forward under no_grad) and leaves it and the projector out of the layers that
adapters stand beside (llava/train/train.py, find_all_linear_names)."""


class VisionLanguage(OwnStep, frozen=True):
    """A model of images and text."""

    kind: ClassVar[str] = "pictures"
    image: Image
    images: int
    """Images of a sample."""
    side: int | None
    """The side of `train.image_size`."""
    varlen: bool
    """Whether padding is taken out before attention."""
    mask: bool
    options: Mapping[str, object] | None
    """Those of adapters."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return knows(asked.known_as)

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        job, train, kind = asked.job, asked.job.train, asked.known_as.replace("-", "_")
        if train.batch_size is None:
            return missing("train.batch_size")
        if train.seq_len is None:
            return missing("train.seq_len", "all tokens of a sample, those of its images too")
        if train.images is None:
            return missing("train.images")
        image = IMAGES[kind](asked.config, train.image_size) if train.images else Image(0)
        if isinstance(image, Unknown):
            return image
        spans = train.images * (image.tokens + 1) + 1
        if spans > train.seq_len:
            taken = f"{spans} tokens that {train.images} images of {image.tokens} tokens take in {asked.name}"
            return Unknown(f"train.seq_len {train.seq_len} is less than the {taken}", Cause.not_possible)
        setup = _setup(asked, kind)
        if isinstance(setup, Unknown):
            return setup
        lengths = {"b": train.batch_size, "s": train.seq_len}
        options = setup.peft.options if setup.peft is not None else None
        if setup.peft is not None and setup.peft.rank:
            lengths["r"] = setup.peft.rank
            setup = replace(setup, peft=replace(setup.peft, rank=None))
        config = _config(job, asked.config)
        model = cls(
            SPELLINGS.get(kind, kind),
            config,
            "causal-lm",
            image,
            train.images,
            train.image_size,
            train.attention == "flash",
            setup.mask,
            options,
        )
        dims = {one.name: _layers(one, config) for one in model.depths}
        vocabulary = (config.get("text_config") or config).get("vocab_size")
        dims |= {"V": vocabulary} if isinstance(vocabulary, int) else {}
        return Resolved(model, asked.name, "causal-lm", dims, lengths, setup)

    def told(self) -> dict[str, Any]:
        return {**_described(self.image, self.images, self._type), "mask": self.mask, "varlen": self.varlen}

    @property
    def _type(self) -> str:
        return self.architecture.replace("-", "_")

    @property
    def filed(self) -> str:
        return f"{self._type}-{digest(self.config)}"

    @property
    def extra(self) -> str:
        words = [f"images={self.images}", f"side={self.side or 'own'}", *(["varlen"] if self.varlen else [])]
        return " ".join([*words, *([json.dumps(self.options, sort_keys=True)] if self.options else [])])

    @property
    def free(self) -> tuple[str, ...]:
        return FREE

    @property
    def depths(self) -> tuple[Depth, ...]:
        """The text's, then the tower's, where they are deeper than those of a trace."""
        if self._type in WHOLE:
            return ()
        tower, key = TOWER.get(self._type, ("encoder.layers", "num_hidden_layers"))
        both = (
            Depth(TEXT.get(self._type, "language_model.layers"), "text_config.num_hidden_layers", "L"),
            Depth(tower, f"vision_config.{key}", "M"),
        )
        return tuple(one for one in both if _layers(one, self.config) > CHECK_LAYERS)

    def make(self, resolved: Resolved, kind: str, run: Runner, free: Sequence[str] = FREE) -> MadeLaw:
        from preflight.memory.device.fit.make import CannotMake

        tries = [self.depths, *([self.depths[:1]] if len(self.depths) > 1 and self.depths[0].name == "L" else [])]
        for some in tries if self.depths else ():
            try:
                return self._make(resolved, kind, run, free, some)
            except CannotMake:
                continue
        return self._make(resolved, kind, run, free, ())

    def _make(
        self, resolved: Resolved, kind: str, run: Runner, free: Sequence[str], depths: Sequence[Depth]
    ) -> MadeLaw:
        from preflight.memory.device.fit.make import fold, verify
        from preflight.memory.device.fit.polynomial import PolynomialReader, points

        taken = self.images * (self.image.tokens + 1) + 1
        least = -(-taken // GRAIN) * GRAIN
        at = [{**point, **({"s": point["s"] + least} if "s" in point else {})} for point in points(free)]
        fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
        asked = resolved.request(kind)
        requests = [asked.at({**fixed, **one}, at_depth(self.config, depths, PROBE_LAYERS)) for one in at[:-1]]
        requests.append(asked.at({**fixed, **at[-1]}, at_depth(self.config, depths, CHECK_LAYERS)))
        *fitted, last = [run([one])[0] for one in requests]  # each within the tracer's time
        made = fold({one.stack: one.name for one in depths}, PolynomialReader(free, at[:-1]), fitted)
        verify(made, last, {**at[-1], **{one.name: CHECK_LAYERS for one in depths}})
        return replace(made, tape=_with_logits(made.tape, resolved.dims.get("V", 0)))

    def refuses(self, resolved: Resolved, laws: Laws, scheme: str) -> Unknown | None:
        if not scheme.startswith(("fsdp", "zero3")) or "L" in laws.made.tape.depths.values():
            return None
        return Unknown(
            f"the layers of {resolved.name} differ, so it is not known which sharded parameters are gathered together",
            Cause.not_modelled,
        )

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """Text alone, where that is as usual for the model; a frozen tower, where full training does not say what is
        trained."""
        others: list[dict[str, object]] = []
        if "images" not in job.train.model_fields_set and self.architecture in ALSO_TEXT:
            others.append({"images": 0})
        if is_open(job):
            others.append({"frozen": ["vision"]})
        for other in others:
            yield job.model_copy(update={"train": job.train.model_copy(update=other)})

    def assumes(self, job: Job, resolved: Resolved) -> Mapping[str, str]:
        if "images" in job.train.model_fields_set:
            return {}
        return {"train.images": "the data decide how many images a sample has, and no file states it"}

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        if self.image.note:
            yield self.image.note
        if "images" not in job.train.model_fields_set:
            yield "assumed: one image in each sample; state train.images"
        if _is_llava(job) and "frozen" not in job.train.model_fields_set:
            yield "assumed: the vision tower is frozen, as in LLaVA's own code; state train.frozen"
        if is_open(job):
            yield "assumed: all parts are trained; the interval also covers a frozen vision tower; state train.frozen"


def knows(architecture: str) -> bool:
    """Whether this is a model of images and text whose step is traced."""
    return architecture.replace("-", "_") in IMAGES


def _setup(asked: WorkloadRequest, kind: str) -> Setup | Unknown:
    job, train = asked.job, asked.job.train
    frozen = frozen_parts(job)
    if isinstance(frozen, Unknown):
        return frozen
    setup = setup_of(job, gpu=asked.gpu)
    if isinstance(setup, Unknown):
        return setup
    if setup.peft is not None and setup.peft.method in RANKED and not setup.peft.targets and kind != "blip_2":
        return missing("train.peft.targets", f"peft has no default layers for {kind}")
    old = asked.gpu is not None and asked.gpu.compute_capability < (8, 0)
    slow = setup.attention == "sdpa" and train.attention != "flash" and old
    _, loss = loss_and_kernels.applied(train.fused_kernels, train.loss, kind)  # other kernels are not traced here
    return replace(
        setup,
        attention="efficient" if slow else setup.attention,
        frozen=frozen,
        kernels=(),
        loss=loss_and_kernels.loss_of(loss, job.software.get("transformers"), job.software, setup.casts_outputs),
    )


def _is_llava(job: Job) -> bool:
    """Whether LLaVA's own code trains it."""
    return str(job.model.name or "").lower().startswith(FREEZES_TOWER)


def frozen_parts(job: Job) -> tuple[str, ...] | Unknown:
    """Parts that are not trained, of "vision", "projector", "language"."""
    if not job.train.frozen and "frozen" not in job.train.model_fields_set:
        adapted = job.train.peft.method not in (None, "none")
        return (("vision", "projector") if adapted else ("vision",)) if _is_llava(job) else ()
    found: dict[str, None] = {}
    for one in job.train.frozen:
        parts = _NAMED.get(one.removeprefix("model.").rstrip("."))
        if parts is None:
            return Unknown(
                f"train.frozen: {one} is not a part of a vision-language model (known: {', '.join(PARTS)})",
                Cause.invalid,
            )
        found.update(dict.fromkeys(parts))
    return tuple(one for one in PARTS if one in found)


def is_open(job: Job) -> bool:
    """Whether the trained parts are not stated: no parts are named, and there are no adapters."""
    adapted = job.train.peft.method not in (None, "none")
    return not adapted and "frozen" not in job.train.model_fields_set and not frozen_parts(job)


def _described(image: Image, images: int, kind: str) -> dict[str, Any]:
    """The tracer's description of a sample's inputs (tracer/pictures.py, inputs)."""
    feeds = {}
    for name, feed in image.feeds.items():
        first, *rest = feed["shape"]
        feeds[name] = {**feed, "shape": [first * images, *rest]}
    if kind == "paligemma":  # 0 for what is asked, 1 for what is learnt
        feeds["token_type_ids"] = {"shape": [], "per": "token", "dtype": "int"}
    return {
        "spans": [image.tokens] * images,
        "feeds": feeds,
        "tiles": image.tiles * images,
        "marks": MARKED.get(kind),
        "note": image.note,
    }


def _config(job: Job, config: Config) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in NOT_OF_A_MODEL}
    if job.train.vocab_size is not None:
        found["text_config"] = {**(found.get("text_config") or {}), "vocab_size": job.train.vocab_size}
    return found


def _layers(depth: Depth, config: Config) -> int:
    """How many layers a config states; 0 where it leaves that to its class, and such a stack is traced whole."""
    part, _, key = depth.key.partition(".")
    found = (config.get(part) or {}).get(key, 0)
    return found if isinstance(found, int) else 0


def at_depth(config: Config, depths: Sequence[Depth], layers: int) -> dict[str, Any]:
    """A config with so many layers in each of the stacks; lists with an item for each layer are cut as well."""
    found = dict(config)
    for one in depths:
        part, _, key = one.key.partition(".")
        whole = found[part]
        cut = {k: v[:layers] for k, v in whole.items() if isinstance(v, list) and len(v) == whole[key]}
        found[part] = {**whole, **cut, key: layers}
    return found


def _with_logits(tape: Tape, vocabulary: int) -> Tape:
    """The tape, where sizes with a number for each token and word (16 or 32 bits) name the vocabulary."""
    widths = {Fraction(width * vocabulary): width for width in (2, 4)}

    def named(size: Size) -> Size:
        if len(size) != 1 or not vocabulary:
            return size
        coefficient, monomial = size[0]
        width = widths.get(Fraction(coefficient)) if monomial == (("b", 1), ("s", 1)) else None
        return size if width is None else ((width, (("V", 1), *monomial)),)

    return replace(tape, sizes=tuple(named(size) for size in tape.sizes))
