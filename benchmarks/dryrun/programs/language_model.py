"""A plain training loop of a transformers model by its configuration: the counterpart of a Job for `agreement`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import torch
import transformers

INPUTS = ("input_ids", "labels", "attention_mask")
asked = json.loads(sys.argv[1])
config = transformers.AutoConfig.for_model(asked["model_type"], **asked["config"])
kind = {"causal-lm": transformers.AutoModelForCausalLM, "masked-lm": transformers.AutoModelForMaskedLM}[asked["task"]]
model = kind.from_config(config).cuda().train()
if asked.get("checkpointing"):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
how = {asked["optimizer_impl"]: True}
optimizer = torch.optim.AdamW(model.parameters(), **how)
shape = (asked["batch"], asked["length"])
mixed = torch.autocast("cuda", dtype=torch.bfloat16) if asked["precision"] == "bf16-mixed" else nullcontext()
more = {} if asked["cache"] or asked["task"] != "causal-lm" else {"use_cache": False}
for _ in range(2):
    batch = {name: torch.ones(shape, dtype=torch.int64, device="cuda") for name in INPUTS}
    with mixed:
        loss = model(**batch, **more).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss, batch
