"""The need at a few values of what only the launch decides, or what no file states beside batch and length."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.api import Finding, check

LAUNCH = "accelerate launch train.py\n"
PROGRAM = """
from accelerate import Accelerator
from datasets import load_dataset
from torch.optim import {optimizer}
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

accelerator = Accelerator({precision})
model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = {optimizer}(model.parameters())
rows = load_dataset("x").map(lambda row: tokenizer(row["text"], padding="max_length", max_length=128, truncation=True))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=4))
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
"""


def said(root: Path, launch: str, precision: str = "") -> list[str]:
    return [one.message for one in found(root, launch, precision)]


def found(root: Path, launch: str, precision: str = "") -> list[Finding]:
    (root / "train.py").write_text(PROGRAM.format(optimizer="AdamW", precision=precision))
    (root / "run.sh").write_text(launch)
    outcome = check([root / "run.sh"])
    return [one for report in outcome.reports for one in report.findings if one.rule == "fits-only-if"]


@pytest.mark.parametrize("launch", ["python train.py\n", "torchrun --nproc_per_node 4 train.py\n"])
def test_what_the_launch_says_is_not_asked(launch: str, tmp_path: Path) -> None:
    assert said(tmp_path, launch) == []


def test_the_number_of_gpus_is_left_to_the_machine(tmp_path: Path) -> None:
    [message] = said(tmp_path, LAUNCH)
    assert message.startswith("how many GPUs share the job is unknown: it needs ")
    assert "GiB on 1 GPU" in message
    assert "on each of 8 (ddp)" in message
    assert "on each of 8 (zero3)" in message
    [one] = found(tmp_path, LAUNCH)
    assert "parallel.gpus_per_node" in one.help[0]


def test_a_gpu_that_none_of_the_shown_ways_fits_is_a_warning(tmp_path: Path) -> None:
    """GPT-2 XL with AdamW takes some 13 GiB on each of eight GPUs that share it, and 30 on one."""
    (tmp_path / "train.py").write_text(PROGRAM.format(optimizer="AdamW", precision="").replace("gpt2", "gpt2-xl"))
    (tmp_path / "run.sh").write_text(LAUNCH)

    def on(gpu: str) -> tuple[str, str]:
        [one] = [
            one
            for report in check([tmp_path / "run.sh"], gpu=gpu).reports
            for one in report.findings
            if one.rule == "fits-only-if"
        ]
        return one.severity.value, one.message

    severity, message = on("A100 MIG 1g.5gb")
    assert severity == "warning"
    assert ", and none of these fits A100 MIG 1g.5gb (" in message
    severity, message = on("RTX 5090")
    assert severity == "info"
    assert "; of these only on each of 8 (zero3) surely fit RTX 5090 (" in message
    severity, message = on("H100 80GB")
    assert severity == "info"
    assert "; of these all of them fit H100 " in message


def test_the_kind_of_checkpointing_matters_to_int8_layers(tmp_path: Path) -> None:
    program = """
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("huggyllama/llama-7b", load_in_8bit=True)
model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
rows = data.map(lambda row: tokenizer(row["text"], padding="max_length", max_length=512, truncation=True))
Trainer(model, TrainingArguments("out", per_device_train_batch_size=4), train_dataset=rows).train()
"""
    (tmp_path / "train.py").write_text(program)
    reports = check([tmp_path / "train.py"]).reports
    said = [one.message for report in reports for one in report.findings if one.rule == "fits-only-if"]
    assert any("the kind of gradient checkpointing" in one and "GiB if it is reentrant" in one for one in said), said


def test_two_settings_that_are_missing_are_shown_at_both_ends(tmp_path: Path) -> None:
    [message] = said(tmp_path, LAUNCH, precision="mixed_precision=ask()")
    assert message.startswith("the precision and how many GPUs share the job are unknown: it needs ")
    assert "GiB bf16-mixed, on each of 8 (zero3), " in message
    assert "GiB fp32, on 1 GPU (" in message


def test_what_has_no_usual_values_is_not_shown(tmp_path: Path) -> None:
    program = PROGRAM.replace('"gpt2"', "ask()")
    (tmp_path / "train.py").write_text(program.format(optimizer="AdamW", precision="mixed_precision=ask()"))
    (tmp_path / "run.sh").write_text(LAUNCH)
    reports = check([tmp_path / "run.sh"]).reports
    assert [one for report in reports for one in report.findings if one.rule == "fits-only-if"] == []


def test_the_need_of_a_model_that_may_be_adapted_is_not_shown(tmp_path: Path) -> None:
    """The file that is not there may say so, and with an adapter the need is a small part."""
    given = "model_name_or_path=openai-community/gpt2 per_device_train_batch_size=4 optim=adamw_torch cutoff_len=512"
    (tmp_path / "run.sh").write_text(f"llamafactory-cli train no.yaml {given}\n")
    reports = check([tmp_path / "run.sh"]).reports
    assert len(reports) == 1
    assert [one for report in reports for one in report.findings if one.rule == "fits-only-if"] == []


def test_an_optimizer_that_has_no_law_is_shown_between_two(tmp_path: Path) -> None:
    program = PROGRAM.replace("from torch.optim import {optimizer}", "from adabelief_pytorch import {optimizer}")
    (tmp_path / "train.py").write_text(program.format(optimizer="AdaBelief", precision=""))
    (tmp_path / "run.sh").write_text("python train.py\n")
    reports = check([tmp_path / "run.sh"]).reports
    [message] = [one.message for report in reports for one in report.findings if one.rule == "fits-only-if"]
    assert message.startswith("the optimizer is unknown: it needs ")
    assert "GiB with SGD, " in message
    assert "GiB with AdamW (" in message


def test_the_number_of_gpus_that_is_stated_stays(tmp_path: Path) -> None:
    """Only the file of DeepSpeed that says how the model is split is missing."""
    program = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", deepspeed="there/is/none.json")).train()
"""
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 4 train.py\n")
    reports = check([tmp_path / "run.sh"]).reports
    [message] = [one.message for report in reports for one in report.findings if one.rule == "fits-only-if"]
    assert "on each of 4 (zero3" in message
    assert "on each of 4 (ddp)" in message
    assert "on 1 GPU" not in message
    assert "on each of 8" not in message


