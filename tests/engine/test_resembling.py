"""A model that only resembles a family makes no error, unless its states alone are too much."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import Analysis, CheckOptions, analyse, setup
from preflight.engine.files import batches

GPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from dataclasses import dataclass

@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = LAYERS
    n_head: int = 12
    n_embd: int = WIDTH

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU())
    def forward(self, x):
        q, k, v = self.attn(x).split(config.n_embd, dim=2)
        return self.mlp(F.scaled_dot_product_attention(q, k, v, is_causal=True))

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
    def forward(self, idx, targets):
        logits = self.lm_head(self.wte(idx))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

B, T = BATCH, 1024
tokens = torch.load("tokens.pt")
model = GPT(GPTConfig()).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
for step in range(100):
    x = tokens[: B * T].view(B, T).cuda()
    y = tokens[1 : B * T + 1].view(B, T).cuda()
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        logits, loss = model(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def report(root: Path, write: Write, batch: int, layers: int = 12, width: int = 768) -> Analysis:
    text = GPT.replace("BATCH", str(batch)).replace("LAYERS", str(layers)).replace("WIDTH", str(width))
    write({"train.py": text})
    [found] = batches(["train.py"], root, from_hook=False)
    return analyse(*setup(found, CheckOptions(gpu="A100 80GB"), root))


@pytest.mark.parametrize(
    ("batch", "verdict"),
    [(8, "fits-if"), (64, "unknown"), (128, "at-risk")],
)
def test_its_activations_are_no_proof(batch: int, verdict: str, project: Write, tmp_path: Path) -> None:
    found = report(tmp_path, project, batch)
    device = found.studies[0].space.worst.estimates.device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == ["model.architecture"]
    said = [one for one in found.findings if one.rule == "gpu-memory-exceeded"]
    assert [one.severity.value for one in said] == (["warning"] if verdict == "at-risk" else [])
    assert all("similar model" in one.message for one in said)


def test_its_states_are(project: Write, tmp_path: Path) -> None:
    found = report(tmp_path, project, 8, layers=48, width=6144)
    device = found.studies[0].space.worst.estimates.device
    assert device is not None
    assert device.verdict == "exceeds"
