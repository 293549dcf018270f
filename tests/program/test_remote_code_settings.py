"""What code that comes with a model may decide is unknown, never the default."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import read_program, values

from preflight.vocabulary.values import Unknown

PROGRAM = """
import argparse
from transformers import AutoConfig, AutoModel, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--pre_seq_len", type=int, default={default})
args = parser.parse_args()
config = AutoConfig.from_pretrained("THUDM/chatglm2-6b", trust_remote_code={trusted})
config.{key} = args.pre_seq_len
config.prefix_projection = False
model = AutoModel.from_pretrained("THUDM/chatglm2-6b", config=config, trust_remote_code={trusted})
{more}
Trainer(model, TrainingArguments("runs", per_device_train_batch_size=1)).train()
"""


def read(tmp_path: Path, **words: object) -> dict[str, object]:
    given = {"default": 128, "trusted": True, "key": "pre_seq_len", "more": "", **words}
    return values(read_program(PROGRAM.format(**given), tmp_path))


def test_a_setting_that_only_the_models_code_reads_may_freeze_it(tmp_path: Path) -> None:
    frozen = read(tmp_path).get("train.frozen")
    assert isinstance(frozen, Unknown)
    assert "pre_seq_len" in frozen.words


@pytest.mark.parametrize("words", [{"default": None}, {"trusted": False}, {"key": "use_cache"}])
def test_one_that_is_not_set_or_that_the_library_reads_does_not(words: dict[str, object], tmp_path: Path) -> None:
    assert not isinstance(read(tmp_path, **words).get("train.frozen"), Unknown)


def test_a_method_of_its_own_may_quantise_it(tmp_path: Path) -> None:
    assert isinstance(read(tmp_path, more="model = model.quantize(4)").get("train.quantization.type"), Unknown)
    assert "train.quantization.type" not in read(tmp_path)
