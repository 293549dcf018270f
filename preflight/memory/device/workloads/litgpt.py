"""Models that litgpt computes with its own decoder class.

A checkpoint has the same weights in every framework, but what its step keeps depends on the code that runs it
(`preflight/tracer/reimplementations/litgpt.py`). These are traced; no law of theirs is shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.made import MadeLaw, Runner
from preflight.memory.device.law.setup import Likeness
from preflight.memory.device.law.workload import Config, Resolved, Workload, WorkloadRequest
from preflight.memory.device.workloads.own_step import begin
from preflight.memory.device.workloads.remote_code import likened
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.spelling import PARTS
from preflight.vocabulary.values import Unknown

_MLP = {
    "llama": "silu",
    "mistral": "silu",
    "phi3": "silu",
    "gemma": "geglu",
    "falcon": "gelu",
    "gpt-neox": "gelu",
    "phi": "gelu",
}
"""Architectures whose litgpt form is known, with its MLP (litgpt/config.py)."""
_PARALLEL = frozenset({"falcon", "gpt-neox", "phi"})
_SHARED_NORM = frozenset({"falcon", "phi"})
WIDENED = (0, 2)
"""RMSNorm computes in fp32 (Lightning-AI/litgpt 6178c7cc, October 2023); earlier code states a release before this."""

WIDER, WIDER_QUANTISED = (0.05, 0.12), (0.05, 0.30)
"""How far transformers' law is from litgpt's runs (benchmarks/accuracy/sources/litgpt.py): LoRA -10 to +7 %, beside
quantised weights -23 to -9 %."""


class LitGpt(Workload, frozen=True):
    """A checkpoint that litgpt runs with its own code. It passes no mask and computes the head in pieces of the length,
    so a law holds at one length."""

    kind: ClassVar[str] = "litgpt"
    config: Config
    adapted: bool

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        if _described(asked) is None:
            return False
        from preflight.memory.device.fit.subprocess import can_trace

        return can_trace(asked.tracing)

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        config, train = _described(asked), asked.job.train
        assert config is not None
        setup = begin(asked, "seq_len")
        if isinstance(setup, Unknown):
            return setup
        peft = setup.peft
        if peft is not None:
            peft = replace(peft, targets=tuple(switches(train.peft.targets)))
        lengths = {"b": train.batch_size or 1, "s": train.seq_len or 1}
        setup = replace(setup, mask=False, peft=peft)
        model = cls(config, peft is not None)
        return Resolved(model, asked.name, "causal-lm", {"L": config["n_layer"]}, lengths, setup)

    def wire(self) -> dict[str, Any]:
        steps = [name for name in ("b", "s") if name not in self.free]
        return {"kind": self.kind, "task": "causal-lm", "config": dict(self.config), "steps_with": steps}

    @property
    def filed(self) -> str:
        return self.kind

    @property
    def free(self) -> tuple[str, ...]:
        """The loss computes 128 positions at a time with adapters, 128 rows of the batch without them.

        Both are in tracer/reimplementations/litgpt.py.
        """
        return ("b",) if self.adapted else ()

    def make(self, resolved: Resolved, kind: str, run: Runner) -> MadeLaw:
        from preflight.memory.device.fit.one_model import make_at

        return make_at(self.wire(), kind, resolved.setup, resolved.lengths, run, self.free)


def _described(asked: WorkloadRequest) -> dict[str, Any] | None:
    """The description of litgpt's model for a job; None where the job does not run litgpt."""
    if "litgpt" not in asked.job.software:
        return None
    found = likened(asked)
    return None if isinstance(found, Unknown) else litgpt(asked.job, found.architecture, found.config)


def litgpt(job: Job, architecture: str, config: Config) -> dict[str, Any] | None:
    """The description of litgpt's model for a checkpoint; None: the job does not run litgpt, or its form is not known
    (models, adapters but LoRA and LLaMA-Adapter), or it is sharded or checkpointed, where transformers' layers stand
    for litgpt's.

    `config`: transformers' keys. A grouped projection of both queries and values under one name of transformers
    (query_key_value, qkv_proj) means litgpt's default of those two.
    """
    architecture = architecture.replace("_", "-")
    alone = job.parallel.strategy in ("none", "ddp") and not job.train.gradient_checkpointing
    known = architecture in _MLP and job.train.peft.method in (None, "none", "lora", "llama-adapter")
    if "litgpt" not in job.software or not known or not alone:
        return None
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    if not isinstance(width, int) or not isinstance(heads, int):
        return None
    size = config.get("head_dim") or width // heads
    groups = config.get("num_key_value_heads") or heads
    if architecture == "falcon":
        groups = 1 if config.get("multi_query", True) else heads
    rotated = config.get("rotary_pct", config.get("partial_rotary_factor", 0.5 if architecture == "phi" else 1.0))
    if architecture == "gpt-neox":
        rotated = config.get("rotary_pct", 0.25)
    layer = architecture in _PARALLEL
    return {
        "n_layer": config.get("num_hidden_layers"),
        "n_embd": width,
        "n_head": heads,
        "n_query_groups": groups,
        "head_size": size,
        "rope_n_elem": int(size * rotated),
        "intermediate_size": config.get("intermediate_size") or config.get("ffn_hidden_size") or 4 * width,
        "vocab": job.train.vocab_size or config.get("vocab_size"),
        "bias": architecture in ("gpt-neox", "phi"),
        "head_bias": architecture == "phi",
        "norm": "layer" if layer else "rms+1" if architecture == "gemma" else "rms",
        "widens": (release(job.software["litgpt"]) or NEWEST) >= WIDENED,
        "mlp": _MLP[architecture],
        "parallel_residual": layer,
        "shared_attention_norm": architecture in _SHARED_NORM,
        "scale_embeddings": architecture == "gemma",
    }


def stand_in(job: Job, architecture: str) -> Likeness:
    """The law of transformers' model, for jobs whose litgpt model cannot be traced."""
    quantised = job.train.quantization.type not in (None, "none")
    note = "litgpt runs its own code, which is traced where torch is installed"
    return Likeness(architecture, dict, note, wider=WIDER_QUANTISED if quantised else WIDER)


def switches(targets: Sequence[str] | None) -> list[str]:
    """litgpt's LoRA options for target modules in transformers' names; its defaults where none are stated."""
    if targets is None:
        return ["query", "value"]
    found = []
    for part in ("query", "key", "value", "projection", "mlp", "head"):
        modules = {module for family in PARTS.values() for module in family[part]}
        if part == "key":  # a grouped projection means litgpt's default, which is the other two
            modules -= {module for family in PARTS.values() for module in family["query"]}
        if modules & set(targets) or part in targets:
            found.append(part)
    return found
