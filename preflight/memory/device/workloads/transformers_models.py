"""Models that transformers has a class for: those of a family, whose law is a function of their dimensions, and others,
which are traced one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.families import Family, family_of, unlike
from preflight.memory.device.families.config_keys import unusual
from preflight.memory.device.law import adapters
from preflight.memory.device.law.made import FREE, MadeLaw, Runner, depth_key
from preflight.memory.device.law.setup import lists_experts, setup_of, with_own_loss
from preflight.memory.device.law.workload import Config, Resolved, Workload, WorkloadRequest
from preflight.memory.device.workloads import litgpt
from preflight.memory.device.workloads.own_step import undescribed
from preflight.memory.device.workloads.remote_code import Likened, likened
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown, missing

# Other names that configs and hand-written programs give to a family's keys.
_SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in (
        "hidden_size n_embd d_model dim",
        "num_hidden_layers n_layer n_layers num_layers encoder_layers",
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads",
        "num_key_value_heads n_kv_head n_kv_heads",
        "intermediate_size n_inner d_ff hidden_dim ffn_dim encoder_ffn_dim",
        "max_position_embeddings n_positions n_ctx block_size max_target_positions",
    )
)


class TransformersModel(Workload, frozen=True):
    """A model by its `model_type` and config."""

    kind: ClassVar[str] = "transformers"
    architecture: str
    task: str
    config: Config
    whole: bool = False
    """Whether it is traced at its full depth, because what is asked for names layers by their number."""
    compiled: bool = False
    """Whether its step is compiled: what the partitioner keeps depends on the sizes themselves, so that a law holds for
    one batch and one length."""

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return True

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        found = likened(asked)
        if isinstance(found, Unknown):
            return found
        job = asked.job
        if litgpt.litgpt(job, found.architecture, found.config) is not None:  # which nothing here can trace
            found = replace(found, like=litgpt.stand_in(job, found.architecture))
        family = family_of(found.architecture, found.config)
        changed = unlike(found.architecture, found.config)
        if changed is not None:
            asked = replace(asked, name=f"{asked.name} with {changed}={found.config[changed]!r}")
        found = replace(found, config=_with_vocabulary(job, found))
        if job.train.peft.method not in (None, "none") and not adapters.is_lora_alone(job.train.peft):
            family = None  # other adapters have dimensions of their own: such a model is traced as it is
        if _freezes_layers(job):
            family = None  # a law of a family holds for any depth
        if family is None or lists_experts(job, family):
            return _alone(asked, found)
        return _of_family(asked, found, family)

    def wire(self) -> dict[str, Any]:
        compiled = {"extra": self.extra, "steps_with": ["b", "s"]} if self.compiled else {}
        return {
            "architecture": self.architecture,
            "task": self.task,
            "config": dict(self.config),
            **({"whole": True} if self.whole else {}),
            **compiled,
        }

    @property
    def filed(self) -> str:
        return self.architecture

    @property
    def extra(self) -> str:
        return "compile" if self.compiled else "-"

    @property
    def free(self) -> tuple[str, ...]:
        return FREE if not self.compiled else tuple(name for name in FREE if name not in ("b", "s"))

    def as_compiled(self) -> TransformersModel:
        return replace(self, compiled=True)

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
        if resolved.family is not None:
            from preflight.memory.device.fit.batch_one import make_law

            return make_law(resolved.family, resolved.task, kind, resolved.setup, resolved.structure, run)
        from preflight.memory.device.fit.one_model import make_at

        return make_at(self.wire(), kind, resolved.setup, resolved.lengths, run, self.free)


def _freezes_layers(job: Job) -> bool:
    """Whether a path of what is frozen, or trained within it, has the number of a layer."""
    return any(re.search(r"(?:^|\.)-?\d", path) for path in job.train.frozen)


def _alone(asked: WorkloadRequest, found: Likened) -> Resolved | Unknown:
    """A model of no family, at its own dimensions."""
    lengths = _lengths(asked.job, None, {}, asked.task)
    if isinstance(lengths, Unknown):
        return lengths
    setup = setup_of(asked.job, gpu=asked.gpu, model_type=found.architecture)
    if isinstance(setup, Unknown):
        return setup
    if asked.task == "causal-lm":
        listed = lists_experts(asked.job, family_of(found.architecture, found.config))
        setup = with_own_loss(setup, asked.job, found.architecture, listed)
    whole = adapters.names_layers(asked.job.train.peft) or _freezes_layers(asked.job)
    model = TransformersModel(found.architecture, asked.task, found.config, whole)
    depth = depth_key(model.wire())
    dims = {"L": found.config[depth]} if depth is not None else {}
    return Resolved(model, asked.name, asked.task, dims, lengths, setup)


def _of_family(asked: WorkloadRequest, found: Likened, family: Family) -> Resolved | Unknown:
    """A model of a family, by its dimensions."""
    config, task = normalise(family, found.config), asked.task
    if task not in family.tasks and (not task or task == "other"):
        task = family.tasks[0]
    try:
        dims = family.dims(config)
    except (KeyError, TypeError) as error:
        return undescribed(found.architecture, error)
    for dimension, value in dims.items():
        if not isinstance(value, int) or value < 1:
            return _without_size(found, family, config, dimension, value)
    setup = setup_of(asked.job, family, asked.gpu, found.like, found.reach, found.architecture)
    if isinstance(setup, Unknown):
        return setup
    lengths = _lengths(asked.job, family, dims, task)
    if isinstance(lengths, Unknown):
        return lengths
    if setup.peft is not None:
        dims = {**dims, "r": asked.job.train.peft.r or 8}
    structure = {key: config.get(key, default) for key, default in family.structure.items()}
    structure |= {**family.coinciding(dims), **unusual(family, config)}
    fixed = {key: value for key, value in dims.items() if key not in lengths}
    model = TransformersModel(found.architecture, task, config)
    return Resolved(model, asked.name, task, fixed, lengths, setup, family, structure, like=found.like)


def _without_size(found: Likened, family: Family, config: Config, dimension: str, value: object) -> Unknown:
    """The reason where a dimension of a family has no size: the key of the config that gives it has none."""
    empty = [key for key, said in config.items() if said is None]
    key = next((key for key in empty if family.dims({**config, key: 8})[dimension] is not value), None)
    if key is not None or value is None:
        what, fields = (f"model.config.{key}", (f"model.config.{key}",)) if key else ("a size in model.config", ())
        return Unknown(f"{what} of the {found.architecture} model is not known", Cause.not_set, fields)
    return Unknown(f"model.config of the {found.architecture} model gives {value!r} as a size", Cause.invalid)


def _with_vocabulary(job: Job, found: Likened) -> Config:
    """The config with the vocabulary that the job states."""
    size, config = job.train.vocab_size, found.config
    if size is None:
        return config
    if found.architecture != "clip":
        return {**config, "vocab_size": size}
    return {**config, "vocab_size": size, "text_config": {**config.get("text_config", {}), "vocab_size": size}}


def normalise(family: Family, config: Config) -> dict[str, Any]:
    """A config with the family's own spelling for every key that another spelling of was given."""
    own = set(family.config(dict.fromkeys((*family.named, *family.depths.values(), "i", "r", "L", "Ld", "Lt"), 8)))
    found = dict(config)
    for group in _SYNONYMS:
        mine = own & group
        others = [key for key in config if key in group and key not in own]
        if len(mine) == 1 and others and not mine & set(config):
            found[next(iter(mine))] = config[others[0]]
    return found


def _lengths(job: Job, family: Family | None, dims: Mapping[str, int], task: str) -> dict[str, int] | Unknown:
    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    lengths = {"b": train.batch_size}
    needed = set(family.named) if family is not None else ({"n"} if task == "image-classification" else {"s"})
    if "n" in needed:
        image = train.image_size or dims.get("i", 224)
        side = image // dims.get("p", 16)
        lengths |= {"n": side * side, "m": side * side + (family.tokens if family is not None else 1), "i": image}
    if "s" in needed and task != "speech-seq2seq":
        if train.seq_len is None:
            return missing("train.seq_len")
        lengths["s"] = train.seq_len
    if "t" in needed:
        target = train.text_len if task == "contrastive" else train.target_len
        if target is None and task == "contrastive":
            target = dims.get("P", 77)  # CLIP's tokenizer pads to its context of positions
        if target is None:
            return missing("train.target_len")
        lengths["t"] = target
    longest = dims.get("P")
    for name in ("s", "t"):
        if longest is not None and lengths.get(name, 0) > longest and task not in ("speech-seq2seq",):
            return Unknown(f"length {lengths[name]} is more than the model's {longest} positions", Cause.not_possible)
    return lengths
