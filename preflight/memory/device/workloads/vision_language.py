"""Models of images and text (LLaVA, Qwen2-VL, PaliGemma, Idefics, Gemma 3 and others): what their law is looked up by.

`train.seq_len` counts all tokens of a sample, those that stand for its `train.images` images among them. A law is a
function of the batch and the length, for one size of images. Layers of the text and of the tower are extended from a
few where they are alike; where they differ (sliding windows, cross attention, features that are fed in deep) the model
is traced whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from preflight.memory.device.fit.few_traces import Depth
from preflight.memory.device.fit.make import CHECK_LAYERS, PROBE_LAYERS, CannotMake, Made, Runner, fold, verify
from preflight.memory.device.fit.polynomial import PolynomialReader, points
from preflight.memory.device.law.sizes import Size
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.workloads.image_tokens import IMAGES, MARKED, Image
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "pictures"
FREE = ("b", "s")
"""What a traced law is a function of; a shipped one of the rank of adapters too."""
GRAIN = 32
"""Tokens that lengths of traces are multiples of: what kernels round to."""
SPELLINGS = {"blip_2": "blip-2"}
"""Architectures whose name in a config has another spelling."""
NOT_OF_A_MODEL = ("model_type", "architectures", "torch_dtype", "dtype", "transformers_version", "auto_map",
                  "_name_or_path", "quantization_config", "do_image_splitting")  # fmt: skip
"""Keys of a config.json that say nothing of the model's layers."""
TEXT = {"idefics2": "text_model.layers", "idefics3": "text_model.layers", "smolvlm": "text_model.layers",
        "blip_2": "decoder.layers"}  # fmt: skip
TOWER = {"qwen2_vl": ("visual.blocks", "depth"), "qwen2_5_vl": ("visual.blocks", "depth"),
         "internvl": ("encoder.layer", "num_hidden_layers")}  # fmt: skip
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
"""What `train.frozen` may call a part, beside `visual` (Qwen's tower with its merger)."""
_NAMED: dict[str, tuple[str, ...]] = {name: (part,) for part, names in PARTS.items() for name in names.split()}
_NAMED |= {"visual": ("vision", "projector")}
FREEZES_TOWER = "liuhaotian/"
"""Owner of the ids that LLaVA's own code trains, which never trains the tower (llava/model/multimodal_encoder/
clip_encoder.py: requires_grad_(False), forward under no_grad) and leaves it and the projector out of the layers that
adapters stand beside (llava/train/train.py, find_all_linear_names)."""


def knows(architecture: str) -> bool:
    """Whether this is a model of images and text whose step is traced."""
    return architecture.replace("-", "_") in IMAGES


