"""Values that stand in the program and belong to other work than its training, and values that something replaces."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD
from programs_as_text import is_unknown, read_program, values

from preflight.vocabulary.reading import Call, Launch, Word, word
from preflight.vocabulary.values import Const, Expr, Value, unknown

MODEL = 'import transformers\nmodel = transformers.AutoModelForCausalLM.from_pretrained("gpt2")\n'
LOOP = "\nfor batch in DataLoader(data, 24, shuffle=True):\n    model(batch).loss.backward()\n"
TRAINER = "from transformers import Trainer, TrainingArguments\n"


def told(body: str, tmp_path: Path, **files: str) -> dict[str, Value]:
    return values(read_program(HEAD + MODEL + dedent(body), tmp_path, **files))


# --- objects of arguments ---------------------------------------------------------------------------------------------


def test_arguments_that_an_imported_module_makes_are_not_those_of_an_own_loop(tmp_path: Path) -> None:
    other = f"{TRAINER}NAME = 'x'\nPRETRAIN = TrainingArguments('out', per_device_train_batch_size=960, bf16=True)\n"
    found = told("from other import NAME\n" + LOOP, tmp_path, other__py=other)
    assert (found["train.batch_size"], found.get("train.precision", "fp32")) == (24, "fp32")


@pytest.mark.parametrize("passed", ["model, first", "model=model, args=first"])
def test_the_arguments_that_a_trainer_takes_count(passed: str, tmp_path: Path) -> None:
    made = "first = TrainingArguments('a', per_device_train_batch_size=2)\n"
    rest = "second = TrainingArguments('b', per_device_train_batch_size=64)\n"
    found = told(f"{TRAINER}{made}{rest}Trainer({passed}).train()\n", tmp_path)
    assert found["train.batch_size"] == 2


def test_what_several_trainings_do_not_agree_on_is_unknown(tmp_path: Path) -> None:
    body = f"""{TRAINER}
first = TrainingArguments('a', per_device_train_batch_size=2, gradient_accumulation_steps=4)
second = TrainingArguments('b', per_device_train_batch_size=64, gradient_accumulation_steps=4)
Trainer(model, first).train()
Trainer(model, second).train()
"""
    found = told(body, tmp_path)
    assert is_unknown(found["train.batch_size"])
    assert found["train.grad_accum"] == 4


def test_a_flag_that_the_program_reads_as_well_is_still_a_flag(tmp_path: Path) -> None:
    body = f"""{HEAD}{TRAINER}
from transformers import HfArgumentParser
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
print(getattr(args, "deepspeed", None))
Trainer(None, args).train()
"""
    call = Call("job.sh", (word("--deepspeed"), word("ds.json")))
    reading = read_program(body, tmp_path, call, ds__json='{"zero_optimization": {"stage": 3}}')
    assert [link.target for link in reading.links] == ["ds.json"]


# --- evaluations and transforms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "def inference_on_eval_data(text):\n    return tokenizer(text, max_length=77)\ninference_on_eval_data('')\n",
        "tokenizer.apply_chat_template([], max_length=77, add_generation_prompt=True)\n",
    ],
)
def test_the_length_of_prompts_is_not_that_of_training(call: str, tmp_path: Path) -> None:
    body = f'tokenizer = transformers.AutoTokenizer.from_pretrained("gpt2")\n{call}'
    assert "train.seq_len" not in told(body + LOOP, tmp_path)


VISION = "from torchvision import datasets, transforms as T\n"


def test_a_data_set_that_is_not_chosen_has_no_size(tmp_path: Path) -> None:
    body = f"""
{VISION}
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", default="imagenet")
args = parser.parse_args()
if args.data == "cifar":
    data = datasets.CIFAR10("/data", transform=T.ToTensor())
{LOOP}"""
    found = told(body, tmp_path)
    assert not {"train.image_size", "data.samples"} & set(found)


def test_different_transforms_beside_each_other_are_unknown(tmp_path: Path) -> None:
    body = f"{VISION}small = T.RandomResizedCrop(96)\nlarge = T.RandomResizedCrop(224)\n"
    assert is_unknown(told(body + LOOP, tmp_path)["train.image_size"])


def test_images_that_the_training_resizes_again_have_no_known_size(tmp_path: Path) -> None:
    step = "    model(F.interpolate(data, (512, 512))).loss.backward()\n"
    body = f"{VISION}t = T.Resize(336)\ndef train():\n{step}train()\n"
    assert is_unknown(told(body, tmp_path)["train.image_size"])


@pytest.mark.parametrize("row", ["T.RandomCrop(32), T.Resize(224)", "T.Resize(256), T.RandomCrop(224)"])
def test_the_last_transform_decides(row: str, tmp_path: Path) -> None:
    assert told(f"{VISION}t = T.Compose([{row}])\n" + LOOP, tmp_path)["train.image_size"] == 224


# --- names that are not known -----------------------------------------------------------------------------------------

SETTINGS = "class Settings:\n    size = 4\n    def __init__(self):\n        self.workers = 3\ncfg = Settings()\n"
READ = "import json, sys\nfound = json.load(open(input()))\n"


@pytest.mark.parametrize(
    "changed",
    [
        "for key, value in found.items():\n    setattr(cfg, key, value)\n",
        "vars(cfg).update(found)\ncfg.size = found['size']\n",
        "cfg.__dict__.update(found)\ncfg.size = found['size']\n",
        "vars(cfg).update(found)\n",
        "for key, value in found.items():\n    vars(cfg)[key] = value\n",
        "for key, value in found.items():\n    object.__setattr__(cfg, key, value)\n",
        "for pair in found.items():\n    setattr(cfg, *pair)\n",
    ],
)
def test_settings_that_a_file_replaces_are_unknown(changed: str, tmp_path: Path) -> None:
    loader = "DataLoader(data, cfg.size, shuffle=True, num_workers=cfg.workers)\n"
    found = told(READ + SETTINGS + changed + loader, tmp_path)
    assert is_unknown(found["train.batch_size"])
    assert is_unknown(found["data.workers"])


def test_a_section_whose_name_is_not_known_may_be_any(tmp_path: Path) -> None:
    body = f"""
{READ}
class Train:
    def __init__(self): self.size = 4
