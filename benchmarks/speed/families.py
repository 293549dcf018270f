"""Ten families of models, each trained by a program of its own: a sweep and a job script for each.

Half of them fit. In the others a batch does not, and a fix is proved (for whisper, whose labels have no known length,
none is). `python benchmarks/speed/families.py FOLDER`
writes them, to be looked at or profiled.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

TRAINER = '''"""Trains {name}."""

import argparse

from transformers import {auto}, Trainer, TrainingArguments
{imports}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_length", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    args = parser.parse_args()
    model = {auto}.from_pretrained("{model}"{given})
{adapted}    arguments = TrainingArguments(
        output_dir="runs",
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        bf16=True,
    )
    Trainer(model, arguments, train_dataset=load(args.max_length)["train"]).train()


{load}

if __name__ == "__main__":
    main()
'''
TEXT = """def load(max_length):
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("{model}")
    return load_dataset("imdb").map(
        lambda rows: tokenizer(rows["text"], truncation=True, padding="max_length", max_length=max_length), batched=True
    )
"""
PAIRS = """def load(max_length):
    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("{model}")
    fixed = {{"truncation": True, "padding": "max_length", "max_length": max_length}}
    return load_dataset("xsum").map(
        lambda rows: tokenizer(rows["document"], text_target=rows["summary"], **fixed), batched=True
    )
"""
IMAGES = """def load(max_length):
    from datasets import load_dataset
    from transformers import AutoImageProcessor

    processor = AutoImageProcessor.from_pretrained("{model}")
    return load_dataset("food101").with_transform(lambda rows: processor(rows["image"], return_tensors="pt"))
"""
SOUND = """def load(max_length):
    from datasets import load_dataset
    from transformers import WhisperProcessor

    processor = WhisperProcessor.from_pretrained("{model}")
    return load_dataset("mozilla-foundation/common_voice_11_0", "hi").map(
        lambda row: {{
            "input_features": processor(row["audio"]["array"], sampling_rate=16000).input_features[0],
            "labels": processor.tokenizer(row["sentence"], padding="max_length", max_length=max_length).input_ids,
        }}
    )
"""
LOOP = '''"""Trains a ResNet."""

import argparse

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_length", type=int, default=224)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    args = parser.parse_args()
    model = torchvision.models.resnet50()
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    shape = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    images = torchvision.datasets.ImageFolder("train", shape)
    for image, label in DataLoader(images, batch_size=args.batch_size, num_workers=4):
        loss = torch.nn.functional.cross_entropy(model(image.cuda()), label.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
'''
LORA = """    adapters = LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(model, adapters)
"""
PEFT = "from peft import LoraConfig, get_peft_model\n"
BITS = "import torch\nfrom transformers import BitsAndBytesConfig\n"
NF4 = (
    ", quantization_config=BitsAndBytesConfig("
    'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)'
)
HALF = ', dtype="bfloat16"'

SWEEP = """program: train.py
method: grid
metric: {{name: eval/loss, goal: minimize}}
parameters:
  max_length: {{value: {length}}}
  batch_size: {{values: [2, 4{large}]}}
  learning_rate: {{values: [1.0e-5, 1.0e-4]}}
"""
SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem={memory}
#SBATCH --time=12:00:00
set -euo pipefail
srun python train.py --max_length {length} --batch_size {batch} --learning_rate 3e-5
"""


@dataclass(frozen=True)
class Family:
    """A family's model and program. `large`: a batch that does not fit; 0: all batches of the project fit."""

    name: str
    model: str
    auto: str
    load: str = TEXT
    length: int = 512
    imports: str = ""
    given: str = ""
    adapted: str = ""
    large: int = 0
    memory: str = "2500M"
    gpu: str = "A100-80GB"

    def program(self) -> str:
        if not self.load:
            return LOOP
        return TRAINER.format(
            name=self.name, auto=self.auto, imports=self.imports, model=self.model, given=self.given,
            adapted=self.adapted, load=self.load.format(model=self.model),
        )  # fmt: skip

    def files(self) -> dict[str, str]:
        large = f", {self.large}" if self.large else ""
        return {
            "train.py": self.program(),
            "sweep.yaml": SWEEP.format(length=self.length, large=large),
            "train.slurm": SCRIPT.format(name=self.name, length=self.length, batch=self.large or 4, memory=self.memory),
            "preflight.toml": f'gpu = "{self.gpu}"\n',
        }


CAUSAL = "AutoModelForCausalLM"
FAMILIES = (
    Family("gpt2", "gpt2", CAUSAL, length=1024),
    Family("llama", "meta-llama/Llama-3.2-1B", CAUSAL, length=2048, large=256),
    Family("qwen", "Qwen/Qwen2.5-0.5B", CAUSAL, length=1024),
    Family("t5", "t5-base", "AutoModelForSeq2SeqLM", PAIRS, large=512),
    Family("bert", "bert-base-uncased", "AutoModelForSequenceClassification"),
    Family("vit", "google/vit-base-patch16-224", "AutoModelForImageClassification", IMAGES, large=4096),
    Family("resnet", "resnet50", "", "", length=224, memory="2800M"),
    Family("whisper", "openai/whisper-small", "WhisperForConditionalGeneration", SOUND, length=448, large=512),
    Family("mistral-lora", "mistralai/Mistral-7B-v0.1", CAUSAL, length=1024, imports=PEFT, given=HALF, adapted=LORA,
           memory="17G"),
    Family("mistral-qlora", "mistralai/Mistral-7B-v0.1", CAUSAL, length=1024, imports=BITS + PEFT, given=NF4,
           adapted=LORA, large=128),
)  # fmt: skip


def write(root: Path) -> None:
    """A directory for each family under `root`."""
    for family in FAMILIES:
        (root / family.name).mkdir(parents=True, exist_ok=True)
        for name, text in family.files().items():
            (root / family.name / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