def resolve(job: Job, name: str, architecture: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What such a model's law is looked up by."""
    from preflight.memory.device.resolve import RANKED, Resolved, loss_of, setup_of

    train, kind = job.train, architecture.replace("-", "_")
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.seq_len is None:
        return missing("train.seq_len", "all tokens of a sample, those of its images too")
    if train.images is None:
        return missing("train.images")
    image = IMAGES[kind](config, train.image_size) if train.images else Image(0)
    if isinstance(image, Unknown):
        return image
    spans = train.images * (image.tokens + 1) + 1
    if spans > train.seq_len:
        taken = f"{spans} tokens that {train.images} images of {image.tokens} tokens take in {name}"
        return Unknown(f"train.seq_len {train.seq_len} is less than the {taken}", Cause.not_possible)
    frozen = frozen_parts(job)
    if isinstance(frozen, Unknown):
        return frozen
    config = _config(job, config)
    setup = setup_of(job, None, config, gpu)
    if isinstance(setup, Unknown):
        return setup
    if setup.get("peft") and setup["peft"]["method"] in RANKED and not setup["peft"]["targets"] and kind != "blip_2":
        return missing("train.peft.targets", f"peft has no layers of its own for {kind}")
    varlen = train.attention == "flash"
    old = setup["attention"] == "sdpa" and not varlen and gpu is not None and gpu.compute_capability < (8, 0)
    setup = {**setup, **({"attention": "efficient"} if old else {})}
    setup.pop("frozen", None)
    if frozen:
        setup["frozen"] = list(frozen)
    loss = loss_of(train.loss, job.software.get("transformers"))
    if loss is not None:
        setup["loss"] = loss
    lengths = {"b": train.batch_size, "s": train.seq_len}
    if setup.get("peft") and setup["peft"].get("r"):
        lengths["r"] = setup["peft"]["r"]
        setup["peft"] = {key: value for key, value in setup["peft"].items() if key != "r"}
    model = {"kind": KIND, "architecture": SPELLINGS.get(kind, kind), "config": config, "task": "causal-lm",
             **_described(image, train.images, kind), "mask": setup["mask"], "varlen": varlen,
             "filed": filed(kind, config)}  # fmt: skip
    model["extra"] = _extra(train.images, train.image_size, varlen, setup)
    dims = {one.name: _layers(one, config) for one in depths_of(kind, config)}
    vocabulary = (config.get("text_config") or config).get("vocab_size")
    dims |= {"V": vocabulary} if isinstance(vocabulary, int) else {}
    return Resolved(None, "causal-lm", dims, lengths, {}, setup, model, name)


def frozen_parts(job: Job) -> tuple[str, ...] | Unknown:
    """Parts that are not trained, of "vision", "projector", "language"."""
    if not job.train.frozen and "frozen" not in job.train.model_fields_set:
        adapted = job.train.peft.method not in (None, "none")
        own = str(job.model.name or "").lower().startswith(FREEZES_TOWER)
        return (("vision", "projector") if adapted else ("vision",)) if own else ()
    found: dict[str, None] = {}
    for one in job.train.frozen:
        parts = _NAMED.get(one.removeprefix("model.").rstrip("."))
        if parts is None:
            return Unknown(
                f"train.frozen: {one} is no part of a model of images and text (known: {', '.join(PARTS)})",
                Cause.invalid,
            )
        found.update(dict.fromkeys(parts))
    return tuple(one for one in PARTS if one in found)


def is_open(job: Job) -> bool:
    """Whether it is stated nowhere what is trained: no parts are named, and no adapters decide."""
    adapted = job.train.peft.method not in (None, "none")
    return not adapted and "frozen" not in job.train.model_fields_set and not frozen_parts(job)


def with_possible(ready: Ready, gpu: Gpu | None) -> Ready | Unknown:
    """With what is taken for granted in `notes`, and in `others` what the job may be as well: a frozen tower, where
    full training does not say what is trained; text alone, where that is as usual for the model."""
    job, resolved = ready.job, ready.resolved
    gathers = ready.rank.layout.scheme.startswith(("fsdp", "zero3"))
    if gathers and "L" not in ready.laws.made.tape.depths.values():
        return Unknown(
            f"the layers of {resolved.name} differ, so what sharded parameters gather at once is not known",
            Cause.not_modelled,
        )
    notes = [one for one in (resolved.model.get("note"),) if one]
    possible: list[Ready] = []
    if "images" not in job.train.model_fields_set:
        notes.append("one image is counted in each sample: state train.images")
        if resolved.model["architecture"] in ALSO_TEXT:
            possible += _also(job, {"images": 0}, gpu)
    if str(job.model.name or "").lower().startswith(FREEZES_TOWER) and "frozen" not in job.train.model_fields_set:
        notes.append("the vision tower is frozen, as LLaVA's own code has it: state train.frozen")
    if is_open(job):
        possible += _also(job, {"frozen": ["vision"]}, gpu)
        notes.append("all parts are taken as trained, and the interval holds a frozen tower: state train.frozen")
    return replace(ready, others=(*ready.others, *possible), notes=(*ready.notes, *notes))


def _also(job: Job, train: Mapping[str, object], gpu: Gpu | None) -> list[Ready]:
    """The job with other fields of `train`, where that has a law."""
    from preflight.memory.device.prepare import prepare

    found = prepare(job.model_copy(update={"train": job.train.model_copy(update=train)}), gpu)
    return [] if isinstance(found, Unknown) else [found]


def _described(image: Image, images: int, kind: str) -> dict[str, Any]:
    """The tracer's description of a sample's inputs (tracer/pictures.py, inputs)."""
    feeds = {}
    for name, feed in image.feeds.items():
        first, *rest = feed["shape"]
        feeds[name] = {**feed, "shape": [first * images, *rest]}
    if kind == "paligemma":  # 0 for what is asked, 1 for what is learnt
        feeds["token_type_ids"] = {"shape": [], "per": "token", "dtype": "int"}
    return {"spans": [image.tokens] * images, "feeds": feeds, "tiles": image.tiles * images,
            "marks": MARKED.get(kind), "note": image.note}  # fmt: skip


def _config(job: Job, config: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in NOT_OF_A_MODEL}
    if job.train.vocab_size is not None:
        found["text_config"] = {**(found.get("text_config") or {}), "vocab_size": job.train.vocab_size}
    return found


def filed(kind: str, config: Mapping[str, Any]) -> str:
    """The name of a model's law file: its architecture and a digest of its config."""
    text = json.dumps(config, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _extra(images: int, side: int | None, varlen: bool, setup: Mapping[str, Any]) -> str:
    options = (setup.get("peft") or {}).get("options")
    words = [f"images={images}", f"side={side or 'own'}", *(["varlen"] if varlen else [])]
    return " ".join([*words, *([json.dumps(options, sort_keys=True)] if options else [])])


def depths_of(kind: str, config: Mapping[str, Any]) -> tuple[Depth, ...]:
    """The stacks of equal layers that are deeper than those of a trace: the text's, then the tower's."""
    if kind in WHOLE:
        return ()
    tower, key = TOWER.get(kind, ("encoder.layers", "num_hidden_layers"))
    both = (Depth(TEXT.get(kind, "language_model.layers"), "text_config.num_hidden_layers", "L"),
            Depth(tower, f"vision_config.{key}", "M"))  # fmt: skip
    return tuple(one for one in both if _layers(one, config) > CHECK_LAYERS)


def _layers(depth: Depth, config: Mapping[str, Any]) -> int:
    """How many layers a config states; 0 where it leaves that to its class, and such a stack is traced whole."""
    part, _, key = depth.key.partition(".")
    found = (config.get(part) or {}).get(key, 0)
    return found if isinstance(found, int) else 0


def at_depth(config: Mapping[str, Any], depths: Sequence[Depth], layers: int) -> dict[str, Any]:
    """A config with so many layers in each of the stacks; lists with an item for each layer are cut as well."""
    found = dict(config)
    for one in depths:
        part, _, key = one.key.partition(".")
        whole = found[part]
        cut = {k: v[:layers] for k, v in whole.items() if isinstance(v, list) and len(v) == whole[key]}
        found[part] = {**whole, **cut, key: layers}
    return found


def make(resolved: Resolved, kind: str, run: Runner, free: Sequence[str] = FREE) -> Made:
    """The law of one model as a function of `free`. Raises CannotMake, or what `run` raises."""
    depths = depths_of(str(resolved.model["architecture"]).replace("-", "_"), resolved.model["config"])
    tries = [depths, *([depths[:1]] if len(depths) > 1 and depths[0].name == "L" else [])]
    for some in tries if depths else ():
        try:
            return _make(resolved, kind, run, free, some)
        except CannotMake:
            continue
    return _make(resolved, kind, run, free, ())


def _make(resolved: Resolved, kind: str, run: Runner, free: Sequence[str], depths: Sequence[Depth]) -> Made:
    taken = sum(resolved.model["spans"]) + len(resolved.model["spans"]) + 1
    least = -(-taken // GRAIN) * GRAIN
    at = [{**point, **({"s": point["s"] + least} if "s" in point else {})} for point in points(free)]
    fixed = {name: value for name, value in resolved.lengths.items() if name not in free}
    requests = [_request(resolved, kind, {**fixed, **one}, depths, PROBE_LAYERS) for one in at[:-1]]
    requests.append(_request(resolved, kind, {**fixed, **at[-1]}, depths, CHECK_LAYERS))
    *fitted, last = [run([one])[0] for one in requests]  # each within the tracer's time
    made = fold({one.stack: one.name for one in depths}, PolynomialReader(free, at[:-1]), fitted)
    verify(made, last, {**at[-1], **{one.name: CHECK_LAYERS for one in depths}})
    return replace(made, tape=_with_logits(made.tape, resolved.dims.get("V", 0)))


def _with_logits(tape: Tape, vocabulary: int) -> Tape:
    """The tape with the vocabulary named in what has a number for each token and word, in 16 or 32 bits."""
    widths = {Fraction(width * vocabulary): width for width in (2, 4)}

    def named(size: Size) -> Size:
        if len(size) != 1 or not vocabulary:
            return size
        coefficient, monomial = size[0]
        width = widths.get(Fraction(coefficient)) if monomial == (("b", 1), ("s", 1)) else None
        return size if width is None else ((width, (("V", 1), *monomial)),)

    return replace(tape, sizes=tuple(named(size) for size in tape.sizes))


def _request(resolved: Resolved, kind: str, point: Mapping[str, int], depths: Sequence[Depth],
             layers: int) -> dict[str, Any]:  # fmt: skip
    model, setup = resolved.model, resolved.setup
    if "r" in point:
        setup = {**setup, "peft": {**setup["peft"], "r": point["r"]}}
    config = at_depth(model["config"], depths, layers)
    return {"model": {**model, "config": config}, "setup": setup, "point": dict(point), "kind": kind, "warm_up": False}
