"""Loads and saves checkpoints the ways that programs do it, with all ranks at the same moment."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Say = Callable[..., None]
IN_HALF = ("from-pretrained-half", "from-pretrained-upcast")
"""Ways that load a file in bf16: as it is, and cast to fp32."""
SIZES = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16,
         "vocab_size": 32000}  # fmt: skip


def build(layers: int, dtype: Any = None) -> Any:
    """A decoder by its configuration, with random weights, as `from_config` makes it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("llama", num_hidden_layers=layers, **SIZES)
    return AutoModelForCausalLM.from_config(config, **({"dtype": dtype} if dtype else {}))


def make_files(folder: Path, point: dict[str, Any]) -> None:
    """The checkpoint that a point loads."""
    if point["what"] != "load":
        return
    how = point["how"]
    model = build(point["layers"], torch.bfloat16 if how in IN_HALF else None)
    if how.startswith("from-pretrained"):
        model.save_pretrained(folder / "model", max_shard_size="100MB" if how.endswith("shards") else "50GB")
        return
    state: dict[str, Any] = {"model": model.state_dict()}
    if "full" in point["how"]:
        parameters = list(model.parameters())
        optimizer = {
            i: {"exp_avg": torch.ones_like(p), "exp_avg_sq": torch.ones_like(p)} for i, p in enumerate(parameters)
        }
        state["optimizer"] = optimizer
    torch.save(state, folder / "state.pt")


def run(point: dict[str, Any], folder: Path, say: Say, meet: Callable[[str], None]) -> None:
    model = build(1)
    del model  # what the first model imports is part of the base
    gc.collect()
    say("built", anonymous=_hard())
    meet("start")
    (load if point["what"] == "load" else save)(point, folder, say)
    meet("done")


def load(point: dict[str, Any], folder: Path, say: Say) -> None:
    how = point["how"]
    say("load")
    if how.startswith("from-pretrained"):
        from transformers import AutoModelForCausalLM

        dtype = {"from-pretrained-bf16": torch.bfloat16, "from-pretrained-half": "auto"}.get(how, torch.float32)
        model = AutoModelForCausalLM.from_pretrained(str(folder / "model"), dtype=dtype)
        say("loaded", parameters=sum(p.numel() for p in model.parameters()))
        time.sleep(0.1)
        if how.endswith("-trained"):
            say("written")
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.999)
        time.sleep(0.1)
        return
    mapped = "mmap" in how
    model = None
    if "into-model" in how:
        model = build(point["layers"])
        say("model")
    state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True, mmap=mapped)
    weights = state["model"]
    say("loaded", parameters=sum(value.numel() for value in weights.values()))
    time.sleep(0.1)
    if model is not None:
        model.load_state_dict(weights, assign="assign" in how)
        say("assigned")
        time.sleep(0.1)


def save(point: dict[str, Any], folder: Path, say: Say) -> None:
    """Writes a model with Adam's states that lives on the host: what is more than the states is what saving takes."""
    model = build(point["layers"])
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    say("states", parameters=sum(p.numel() for p in model.parameters()), held=_hard())
    time.sleep(0.1)
    say("save")
    if point["how"] == "torch-save":
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "out.pt")
    elif point["how"] == "safetensors":
        from safetensors.torch import save_model

        save_model(model, str(folder / "out.safetensors"))
    else:
        model.save_pretrained(folder / "out")
    time.sleep(0.1)


def _hard() -> int:
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous"))


torch.set_num_threads(1)