class Config:
    def __init__(self): self.train = Train()
cfg = Config()
for section, keys in found.items():
    for key, value in keys.items():
        setattr(getattr(cfg, section), key, value)
DataLoader(data, cfg.train.size, shuffle=True)
"""
    assert is_unknown(told(body, tmp_path)["train.batch_size"])


def test_a_dict_that_is_updated_with_unknown_values_is_unknown(tmp_path: Path) -> None:
    body = READ + "cfg = {'size': 4}\ncfg.update(found)\nDataLoader(data, cfg['size'], shuffle=True)\n"
    assert is_unknown(told(body, tmp_path)["train.batch_size"])


@pytest.mark.parametrize(
    "changed",
    [
        "cfg.update({'other': 1})\n",
        "cfg.update()\n",
        "setattr(data, f'layer{i}', 3)\n",
        "import torch\nholder = torch.nn.Module()\nsetattr(holder, input(), 3)\n",
    ],
)
def test_what_is_not_replaced_stays(changed: str, tmp_path: Path) -> None:
    body = f"cfg = {{'size': 4}}\ni = int(input())\n{changed}DataLoader(data, cfg['size'], shuffle=True)\n"
    assert told(body, tmp_path)["train.batch_size"] == 4


# --- DeepSpeed and launchers ------------------------------------------------------------------------------------------

ENGINE = """
import argparse, deepspeed
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
args = parser.parse_args()
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=data)
for batch in loader:
    engine.backward(engine(batch))
"""


def test_without_its_configuration_deepspeed_is_unknown(tmp_path: Path) -> None:
    found = told(ENGINE, tmp_path)
    for field in ("parallel.strategy", "parallel.offload", "train.precision"):
        assert is_unknown(found[field])


def test_deepspeeds_own_flag_names_its_file(tmp_path: Path) -> None:
    call = Call("job.sh", (word("--deepspeed_config"), word("ds.json")))
    reading = read_program(HEAD + MODEL + ENGINE, tmp_path, call, ds__json="{}")
    assert [link.target for link in reading.links] == ["ds.json"]


@pytest.mark.parametrize(
    ("launch", "unknown"),
    [
        (Launch("accelerate"), {"parallel.ranks_per_node", "parallel.gpus_per_node", "parallel.strategy"}),
        (Launch("deepspeed"), {"parallel.ranks_per_node", "parallel.gpus_per_node"}),
        (Launch("accelerate", total_ranks=Const(2)), set()),
        (Launch("deepspeed", ranks_per_node=Const(2)), set()),
        (Launch("python"), set()),
        (Launch("torchrun", ranks_per_node=Const(1)), set()),
    ],
)
def test_launchers_that_count_the_gpus_of_the_machine(launch: Launch, unknown: set[str], tmp_path: Path) -> None:
    words: tuple[Word, ...] = ()
    body = f"{HEAD}{MODEL}{TRAINER}Trainer(model, TrainingArguments('out')).train()\n"
    found = values(read_program(body, tmp_path, Call("job.sh", words, {}, launch)))
    assert {name for name, value in found.items() if name.startswith("parallel.") and is_unknown(value)} == unknown


# --- FSDP in a file of arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("fsdp: full_shard auto_wrap", {"parallel.strategy": "fsdp", "train.gradient_checkpointing": True}),
        ("fsdp: full_shard offload", {"parallel.strategy": "fsdp", "parallel.offload": "parameters"}),
        ("fsdp: no_shard", {"parallel.strategy": "ddp"}),
    ],
)
def test_fsdp_that_a_file_of_arguments_states(line: str, expected: dict[str, Value], tmp_path: Path) -> None:
    body = f"""{HEAD}
