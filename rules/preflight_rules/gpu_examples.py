"""Examples of the rules about one GPU: their tests, and what their pages show."""

from __future__ import annotations

from preflight.vocabulary.rule import Example

LOOP = """
import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from data import texts

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--grad_accum", type=int, default=1)
parser.add_argument("--max_length", type=int, default=512)
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
dataset = tokenizer(texts, padding="max_length", truncation=True, max_length=args.max_length)
loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
for step, batch in enumerate(loader):
    loss = model(**batch).loss / args.grad_accum
    loss.backward()
    if (step + 1) % args.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""

LANGUAGE = (
    LOOP.replace("AutoModelForSequenceClassification", "AutoModelForCausalLM")
    .replace("bert-base-uncased", "Qwen/Qwen2.5-0.5B")
    .replace("default=64", "default=16")
    .replace("default=512", "default=2048")
)

LARGE = LANGUAGE.replace("Qwen/Qwen2.5-0.5B", "mistralai/Mistral-7B-v0.1").replace("default=16", "default=1")

UNBATCHED = (
    LOOP.replace("default=64", "default=8")
    + """
model.eval()
with torch.no_grad():
    encoded = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt").to("cuda")
    logits = model(**encoded).logits
"""
).replace("import texts", "import rows, texts")

EXCEEDED = (
    Example(
        "BERT in fp32 at batch 64 x 512 on 16 GB",
        {"train.py": LOOP},
        fixed={"train.py": LOOP.replace("default=64", "default=32").replace("default=1)", "default=2)")},
        says=("bert-base-uncased", "batch 64 x 512", "fp32", "adamw"),
        options={"gpu": "T4"},
    ),
    Example("The same on 80 GB", {"train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
    Example("No GPU is stated: the report says what is needed", {"train.py": LOOP}, finds=0),
)

TIGHT = (
    Example(
        "Only the high end of the estimate is above the GPU",
        {"train.py": LOOP.replace("default=64", "default=42")},
        says=("needs",),
        options={"gpu": "T4"},
    ),
    Example("A batch with room to spare", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "T4"}),
)

STATES = (
    Example(
        "AdamW on all of a 7 B model: 16 bytes per parameter are 108 GiB",
        {"train.py": LARGE},
        says=("mistralai/Mistral-7B-v0.1", "no smaller batch helps"),
        options={"gpu": "A100-80GB"},
    ),
    Example("A small model", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "A100-80GB"}),
)

LOGITS = (
    Example(
        "2,048 tokens x 16 samples x a vocabulary of 151,936",
        {"train.py": LANGUAGE},
        says=("tensor of logits", "151,936"),
        options={"gpu": "RTX 4090"},
    ),
    Example(
        "A classifier has none",
        {"train.py": LOOP.replace("64", "256")},
        finds=0,
        options={"gpu": "RTX 4090"},
    ),
)

EVALUATION = (
    Example(
        "All validation texts in one forward call",
        {"train.py": UNBATCHED},
        says=("in one batch",),
        options={"gpu": "T4"},
    ),
    Example("A loop over a loader", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "T4"}),
)
