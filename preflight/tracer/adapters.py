"""peft's adapters on a model of the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TASKS = {"causal-lm": "CAUSAL_LM", "sequence-classification": "SEQ_CLS", "token-classification": "TOKEN_CLS",
         "seq2seq-lm": "SEQ_2_SEQ_LM"}  # fmt: skip
STEPS = 1000
"""AdaLoRA wants to know how many steps there are; its memory does not depend on it."""


class UnknownMethod(Exception):
    """peft has no such method, or it cannot be made without weights; the message says so."""


def adapt(model: torch.nn.Module, options: dict[str, Any], task: str) -> torch.nn.Module:
    """The model with adapters. `options`: {"method", "r", "targets", "dropout", "options", "half" (the dtype of 16 bits
    that adapters have; fp32 where there is none)}.

    Raises UnknownMethod, and what peft raises for options that do not fit the model.
    """
    import peft

    make = _MAKERS.get(options.get("method", "lora"))
    if make is None:
        raise UnknownMethod(f"adapters of the method {options['method']} cannot be traced")
    more: dict[str, Any] = {"task_type": TASKS[task]} if task in TASKS else {}
    config = make(peft, options, more)
    depth = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if depth is not None and getattr(config, "adapter_layers", 0) > depth:
        config.adapter_layers = depth  # a model that is traced at fewer layers than it has
    with torch.device("meta"):
        adapted = peft.get_peft_model(model, config)
    if options.get("half"):  # peft gives adapters the dtype of what they stand beside, but not on the meta device
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(options["half"])
    return adapted


Maker = Callable[[Any, "dict[str, Any]", "dict[str, Any]"], Any]


def _lora(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    rank = o.get("r", 8)
    return peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.1 if o.get("dropout") else 0.0, target_modules=o.get("targets"),
        modules_to_save=_given(o).get("modules_to_save"), use_dora=o.get("method") == "dora",
        exclude_modules=_given(o).get("exclude_modules"),
    )  # fmt: skip


def _given(o: dict[str, Any]) -> dict[str, Any]:
    return o.get("options") or {}


def _layers(name: str) -> Maker:
    """A method that changes linear layers and has a rank."""
    return lambda peft, o, _: getattr(peft, name)(r=o.get("r", 8), target_modules=o.get("targets"))


def _adalora(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    given = _given(o)
    return peft.AdaLoraConfig(init_r=given.get("init_r", 12), target_r=o.get("r", 8), total_step=STEPS,
                              target_modules=o.get("targets"))  # fmt: skip


def _oft(peft: Any, o: dict[str, Any], _: dict[str, Any]) -> Any:
    size = _given(o).get("oft_block_size", 32)
    return peft.OFTConfig(oft_block_size=size, target_modules=o.get("targets"))


def _ia3(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
    feed_forward = _given(o).get("feedforward_modules")
    return peft.IA3Config(target_modules=o.get("targets"), feedforward_modules=feed_forward, **task)


def _prompts(name: str) -> Maker:
    """A method that puts learnt tokens before the input."""

    def make(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
        given = _given(o)
        more = {k: given[k] for k in ("encoder_hidden_size", "prefix_projection") if k in given}
        return getattr(peft, name)(num_virtual_tokens=given.get("num_virtual_tokens", 20), **more, **task)

    return make


def _adaption(peft: Any, o: dict[str, Any], task: dict[str, Any]) -> Any:
    given = _given(o)
    return peft.AdaptionPromptConfig(
        adapter_len=given.get("adapter_len", 10), adapter_layers=given.get("adapter_layers", 30), **task
    )


_MAKERS: dict[str, Maker] = {
    "lora": _lora,
    "dora": _lora,
    "rslora": _lora,
    "adalora": _adalora,
    "loha": _layers("LoHaConfig"),
    "lokr": _layers("LoKrConfig"),
    "vera": _layers("VeraConfig"),
    "oft": _oft,
    "ia3": _ia3,
    "ln-tuning": lambda peft, o, task: peft.LNTuningConfig(target_modules=o.get("targets"), **task),
    "prompt-tuning": _prompts("PromptTuningConfig"),
    "prefix-tuning": _prompts("PrefixTuningConfig"),
    "p-tuning": _prompts("PromptEncoderConfig"),
    "llama-adapter": _adaption,
}
