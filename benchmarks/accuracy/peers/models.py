"""Models on the meta device, for tools that count or run one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.accuracy.peers.base import Described, Refused, described
from preflight.vocabulary.job import Job

if TYPE_CHECKING:
    import torch

_AUTO = {
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
}


def build(job: Job, attention: str = "sdpa", dtype: str = "float32") -> torch.nn.Module | Refused:
    """The job's model without storage, or why it cannot be made."""
    target = job.model.target
    if target is not None:
        return _timm(target, dtype)
    found = described(job)
    if isinstance(found, Refused):
        return found
    return _transformer(found, _AUTO.get(job.task or "", "AutoModelForCausalLM"), attention, dtype)


def _timm(target: str, dtype: str) -> torch.nn.Module | Refused:
    library, _, name = target.partition(":")
    if library != "timm":
        return Refused(f"{target} is no model that it can build")
    try:
        import timm
        import torch
    except ImportError as error:
        return Refused(f"{error.name} is not installed")
    try:
        with torch.device("meta"):
            model: torch.nn.Module = timm.create_model(name)
    except Exception as error:  # whatever a model of another version raises
        return Refused(f"{name} cannot be built: {str(error).splitlines()[0][:80]}")
    return model.to(getattr(torch, dtype))


def _transformer(found: Described, auto: str, attention: str, dtype: str) -> torch.nn.Module | Refused:
    try:
        import torch
        import transformers
    except ImportError as error:
        return Refused(f"{error.name} is not installed")
    try:
        config: Any = transformers.AutoConfig.for_model(found.architecture.replace("-", "_"), **found.config)
        with torch.device("meta"):
            model: torch.nn.Module = getattr(transformers, auto).from_config(config, attn_implementation=attention)
    except Exception as error:  # a config or an attention that this version of transformers does not take
        return Refused(f"{found.name} cannot be built: {str(error).splitlines()[0][:80]}")
    return model.to(getattr(torch, dtype))


def parameters(job: Job) -> int | Refused:
    """How many parameters the job's model has, counted on the meta device."""
    return _count(job.model.target or "", job.model.name or "", job.task or "", job)


_COUNTS: dict[tuple[str, str, str], int | Refused] = {}


def _count(target: str, name: str, task: str, job: Job) -> int | Refused:
    key = (target, name, task)
    if key not in _COUNTS:
        model = build(job)
        _COUNTS[key] = model if isinstance(model, Refused) else sum(p.numel() for p in model.parameters())
    return _COUNTS[key]