@pytest.mark.parametrize(("batch", "severity"), [(256, "info"), (65536, "warning")])
def test_usual_lengths_that_do_not_fit_are_no_warning_where_shorter_ones_do(
    batch: int, severity: str, tmp_path: Path
) -> None:
    """The sequences may be far shorter than the shortest of the usual lengths."""
    text = PROGRAM.format(optimizer="AdamW", precision="").replace("batch_size=4", f"batch_size={batch}")
    (tmp_path / "train.py").write_text(text.replace(', padding="max_length", max_length=128, truncation=True', ""))
    (tmp_path / "run.sh").write_text(LAUNCH)
    outcome = check([tmp_path / "run.sh"], gpu="T4")
    [one] = [one for report in outcome.reports for one in report.findings if one.rule == "fits-only-if"]
    assert "the length and how many GPUs share the job are unknown" in one.message
    assert ", and none of these fits T4 (" in one.message
    assert one.severity.value == severity


def test_the_least_precision_decides_whether_none_fits(tmp_path: Path) -> None:
    """In pure bf16, which is not shown, the states of GPT-2 Medium take some 3 of 5 GiB: half of those in fp32."""
    program = PROGRAM.format(optimizer="AdamW", precision="mixed_precision=ask()").replace("gpt2", "gpt2-medium")
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 1 train.py\n")
    reports = check([tmp_path / "run.sh"], gpu="A100 MIG 1g.5gb").reports
    [one] = [one for report in reports for one in report.findings if one.rule == "fits-only-if"]
    assert ", and none of these fits A100 MIG 1g.5gb (" in one.message
    assert one.severity.value == "info"


def test_a_program_that_was_not_read_may_use_several_gpus(tmp_path: Path) -> None:
    """Only names of settings say what it trains, so that nothing is certain to exceed."""
    files = {
        "conf/config.yaml": "batch_size: 4\nmax_length: 512\noptimizer: RMSprop\ndefaults: [_self_, model: gone]\n",
        "conf/model/xl.yaml": "name_or_path: gpt2-xl\n",
        "train.py": "import hydra\nimport torch\nimport transformers\n\n"
        '@hydra.main(version_base=None, config_path="conf", config_name="config")\n'
        "def main(config):\n"
        "    model = transformers.AutoModelForCausalLM.from_pretrained(config.model.name_or_path)\n"
        "    torch.optim.RMSprop(model.parameters())\n\n\nmain()\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    reports = check([tmp_path], gpu="T4").reports
    [one] = [one for report in reports for one in report.findings if one.rule == "fits-only-if"]
    assert "on each of 8 (zero3), " in one.message
    assert one.severity.value == "info"
