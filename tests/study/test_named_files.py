"""Files that a launch line or a program names: joined to the program, or unknown with their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Cause, Unknown, Value, evaluate

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"
HF = """\
import os
import sys
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Own:
    checkpoint: str = "gpt2"


parser = HfArgumentParser((Own, TrainingArguments))
if len(sys.argv) == 2 and sys.argv[1].endswith((".json", ".yaml")):
    own, args = parser.{parse}(os.path.abspath(sys.argv[1]))
else:
    own, args = parser.parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained(own.checkpoint)
Trainer(model=model, args=args).train()
"""
ONLY_FILE = HF.replace('if len(sys.argv) == 2 and sys.argv[1].endswith((".json", ".yaml")):\n    own', "own").replace(
    "else:\n    own, args = parser.parse_args_into_dataclasses()\n", ""
)
TRL = """\
from transformers import AutoModelForCausalLM
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
script, args, model = parser.parse_args_and_config()
SFTTrainer(model=AutoModelForCausalLM.from_pretrained(model.model_name_or_path), args=args).train()
"""
OWN = """\
import os
import sys
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
from dataclasses import dataclass, fields


@dataclass
class Own:
    checkpoint: str = "gpt2"


class Parser(HfArgumentParser):
    def file_and_flags(self, file, flags):
        given = dict(flag.lstrip("-").split("=") for flag in flags)
        found = []
        for one in self.parse_yaml_file(os.path.abspath(file)):
            values = {**vars(one), **{key: value for key, value in given.items() if hasattr(one, key)}}
            found.append(type(one)(**values))
        return found

    def parse(self):
        if len(sys.argv) > 1 and sys.argv[1].endswith(".yaml"):
            return self.file_and_flags(sys.argv[1], sys.argv[2:])
        return self.parse_args_into_dataclasses()


own, args = Parser((Own, TrainingArguments)).parse()
Trainer(model=AutoModelForCausalLM.from_pretrained(own.checkpoint), args=args).train()
"""
LOOP = """\
import sys
import torch
import yaml
from types import SimpleNamespace
from omegaconf import OmegaConf
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
{config}
model = AutoModelForCausalLM.from_pretrained(cfg.model).cuda()
opt = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=cfg.batch):
    model(**x).loss.backward()
    opt.step()
"""
STRUCTURED = """
from dataclasses import dataclass


@dataclass
class Options:
    model: str = "gpt2"
    batch: int = 4
    file: str = ""


cli = OmegaConf.from_cli()
cfg = OmegaConf.merge(OmegaConf.structured(Options), {files}cli)"""
LIGHTNING = """\
import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


class Model(L.LightningModule):
    def __init__(self, model: str = "gpt2", batch: int = 4):
        super().__init__()
        self.batch = batch
        self.model = AutoModelForCausalLM.from_pretrained(model)

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def train_dataloader(self):
        return DataLoader(data, batch_size=self.batch)


{made}
"""
PLAIN = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments("out", deepspeed="{file}")
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=args).train()
"""
PROGRAMS = {
    "json.py": HF.replace("{parse}", "parse_json_file"),
    "yaml_.py": HF.replace("{parse}", "parse_yaml_file"),
    "only.py": ONLY_FILE.replace("{parse}", "parse_json_file"),
    "trl_.py": TRL,
    "own.py": OWN,
    "namespace.py": LOOP.format(config="cfg = SimpleNamespace(**yaml.safe_load(open(sys.argv[1])))"),
    "omega.py": LOOP.format(config="cfg = OmegaConf.load(sys.argv[1])"),
    "structured.py": LOOP.format(config=STRUCTURED.format(files="")),
    "layered.py": LOOP.format(config=STRUCTURED.format(files="OmegaConf.load(cli.file), ")),
    "cli.py": LIGHTNING.format(made="LightningCLI(Model)"),
    "own_cli.py": LIGHTNING.format(made="class Own(LightningCLI):\n    pass\n\n\nOwn(Model)"),
}
FILES = {
    "configs/hf.json": (
        '{"checkpoint": "gpt2-large", "per_device_train_batch_size": 3, "bf16": true, "deepspeed": "z.conf"}'
    ),
    "configs/hf.yaml": "checkpoint: gpt2-large\nper_device_train_batch_size: 3\nbf16: true\n",
    "configs/trl.yaml": "model_name_or_path: gpt2-large\nper_device_train_batch_size: 3\nmax_length: 99\n",
    "configs/own.yaml": "model: gpt2-large\nbatch: 3\n",
    "configs/cli.yaml": "trainer:\n  devices: 1\n  precision: bf16-mixed\nmodel:\n  model: gpt2-large\n  batch: 3\n",
    "configs/cli_old.yaml": (
        "trainer:\n  gpus: 4\n  accelerator: ddp\n  precision: 16\n"
        "model:\n  init_args:\n    model: gpt2-large\n    batch: 3\n"
        "optimizer:\n  class_path: torch.optim.SGD\n"
    ),
    "configs/cli_sections.yaml": (
        "fit:\n  trainer:\n    devices: 2\n    precision: bf16-mixed\n  model:\n    model: gpt2-large\n    batch: 3\n"
        "validate:\n  trainer:\n    devices: 1\n"
    ),
    "configs/trainer.yaml": "devices: 2\nprecision: bf16-mixed\n",
    "configs/parts/model.yaml": "model: gpt2-large\nbatch: 3\n",
    "configs/cli_parts.yaml": "trainer:\n  devices: 2\n  precision: bf16-mixed\nmodel: parts/model.yaml\n",
    "configs/cli_classes.yaml": "trainer:\n  devices: 2\nmodel:\n  class_path: elsewhere.Model\n",
    "z.conf": '{"zero_optimization": {"stage": 3, "cpu_offload": true}}',
    "acc/fsdp.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 4\nfsdp_config: {}\n",
}