from trl import SFTConfig, SFTTrainer, TrlParser
(args,) = TrlParser((SFTConfig,)).parse_args_and_config()
SFTTrainer("gpt2", args).train()
"""
    file = f"gradient_checkpointing: false\n{line}\nfsdp_config:\n  activation_checkpointing: true\n"
    named: Expr = Const("c.yaml")
    call = Call("job.sh", (word("--config"), Word("", named)), {}, Launch("torchrun", ranks_per_node=Const(2)))
    found = values(read_program(body, tmp_path, call, c__yaml=file))
    if not expected:
        assert found["train.gradient_checkpointing"] is False
    assert {name: found.get(name) for name in expected} == expected


# --- what was not seen ------------------------------------------------------------------------------------------------


def test_flags_that_a_sweep_replaces_are_its_parameters(tmp_path: Path) -> None:
    body = "import wandb\nfor k, v in dict(wandb.config).items():\n    setattr(args, k, v)\n"
    found = values(read_program(f"{HEAD}{MODEL}{body}DataLoader(data, args.batch_size)\n", tmp_path), {"batch_size": 7})
    assert found["train.batch_size"] == 7


def test_the_sharding_of_a_file_with_an_unknown_name_is_unknown(tmp_path: Path) -> None:
    body = f"""{HEAD}{TRAINER}
from transformers import HfArgumentParser
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(None, args).train()
"""
    named: Expr = unknown("it is set under a condition")
    found = values(read_program(body, tmp_path, Call("job.sh", (word("--deepspeed"), Word("", named)))))
    assert is_unknown(found["parallel.strategy"])


def test_an_optimizer_and_loaders_that_were_not_seen_are_unknown(tmp_path: Path) -> None:
    assert is_unknown(told("model(1).loss.backward()\n", tmp_path)["train.optimizer"])
    found = told("import lightning\nlightning.Trainer().fit(model)\n", tmp_path)
    assert is_unknown(found["train.optimizer"])
    assert is_unknown(found["data.workers"])


def test_a_trainer_that_makes_its_own_is_known(tmp_path: Path) -> None:
    found = told(f"{TRAINER}Trainer(model, TrainingArguments('out')).train()\n", tmp_path)
    assert (found["train.optimizer"], found["data.workers"]) == ("adamw", 0)


ALBUMENTED = {
    "A.Resize(96, 96)": 96,
    "A.Resize(height=96, width=128)": 128,
    "A.Resize(128, 128), A.RandomCrop(width=96, height=96)": 96,
    "A.RandomResizedCrop(size=(96, 96))": 96,
    "A.RandomSizedCrop((64, 80), 96, 96)": 96,
    "A.Resize(args.size, args.size)": 160,
}


@pytest.mark.parametrize(("row", "side"), ALBUMENTED.items())
def test_sizes_of_albumentations(row: str, side: int, tmp_path: Path) -> None:
    body = (
        "import albumentations as A, argparse\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('--size', type=int, default=160)\nargs = parser.parse_args()\nt = A.Compose([{row}])\n"
    )
    assert told(body + LOOP, tmp_path)["train.image_size"] == side


@pytest.mark.parametrize("row", ["A.RandomResizedCrop(96)", "A.LongestMaxSize(96)", "A.HorizontalFlip()"])
def test_albumentations_that_give_no_size(row: str, tmp_path: Path) -> None:
    found = told(f"import albumentations as A\nt = A.Compose([{row}])\n{LOOP}", tmp_path).get("train.image_size")
    assert found is None or is_unknown(found)
