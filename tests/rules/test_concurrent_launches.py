"""Launches of one script at the same time: a sum of which a part is doubtful is no error."""

from __future__ import annotations

import json

import pytest
from command_line import preflight
from folders import Write

PROGRAM = """\
import argparse, torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=4)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=1024)
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.bs):
    model(**batch).loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("batch", "severity"), [("4", "error"), ("4000", "warning")])
def test_a_sum_with_a_need_that_no_gpu_has(
    batch: str, severity: str, project: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"#!/bin/bash\npython train.py --bs 4 &\npython train.py --bs {batch} &\npython train.py &\nwait\n"
    project({"train.py": PROGRAM, "job.sh": script, "preflight.toml": 'gpu = "T4"\n'})
    found = json.loads(preflight(capsys, "check", "job.sh", "-f", "json").out)["findings"]
    said = [one for one in found if one["rule"] == "concurrent-launches-exceed"]
    assert [one["severity"] for one in said] == [severity]
    assert ("train.batch_size = 4000" in said[0]["message"]) is (severity == "warning")
