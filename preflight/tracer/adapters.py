"""peft's adapters on a model of the meta device."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .cuda import without_autocast

TASKS = {
    "causal-lm": "CAUSAL_LM",
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
}
STEPS = 1000
"""AdaLoRA wants to know how many steps there are; its memory does not depend on it."""
_VALUES_ONLY = """
init_lora_weights init_weights init_ia3_weights loftq_config eva_config corda_config lora_ga_config kasa_config
use_rslora lora_alpha alpha alpha_pattern prompt_tuning_init prompt_tuning_init_text tokenizer_name_or_path
tokenizer_kwargs task_type peft_type inference_mode base_model_name_or_path revision auto_mapping
"""
VALUES_ONLY = frozenset(_VALUES_ONLY.split())
"""Options that change the values of weights and not their number (PiSSA, LoftQ, rank-stabilised scales ...)."""
CANNOT = {
    "x-lora": "X-LoRA mixes adapters that were trained before: their files are needed",
    "poly": "Poly is told each sample's task, which no Job says",
    "multitask-prompt-tuning": "it is told each sample's task, which no Job says",
    "frod": "it decomposes the weights' values when it is made",
    "adamss": "it clusters the weights' values when it is made",
    "shira": "it draws which elements train when it is made, which nothing without values can",
    "unilora": "it counts what it draws when it is made, which nothing without values can",
    "waveft": "it draws which coefficients train when it is made, which nothing without values can",
    "cpt": "its loss selects tokens by their values",
    "shadow": "it runs a second, smaller model in addition, which has no law",
}
"""Methods that are not traced, and why."""


class UnknownMethod(Exception):
    """peft has no such method, or it cannot be made without weights; the message says so."""


def adapt(model: torch.nn.Module, options: dict[str, Any], task: str) -> torch.nn.Module:
    """The model with adapters. `options`: {"method", "r" (None: the method's own), "targets", "dropout", "options",
    "half" (the dtype of 16 bits that adapters have; fp32 where there is none)}.

    Raises UnknownMethod, and what peft raises for options that do not fit the model.
    """
    import peft

    method = options.get("method", "lora").replace("_", "-")
    make = _MAKERS.get(method)
    if make is None:
        why = f": {CANNOT[method]}" if method in CANNOT else ""
        raise UnknownMethod(f"adapters of the method {method} cannot be traced{why}")
    more: dict[str, Any] = {"task_type": TASKS[task]} if task in TASKS else {}
    config = make(peft, options, more)
    depth = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if depth is not None and getattr(config, "adapter_layers", 0) > depth:
        config.adapter_layers = depth  # a model that is traced at fewer layers than it has
    with torch.device("meta"), _permutations(method):
        adapted = peft.get_peft_model(model, config)
    _fold_on_meta()
    if method == "lora-fa":  # optimizers/lorafa.py, create_lorafa_optimizer
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name:
                parameter.requires_grad_(False)
    if method == "vblora":  # a layer in training asks whether its logits' values are finite; its parts stay in training
        for module in adapted.modules():
            if hasattr(module, "vblora_logits_A"):
                module.training = False
    if method in ("loha", "lokr"):  # a layer in training draws a number to decide whether its adapters run
        for module in adapted.modules():
            if hasattr(module, "module_dropout"):
                module.training = False
    if options.get("half"):  # peft gives adapters the dtype of their layer, but not on the meta device
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(options["half"])
    return adapted


def _fold_on_meta() -> None:
    """peft folds the adapters of fused experts into their weight with autocast off, which torch refuses of meta."""
    from peft.tuners.lora import layer

    proxy = getattr(layer, "_LoraFactorsProxy", None)
    if proxy is not None:
        proxy.forward = _folded


def _folded(proxy: Any, weight: torch.Tensor) -> torch.Tensor:
    with without_autocast():
        return torch.baddbmm(weight, proxy.lhs, proxy.rhs, alpha=proxy.scaling)


@contextlib.contextmanager
def _permutations(method: str) -> Iterator[None]:
    """BOFT writes its permutations as matrices, element by element: on meta they are matrices at once."""
    if method != "boft":
        yield
        return
    from peft.tuners.boft import layer

    real = layer.BOFTLayer.perm2mat
    layer.BOFTLayer.perm2mat = lambda _, indices: torch.zeros(len(indices), len(indices))
    try:
        yield
    finally:
        layer.BOFTLayer.perm2mat = real


Maker = Callable[[Any, "dict[str, Any]", "dict[str, Any]"], Any]


def _given(o: dict[str, Any]) -> dict[str, Any]:
    return o.get("options") or {}


def _config(peft: Any, name: str, o: dict[str, Any], **values: Any) -> Any:
    """A config of peft's with the options that a job states by peft's own names."""
    cls = getattr(peft, name, None)
    if cls is None:
        raise UnknownMethod(f"peft {peft.__version__} has no {name}")
    known = {field.name for field in dataclasses.fields(cls)}
    given = {key: value for key, value in _given(o).items() if key not in VALUES_ONLY and value is not None}
    strange = sorted(set(given) - known)
    if strange:
        raise UnknownMethod(f"{name} of peft {peft.__version__} has no {', '.join(strange)}")
    return cls(**{key: value for key, value in {**values, **given}.items() if key in known})


def _lora(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    rank = o.get("r") or 8
    given = {key: value for key, value in _given(o).items() if key != "use_dora"}
    return _config(
        peft,
        "LoraConfig",
        {"options": given},
        r=rank,
        lora_alpha=2 * rank,
        target_modules=o.get("targets"),
        lora_dropout=0.1 if o.get("dropout") else 0.0,
        use_dora=o.get("method") == "dora",
    )


def _layers(name: str, rank: str | None = "r", dropout: str | None = None) -> Maker:
    """A method that changes layers: the option that is its rank, and the one that is its dropout."""

    def make(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
        values = {"target_modules": o.get("targets"), **task}
        if rank is not None and o.get("r"):
            values[rank] = o["r"]
        if dropout is not None and o.get("dropout"):
            values[dropout] = 0.1
        return _config(peft, name, o, **values)

    return make


def _adalora(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    values = {"init_r": 12, "target_r": o.get("r") or 8, "total_step": STEPS, "target_modules": o.get("targets")}
    if o.get("dropout"):
        values["lora_dropout"] = 0.1
    return _config(peft, "AdaLoraConfig", o, **values)


def _oft(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    """Blocks of a size, or so many of them (`r` among the options): peft takes one of the two."""
    size = 0 if _given(o).get("r") else _given(o).get("oft_block_size", 32)
    return _config(peft, "OFTConfig", o, oft_block_size=size, target_modules=o.get("targets"))


def _ia3(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
    return _config(peft, "IA3Config", o, target_modules=o.get("targets"), **task)


def _prompts(name: str) -> Maker:
    """A method that puts learnt tokens before the input."""
    return lambda peft, o, task: _config(peft, name, o, num_virtual_tokens=20, **task)


def _adaption(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
    return _config(peft, "AdaptionPromptConfig", o, adapter_len=10, adapter_layers=30, **task)


_MAKERS: dict[str, Maker] = {
    "lora": _lora,
    "dora": _lora,
    "rslora": _lora,
    "lora-fa": _lora,
    "adalora": _adalora,
    "loha": _layers("LoHaConfig"),
    "lokr": _layers("LoKrConfig"),
    "vera": _layers("VeraConfig", dropout="vera_dropout"),
    "pvera": _layers("PveraConfig", dropout="pvera_dropout"),
    "oft": _oft,
    "boft": _layers("BOFTConfig", None, "boft_dropout"),
    "hra": _layers("HRAConfig"),
    "fourierft": _layers("FourierFTConfig", None),
    "vblora": _layers("VBLoRAConfig", dropout="vblora_dropout"),
    "randlora": _layers("RandLoraConfig", dropout="randlora_dropout"),
    "c3a": _layers("C3AConfig", None),
    "miss": _layers("MissConfig", dropout="miss_dropout"),
    "bone": _layers("BoneConfig"),
    "road": _layers("RoadConfig", None),
    "delora": _layers("DeloraConfig"),
    "gralora": _layers("GraloraConfig", dropout="gralora_dropout"),
    "hira": _layers("HiraConfig", dropout="hira_dropout"),
    "lily": _layers("LilyConfig"),
    "psoft": _layers("PsoftConfig", dropout="psoft_dropout"),
    "peanut": _layers("PeanutConfig"),
    "tinylora": _layers("TinyLoraConfig", dropout="tinylora_dropout"),
    "glora": _layers("GloraConfig"),
    "beft": _layers("BeftConfig", None),
    "deft": _layers("DeftConfig", dropout="deft_dropout"),
    "osf": _layers("OSFConfig", None),
    "trainable-tokens": _layers("TrainableTokensConfig", None),
    "ia3": _ia3,
    "ln-tuning": _layers("LNTuningConfig", None),
    "prompt-tuning": _prompts("PromptTuningConfig"),
    "prefix-tuning": _prompts("PrefixTuningConfig"),
    "p-tuning": _prompts("PromptEncoderConfig"),
    "llama-adapter": _adaption,
}