def fields(root: Path, line: str, name: str = "jobs/run.sh", **more: str) -> dict[str, Value]:
    """The Job fields of the one study that starts from a script with this line."""
    for path, text in {**PROGRAMS, **FILES, **more, name: HEAD + line + "\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (study,) = build([name], Project(root, Settings()))[0]
    return {field: evaluate(bound.expr) for field, bound in study.boxes[0].fields.items()}


@pytest.mark.parametrize(
    "line",
    [
        "python json.py configs/hf.json",
        "python yaml_.py configs/hf.yaml",
        "python only.py configs/hf.json",
        "python trl_.py --config configs/trl.yaml",
        "srun bash -c 'cd $WORK; torchrun --nproc_per_node=1 trl_.py --config configs/trl.yaml'",
        "python trl_.py --config configs/trl.yaml --output_dir $OUT",
        "python namespace.py configs/own.yaml",
        "cd configs && python ../omega.py own.yaml",
        "python omega.py configs/own.yaml",
        "python structured.py model=gpt2-large batch=3",
        "python layered.py file=configs/own.yaml",
        "python cli.py fit --config configs/cli.yaml",
        "python cli.py fit -c configs/cli_old.yaml",
        "python own_cli.py fit --config=configs/cli.yaml",
        "python own.py configs/hf.yaml",
        "python own.py --checkpoint=gpt2-large --per_device_train_batch_size=3",
    ],
)
def test_the_file_is_joined_to_the_program(line: str, tmp_path: Path) -> None:
    found = fields(tmp_path, line)
    assert (found["model.name"], found["train.batch_size"]) == ("gpt2-large", 3)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("python only.py configs/no.json", Cause.file_not_found),
        ("python only.py $1", Cause.not_set),
        ("python json.py configs/no.json", Cause.file_not_found),
        ("python trl_.py --config configs/no.yaml", Cause.file_not_found),
        ("python trl_.py --config $CONFIG", Cause.not_set),
        ("python trl_.py --config configs/trl.yaml $EXTRA", Cause.not_set),
        ("python namespace.py configs/no.yaml", None),
        ("python omega.py configs/no.yaml", None),
        ("python layered.py file=configs/no.yaml", Cause.file_not_found),
        ("python cli.py fit --config configs/no.yaml", Cause.file_not_found),
        ("python cli.py fit --config configs/cli.yaml $EXTRA", Cause.not_set),
        ("python own.py configs/no.yaml", Cause.file_not_found),
        ("python own.py $1", Cause.not_set),
    ],
)
def test_without_the_file_its_values_are_unknown(line: str, cause: Cause | None, tmp_path: Path) -> None:
    found = fields(tmp_path, line)
    for field in ("model.name", "train.batch_size"):
        value = found[field]
        assert isinstance(value, Unknown), field
        assert cause is None or value.cause is cause


def test_unknown_words_may_name_another_file_than_the_default(tmp_path: Path) -> None:
    made = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--file', default='configs/own.yaml')\n"
    text = LOOP.format(config=made + "cfg = SimpleNamespace(**yaml.safe_load(open(p.parse_args().file)))")
    assert fields(tmp_path, "python flag.py", **{"flag.py": text})["train.batch_size"] == 3
    found = fields(tmp_path, "python flag.py $EXTRA", **{"flag.py": text})
    assert isinstance(found["train.batch_size"], Unknown)
    assert (
        fields(tmp_path, "python flag.py $EXTRA --file configs/own.yaml", **{"flag.py": text})["train.batch_size"] == 3
    )


