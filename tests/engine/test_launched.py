"""The study of a command, and settings that are lowered on its own line: only where that is the same run."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.check import CheckOptions
from preflight.engine.launched import Launched, Override, launched, lowered, resumed

PROGRAM = """
import argparse, torch
from transformers import BertConfig, BertForSequenceClassification
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--grad_accum", type=int, default=1)
args = parser.parse_args()
model = BertForSequenceClassification(BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2))
data = torch.utils.data.TensorDataset(torch.zeros(99, 8), torch.zeros(99))
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
optimizer = torch.optim.AdamW(model.parameters())
for step, (x, y) in enumerate(loader):
    loss = model(input_ids=x, labels=y).loss / args.grad_accum
    loss.backward()
    if (step + 1) % args.grad_accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def read(folder: Path, *words: str) -> Launched | None:
    return launched(words, folder, CheckOptions())


@pytest.mark.parametrize("words", [("echo", "hello"), ("python", "missing.py"), ("true",)])
def test_what_trains_nothing_is_none(project: Write, words: tuple[str, ...]) -> None:
    assert read(project({"train.py": PROGRAM}), *words) is None


NO_FLAG = PROGRAM.replace('parser.add_argument("--grad_accum", type=int, default=1)\n', "").replace(
    "args.grad_accum", "1"
)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (NO_FLAG, "no flag"),
        (PROGRAM.replace("optimizer = ", "norm = torch.nn.BatchNorm1d(8)\noptimizer = "), "batch normalisation"),
        (PROGRAM.replace("args.batch_size)", "64)"), "another purpose"),
    ],
)
def test_what_would_be_another_run_is_said(project: Write, program: str, why: str) -> None:
    known = read(project({"train.py": program}), "python", "train.py", "--batch_size", "64")
    assert known is not None
    found = lowered(known, "train.batch_size", 32)
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize(
    "words", [("python", "train.py"), ("python", "train.py", "--batch_size", "64"), ("torchrun", "train.py")]
)
def test_half_the_batch_with_twice_the_accumulation(project: Write, words: tuple[str, ...]) -> None:
    folder = project({"train.py": PROGRAM})
    known = read(folder, *words)
    assert known is not None
    found = lowered(known, "train.batch_size", 32)
    assert isinstance(found, Override)
    assert found.words == (*words, "--batch_size", "32", "--grad_accum", "2")
    again = read(folder, *found.words)
    assert again is not None
    assert (again.job.train.batch_size, again.job.train.grad_accum) == (32, 2)
    third = lowered(again, "train.batch_size", 16)
    assert isinstance(third, Override)
    assert (folder / "train.py").read_text() == PROGRAM
    assert not (folder / ".preflight-run.sh").exists()


HEAD = "import argparse, torch\nfrom torch.utils.data import DataLoader\nparser = argparse.ArgumentParser()\n"
BODY = """
args = parser.parse_args()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
{load}
for batch in DataLoader(data, batch_size=args.batch_size):
    model(batch).sum().backward()
    optimizer.step()
"""
BATCH = 'parser.add_argument("--batch_size", type=int, default=64)\n'
PATH = BATCH + 'parser.add_argument("--resume", type=str, default=None)\n'
LOAD = """if args.resume:
    saved = torch.load(args.resume, map_location="cpu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
"""
ARGUMENTS = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, arguments, train_dataset=data).train({start})
"""
LIGHTNING = """
import lightning as L
class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
    def training_step(self, batch, index):
        return self.net(batch).sum()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
