"""Transformers that a program builds itself, and what is not one."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import read_program, values

USE = """
import argparse
import torch, torch.nn as nn, torch.nn.functional as F
{classes}
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--vocab", type=int, default=1000)
args = parser.parse_args()
model = {make}
F.cross_entropy(model(x), y).backward()
"""

BLOCKS = """
class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_heads)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

class TinyLM(nn.Module):
    def __init__(self, vocab_size, d_model, n_layers=3, n_heads=4, max_len=16):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        {tie}
    def forward(self, x):
        return self.head(self.tok_emb(x))
"""

CONFIG = """
from dataclasses import dataclass

@dataclass
class GPTConfig:
    block_size: int = 32
    vocab_size: int = 1000
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 64

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
    def forward(self, x):
        h = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.lm_head(h)
"""

ENCODER = """
class Classifier(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, dim_feedforward=128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=3)
        self.classifier = nn.Linear(width, 2)
    def forward(self, x):
        return self.classifier(self.encoder(self.embedding(x)))
"""

LSTM = """
class Tagger(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size, num_layers=2)
        self.head = nn.Linear(hidden_size, vocab_size)
    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])
"""


def told(classes: str, make: str, root: Path, **given: object) -> dict[str, object]:
    text = USE.replace("{classes}", classes).replace("{make}", make)
    return dict(values(read_program(text, root), given))  # type: ignore[arg-type]


def test_what_has_no_attention_stays_unknown(tmp_path: Path) -> None:
    found = told(LSTM, "Tagger(args.vocab, args.width)", tmp_path)
    assert not [field for field in found if field.startswith("model.")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.classifier = ", "self.pair = nn.Conv2d(width, 128, 3)\n        self.classifier = "),
        ("self.classifier = ", "self.before = nn.LSTM(width, width)\n        self.classifier = "),
        ("classifier", "mixer"),  # no head is seen: it may be a part of the model
    ],
)
def test_an_encoder_with_layers_of_no_family_stays_unknown(old: str, new: str, tmp_path: Path) -> None:
    found = told(ENCODER.replace(old, new), "Classifier(args.vocab, args.width)", tmp_path)
    assert not [field for field in found if field.startswith("model.")]


@pytest.mark.parametrize(("tie", "tied"), [("pass", False), ("self.head.weight = self.tok_emb.weight", True)])
def test_a_decoder_of_blocks(tie: str, tied: bool, tmp_path: Path) -> None:
    found = told(BLOCKS.replace("{tie}", tie), "TinyLM(args.vocab, args.width)", tmp_path, vocab=5000)
    assert (found["model.architecture"], found["task"]) == ("gpt2", "causal-lm")
    assert (found["model.config.vocab_size"], found["model.config.n_embd"]) == (5000, 64)
    assert (found["model.config.n_layer"], found["model.config.n_head"]) == (3, 4)
    assert (found["model.config.n_positions"], found["train.seq_len"]) == (16, 16)
    assert found["model.config.tie_word_embeddings"] is tied


def test_a_configuration_object(tmp_path: Path) -> None:
    found = told(CONFIG, "GPT(GPTConfig(n_embd=args.width, n_layer=12))", tmp_path, width=128)
    assert found["model.architecture"] == "gpt2"
    assert (found["model.config.n_embd"], found["model.config.n_layer"]) == (128, 12)
    assert (found["model.config.n_head"], found["model.config.vocab_size"]) == (4, 1000)


def test_an_encoder_with_a_classifier(tmp_path: Path) -> None:
    found = told(ENCODER, "Classifier(args.vocab, args.width)", tmp_path)
    assert (found["model.architecture"], found["task"]) == ("bert", "sequence-classification")
    assert (found["model.config.num_hidden_layers"], found["model.config.intermediate_size"]) == (3, 128)


def test_a_model_of_the_hub_wins_over_layers_beside_it(tmp_path: Path) -> None:
    make = 'transformers.AutoModelForCausalLM.from_pretrained("gpt2")'
    found = told("import transformers\n" + ENCODER + "\nhead = Classifier(10, 8)\n", make, tmp_path)
    assert found["model.name"] == "gpt2"
    assert "model.architecture" not in found


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("nn.GELU()", {"activation_function": "gelu", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
        ("nn.Dropout(0.0)", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
        ("nn.Dropout(0.1)", {}),
        ("nn.Dropout()", {}),
        ("nn.Dropout(config.dropout)", {}),
        ("nn.TransformerEncoderLayer(64, 4)", {}),
        ("nn.ReLU(), nn.GELU()", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    ],
)
def test_what_its_layers_keep_is_read_from_them(lines: str, kept: dict[str, object], tmp_path: Path) -> None:
    """Dropout has a mask, and an activation that is written out leaves what one kernel does not."""
    layer = f"self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False); self.more = [{lines}]"
    classes = CONFIG.replace("self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)", layer)
    read = read_program(USE.format(classes=classes, make="GPT(GPTConfig())"), tmp_path)
    names = ("activation_function", "resid_pdrop", "embd_pdrop", "attn_pdrop")
    found = {key: value for name, value in values(read).items() if (key := name.rpartition(".")[2]) in names}
    assert found == kept


def test_rotary_positions_are_no_length(tmp_path: Path) -> None:
    """They are computed for more tokens than anyone trains with."""
    rotary = CONFIG.replace("block_size", "max_position_embeddings")
    learnt = values(read_program(USE.format(classes=rotary, make="GPT(GPTConfig())"), tmp_path))
    assert learnt["train.seq_len"] == 32
    alone = rotary.replace("        self.wpe = nn.Embedding(config.max_position_embeddings, config.n_embd)\n", "")
    found = values(read_program(USE.format(classes=alone, make="GPT(GPTConfig())"), tmp_path))
    assert found["model.config.n_positions"] == 32
    assert "train.seq_len" not in found