def test_a_flag_beats_the_file_of_trl_and_lightning(tmp_path: Path) -> None:
    line = "python trl_.py --config configs/trl.yaml --per_device_train_batch_size 7"
    assert fields(tmp_path, line)["train.batch_size"] == 7
    line = "python own.py configs/hf.yaml --per_device_train_batch_size=7"
    assert fields(tmp_path, line)["train.batch_size"] == 7
    line = "python cli.py fit --config configs/cli.yaml --model.batch 7"
    assert fields(tmp_path, line)["train.batch_size"] == 7


def test_a_file_with_a_section_for_each_subcommand(tmp_path: Path) -> None:
    found = fields(tmp_path, "srun python cli.py --config configs/cli_sections.yaml fit --trainer.max_epochs=3")
    assert (found["model.name"], found["train.batch_size"], found["train.precision"]) == ("gpt2-large", 3, "bf16-mixed")
    assert (found["parallel.gpus_per_node"], found["parallel.strategy"]) == (2, "ddp")


@pytest.mark.parametrize(
    "words",
    [
        "--trainer configs/trainer.yaml --model configs/parts/model.yaml",
        "--model=configs/parts/model.yaml --trainer=configs/trainer.yaml",
        "--config configs/cli_parts.yaml",
        "--config configs/cli.yaml --config configs/cli_parts.yaml",
        "--config configs/cli.yaml --trainer configs/trainer.yaml",
    ],
)
def test_groups_in_files_of_their_own(words: str, tmp_path: Path) -> None:
    found = fields(tmp_path, f"srun python cli.py fit {words}")
    assert (found["model.name"], found["train.batch_size"], found["train.precision"]) == ("gpt2-large", 3, "bf16-mixed")
    assert (found["parallel.gpus_per_node"], found["parallel.strategy"]) == (2, "ddp")


def test_a_group_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = fields(tmp_path, "python cli.py fit --trainer configs/gone.yaml --model configs/parts/model.yaml")
    for field in ("train.precision", "parallel.strategy"):
        value = found[field]
        assert isinstance(value, Unknown), field
        assert value.cause is Cause.file_not_found
    assert found["model.name"] == "gpt2-large"


def test_what_a_class_of_lightnings_file_sets_is_no_default(tmp_path: Path) -> None:
    program = "from lightning.pytorch.cli import LightningCLI\n\nLightningCLI()\n"
    found = fields(tmp_path, "python any.py fit --config configs/cli_classes.yaml", **{"any.py": program})
    assert all(isinstance(found[name], Unknown) for name in ("train.optimizer", "train.batch_size", "data.workers"))
    assert found["parallel.strategy"] == "ddp"


def test_settings_of_the_old_lightning(tmp_path: Path) -> None:
    found = fields(tmp_path, "python cli.py fit -c configs/cli_old.yaml")
    names = ("train.precision", "parallel.strategy", "parallel.gpus_per_node", "train.optimizer")
    assert [found[name] for name in names] == ["fp16-mixed", "ddp", 4, "sgd"]


def test_a_deepspeed_file_of_any_name(tmp_path: Path) -> None:
    found = fields(tmp_path, "python json.py configs/hf.json")
    assert (found["parallel.strategy"], found["parallel.offload"]) == ("zero3", "optimizer")
    found = fields(tmp_path, "python json.py --deepspeed z.conf")
    assert found["parallel.strategy"] == "zero3"


@pytest.mark.parametrize("file", ["/data/somebody/zero3.json", "no/zero3.json", "zero3.conf"])
def test_a_deepspeed_file_that_is_not_there(file: str, tmp_path: Path) -> None:
    for line, more in (
        ("python plain.py", {"plain.py": PLAIN.format(file=file)}),
        (f"python json.py --deepspeed {file}", {}),
    ):
        found = fields(tmp_path, line, **more)
        for field in ("parallel.strategy", "parallel.offload"):
            value = found[field]
            assert isinstance(value, Unknown), field
            assert value.cause is Cause.file_not_found
            assert file.lstrip("/") in value.words


def test_an_absolute_name_may_match_by_its_end_with_a_folder(tmp_path: Path) -> None:
    more = {
        "plain.py": PLAIN.format(file="/home/me/project/ds/two.json"),
        "ds/two.json": '{"zero_optimization": {"stage": 2}}',
    }
    assert fields(tmp_path, "python plain.py", **more)["parallel.strategy"] == "zero2"