parser.add_argument("--ckpt_path", default=None)
args = parser.parse_args()
L.Trainer().fit(Module(), DataLoader(data, batch_size=args.batch_size), ckpt_path=args.ckpt_path)
"""


@pytest.mark.parametrize(
    ("program", "words", "more"),
    [
        (HEAD + PATH + BODY.format(load=LOAD), (), ("--resume",)),
        (HEAD + PATH + BODY.format(load=LOAD), ("--resume", "old.pt"), ("--resume",)),
        (HEAD + PATH + BODY.format(load=""), (), None),  # it is read for another purpose
        (HEAD + PATH.replace("type=str", 'action="store_true"') + BODY.format(load=LOAD), (), None),
        (ARGUMENTS.format(start="resume_from_checkpoint=arguments.resume_from_checkpoint"), (),
         ("--resume_from_checkpoint",)),
        (ARGUMENTS.format(start=""), (), None),
        (ARGUMENTS.format(start="resume_from_checkpoint=True"), (), None),
        (HEAD + BATCH + LIGHTNING, (), ("--ckpt_path",)),
    ],
)  # fmt: skip
def test_a_checkpoint_on_the_line(
    project: Write, program: str, words: tuple[str, ...], more: tuple[str, ...] | None
) -> None:
    known = read(project({"train.py": program}), "python", "train.py", *words)
    assert known is not None
    found = resumed(known, "/out/checkpoint-4")
    assert found == (None if more is None else ("python", "train.py", *words, *more, "/out/checkpoint-4"))


def test_a_checkpoint_for_lightnings_own_command_line(project: Write) -> None:
    program = "from lightning.pytorch.cli import LightningCLI\nfrom model import Module\nLightningCLI(Module)\n"
    files = {"main.py": program, "c.yaml": "trainer: {precision: 16}\nmodel: {}\ndata: {batch_size: 8}\n"}
    known = read(project(files), "python", "main.py", "fit", "--config", "c.yaml")
    assert known is not None
    found = resumed(known, "/out/last.ckpt")
    assert found is not None
    assert found[-2:] == ("--ckpt_path", "/out/last.ckpt")


def test_a_checkpoint_for_a_hydra_application(project: Write) -> None:
    program = LIGHTNING.replace("args = parser.parse_args()\n", "").replace(
        'parser.add_argument("--ckpt_path", default=None)\n', ""
    )
    head, _, start = program.rpartition("L.Trainer()")
    start = f"L.Trainer(){start}".replace("args.", "cfg.").replace("cfg.batch_size", "cfg.data.batch_size").strip()
    main = f'@hydra.main(version_base=None, config_path="conf", config_name="config")\ndef main(cfg):\n    {start}\n'
    text = f"import hydra, torch\nfrom torch.utils.data import DataLoader\n{head}\n{main}\nmain()\n"
    config = "ckpt_path: null\ndata:\n  batch_size: 8\n"
    known = read(project({"train.py": text, "conf/config.yaml": config}), "python", "train.py", "data.batch_size=4")
    assert known is not None
    assert resumed(known, "/out/epoch=3.ckpt") == (*known.words, "ckpt_path='/out/epoch=3.ckpt'")


def test_half_the_batch_of_transformers_arguments(project: Write) -> None:
    folder = project({"train.py": ARGUMENTS.format(start="")})
    known = read(folder, "python", "train.py", "--output_dir", "out", "--per_device_train_batch_size", "16")
    assert known is not None
    found = lowered(known, "train.batch_size", 8)
    assert isinstance(found, Override)
    assert found.words[-4:] == ("--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "2")


STUDY = PROGRAM.replace("args.batch_size", "trial.suggest_categorical('batch', [8, 16])").replace(
    "optimizer = torch", "lr = trial.suggest_float('lr', 0.1, 1)\noptimizer = torch"
)


@pytest.mark.parametrize(
    ("old", "new", "searches"), [("", "", True), ("trial.suggest_categorical('batch', [8, 16])", "8", False)]
)
def test_a_search_is_no_single_job(project: Write, old: str, new: str, searches: bool) -> None:
    text = STUDY.replace(old, new) if old else STUDY
    head, _, body = text.partition("model = Bert")
    lines = "".join(f"    {line}\n" for line in f"model = Bert{body}".splitlines())
    study = f"import optuna\n{head}def objective(trial):\n{lines}    return float(loss)\n"
    study += "optuna.create_study().optimize(objective)\n"
    known = read(project({"train.py": study}), "python", "train.py")
    assert known is not None
    assert known.searches is searches


DDP = PROGRAM.replace(
    "optimizer =",
    "torch.distributed.init_process_group()\nmodel = torch.nn.parallel.DistributedDataParallel(model)\noptimizer =",
)


@pytest.mark.parametrize(
    ("words", "ranks"), [(("python", "train.py"), (2, 4)), (("srun", "--ntasks=2", "python", "train.py"), (1, 2))]
)
def test_a_task_of_a_step_trains_beside_the_others(
    project: Write, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], ranks: tuple[int | None, int]
) -> None:
    """As in `srun --nodes=2 --ntasks=8 preflight run -- python train.py`, and with a step that the command starts."""
    folder = project({"train.py": DDP})
    for name, value in {"ID": "0", "NUM_TASKS": "8", "NUM_NODES": "2"}.items():
        monkeypatch.setenv(f"SLURM_STEP_{name}", value)
    known = read(folder, *words)
    assert known is not None
    parallel = known.job.parallel
    assert (parallel.strategy, parallel.nodes, parallel.ranks_per_node) == ("ddp", *ranks)
    found = lowered(known, "train.batch_size", 32)
    assert isinstance(found, Override)
    assert found.words == (*words, "--batch_size", "32", "--grad_accum", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    alone = read(folder, *words)
    assert alone is not None
    assert alone.data == known.data
