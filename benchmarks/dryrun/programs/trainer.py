"""transformers' Trainer over a model by its configuration: the counterpart of a Job whose outputs accelerate casts."""

from __future__ import annotations

import json
import sys
import tempfile

import torch
import transformers

asked = json.loads(sys.argv[1])
config = transformers.AutoConfig.for_model(asked["model_type"], **asked["config"])
KINDS = {"causal-lm": "AutoModelForCausalLM", "masked-lm": "AutoModelForMaskedLM",
         "seq2seq-lm": "AutoModelForSeq2SeqLM", "speech-seq2seq": "AutoModelForSpeechSeq2Seq"}  # fmt: skip
model = getattr(transformers, KINDS[asked["task"]]).from_config(config)
length = asked["length"]


def sample() -> dict[str, torch.Tensor]:
    """One sample of the task."""
    if asked["task"] == "speech-seq2seq":
        features = torch.zeros(config.num_mel_bins, 2 * config.max_source_positions)
        return {"input_features": features, "labels": torch.ones(asked["target"], dtype=torch.int64)}
    text = {"input_ids": torch.full((length,), 5), "attention_mask": torch.ones(length, dtype=torch.int64)}
    return {**text, "labels": torch.ones(asked.get("target") or length, dtype=torch.int64)}


class Samples(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return asked["batch"] * asked["accumulation"] * 2

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return sample()


arguments = transformers.TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=asked["batch"], bf16=asked["precision"] == "bf16-mixed",
    fp16=asked["precision"] == "fp16-mixed", gradient_accumulation_steps=asked["accumulation"], max_steps=2,
    gradient_checkpointing=asked["checkpointing"], optim="adamw_torch", save_strategy="no", report_to="none",
    dataloader_pin_memory=False, disable_tqdm=True,
)  # fmt: skip
transformers.Trainer(model=model, args=arguments, train_dataset=Samples()).train()