@pytest.mark.parametrize(
    "line",
    [
        "accelerate launch --config_file acc/fsdp.yaml trl_.py --config configs/trl.yaml",
        "cd $SLURM_SUBMIT_DIR\naccelerate launch --config_file acc/fsdp.yaml trl_.py --config configs/trl.yaml",
        "accelerate launch --config_file $SLURM_SUBMIT_DIR/acc/fsdp.yaml trl_.py --config configs/trl.yaml",
        'cd "$(dirname "$0")"/..\naccelerate launch --config_file acc/fsdp.yaml trl_.py --config configs/trl.yaml',
    ],
)
def test_accelerates_file_from_any_directory(line: str, tmp_path: Path) -> None:
    found = fields(tmp_path, line)
    assert (found["parallel.strategy"], found["parallel.ranks_per_node"]) == ("fsdp", 4)


@pytest.mark.parametrize("name", ["acc/no.yaml", "$ACC", "acc/$KIND.yaml"])
def test_accelerates_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    found = fields(tmp_path, f"accelerate launch --config_file {name} trl_.py --config configs/trl.yaml")
    assert isinstance(found["parallel.strategy"], Unknown)
    assert isinstance(found["parallel.offload"], Unknown)


def test_a_file_beside_the_program_comes_first_if_nobody_starts_it(tmp_path: Path) -> None:
    text = LOOP.format(config="cfg = OmegaConf.load('own.yaml')")
    for path, body in {
        "sub/train.py": text,
        "sub/own.yaml": "model: gpt2\nbatch: 9\n",
        "own.yaml": "batch: 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(body)
    (study,) = build(["sub/train.py"], Project(tmp_path, Settings()))[0]
    assert evaluate(study.boxes[0].fields["train.batch_size"].expr) == 9


TRAINER_FILE = "model_name_or_path: gpt2\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-5\n"


def test_a_trainers_file_without_its_launch(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(TRAINER_FILE)
    (study,) = build(["sft.yaml"], Project(tmp_path, Settings()))[0]
    for field in ("train.precision", "parallel.strategy", "parallel.ranks_per_node", "parallel.gpus_per_node"):
        value = evaluate(study.boxes[0].fields[field].expr)
        assert isinstance(value, Unknown), field
        assert value.fields == (field,)
    found = fields(tmp_path, "trl sft --config sft.yaml --num_processes 1")
    assert (found["train.precision"], found["parallel.strategy"]) != (None, None)
    assert not isinstance(found["parallel.strategy"], Unknown)


@pytest.mark.parametrize("name", ["./acc/zero2.json", "zero2.json"])
def test_the_file_of_deepspeed_that_accelerates_file_names(name: str, tmp_path: Path) -> None:
    """It may name files of its own folder, or of the folder that the command runs in."""
    more = {
        "acc/ds.yaml": f"deepspeed_config:\n  deepspeed_config_file: {name}\ndistributed_type: DEEPSPEED\n"
        "num_machines: 1\nnum_processes: 2\n",
        "acc/zero2.json": '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 64}',
    }
    line = "accelerate launch --config_file acc/ds.yaml plain.py"
    found = fields(tmp_path, line, **more, **{"plain.py": LOOP_OF_ACCELERATE})
    assert (found["parallel.strategy"], found["train.grad_accum"]) == ("zero2", 64)


def test_files_that_name_each_other_are_read_once(tmp_path: Path) -> None:
    more = {
        f"acc/{one}.yaml": f"distributed_type: DEEPSPEED\nnum_processes: 2\nnum_machines: 1\ndeepspeed_config:\n"
        f"  deepspeed_config_file: acc/{other}.yaml\n"
        for one, other in ("ab", "ba")
    }
    line = "accelerate launch --config_file acc/a.yaml plain.py"
    assert fields(tmp_path, line, **more, **{"plain.py": LOOP_OF_ACCELERATE})["parallel.ranks_per_node"] == 2


LOOP_OF_ACCELERATE = """
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
accelerator = Accelerator()
model, loader = accelerator.prepare(AutoModelForCausalLM.from_pretrained("gpt2"), DataLoader(rows, 2, shuffle=True))
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
"""


def test_a_switch_that_newer_releases_call_otherwise(tmp_path: Path) -> None:
    """overwrite_output_dir rules the newest releases out, which know gradient checkpointing by a second name."""
    (tmp_path / "sft.py").write_text(TRL)
    given = ("max_seq_length: 512", "gradient_checkpointing: true", "overwrite_output_dir: true")
    (tmp_path / "sft.yaml").write_text("\n".join((*given, "model_name_or_path: gpt2\n")))
    (tmp_path / "run.sh").write_text(f"{HEAD}accelerate launch sft.py --config sft.yaml\n")
    (study,) = build(("run.sh",), Project(tmp_path, Settings()))[0]
    found = {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}
    assert (found["train.gradient_checkpointing"], found["train.seq_len"]) == (True, 512)
