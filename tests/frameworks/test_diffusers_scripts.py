"""diffusers' example scripts, started from a checkout that is not the project."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import is_unknown, values
from test_litgpt_and_swift import command

from preflight.dialects.slurm import reader as slurm
from preflight.frameworks import launchers
from preflight.frameworks.commands import commands, module, started
from preflight.frameworks.diffusers import scripts
from preflight.memory.device.law.workload import Resolved
from preflight.memory.device.resolve import resolve
from preflight.memory.device.workloads import pipelines
from preflight.study.follow import Follower
from preflight.vocabulary.job import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Launch, Word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.values import Const, Unknown, Value

SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
FLAGS = (f"--pretrained_model_name_or_path={SDXL}", "--mixed_precision=fp16", "--train_batch_size=2", "--rank", "8",
         "--gradient_checkpointing", "--use_8bit_adam")  # fmt: skip
SCRIPTS = commands()["diffusers"].trains
DREAMBOOTH, SDXL_LORA = "method=train_dreambooth_lora_sdxl", "method=train_text_to_image_lora_sdxl"


LOADS = "unet = UNet2DConditionModel.from_pretrained(args.pretrained_model_name_or_path)\n"


def test_every_script_is_described() -> None:
    assert set(scripts()) == set(SCRIPTS)


@pytest.mark.parametrize("path", ["examples/dreambooth/train_dreambooth_lora_sdxl.py", "train_dreambooth_lora_sdxl.py"])
def test_a_script_is_known_by_its_file(path: str) -> None:
    found = module(path, [Word("--rank=", Const("8"))])
    assert found is not None
    name, words = found
    start = started(name, words, Launch(), None)
    assert start is not None
    assert (start.kind, start.words[0].value) == ("diffusers", Const("train_dreambooth_lora_sdxl"))


@pytest.mark.parametrize("path", ["examples/my_train_dreambooth.py", "train_dreambooth_lora_sdxl_advanced.py"])
def test_other_scripts_are_left_alone(path: str) -> None:
    assert module(path, []) is None


def test_flags_and_defaults(tmp_path: Path) -> None:
    found = values(command("diffusers", tmp_path, DREAMBOOTH, *FLAGS))
    expected = {
        "model.name": SDXL, "task": "diffusion", "train.batch_size": 2, "train.grad_accum": 1, "train.image_size": 1024,
        "train.precision": "fp16-mixed", "train.peft.method": "lora", "train.peft.r": 8,
        "train.optimizer": "adamw-8bit", "train.gradient_checkpointing": True, "train.saved_as": "fp32",
        "validation.generates": False,
        "train.companions": ("vae", "text_encoder", "text_encoder_2"),
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert "validation.loads" not in found


def test_a_prompt_generates(tmp_path: Path) -> None:
    found = values(command("diffusers", tmp_path, DREAMBOOTH, *FLAGS, "--validation_prompt", "a dog"))
    assert found["validation.generates"] is True
    assert found["validation.loads"] == ("denoiser", "text_encoder", "text_encoder_2")
    assert found["train.companions"] == ("vae", "text_encoder:fp32", "text_encoder_2:fp32")


@pytest.mark.parametrize(
    ("script", "more", "field", "value"),
    [
        (DREAMBOOTH, ("--with_prior_preservation",), "train.batch_size", 4),
        (DREAMBOOTH, ("--use_dora",), "train.peft.method", "dora"),
        (SDXL_LORA, ("--pretrained_vae_model_name_or_path=madebyollin/sdxl-vae-fp16-fix",), "train.companions",
         ("vae:fp16", "text_encoder", "text_encoder_2")),
        ("method=train_dreambooth_lora", ("--pre_compute_text_embeddings",), "train.companions", ("vae",)),
        ("method=train_dreambooth_lora_flux", ("--cache_latents",), "train.companions", ()),
        ("method=train_dreambooth_lora_flux", ("--upcast_before_saving",), "train.saved_as", "fp32"),
        ("method=train_dreambooth_lora_flux", ("--max_sequence_length=256",), "train.text_len", 256),
        ("method=train_controlnet", ("--validation_prompt", "a dog"), "train.peft.method", "controlnet"),
        ("method=train_controlnet", (), "train.outputs_kept", "loop"),
        ("method=train_text_to_image", ("--use_ema",), "train.copies.ema", 1),
        ("method=train_text_to_image", ("--validation_prompts", "a dog", "a cat"), "validation.loads", ()),
    ],
)  # fmt: skip
def test_flags_of_some(script: str, more: tuple[str, ...], field: str, value: Value, tmp_path: Path) -> None:
    assert values(command("diffusers", tmp_path, script, *FLAGS, *more))[field] == value


def test_text_encoders_that_are_trained_are_unknown(tmp_path: Path) -> None:
    found = values(command("diffusers", tmp_path, DREAMBOOTH, *FLAGS, "--train_text_encoder"))
    assert is_unknown(found["train.companions"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_has_beside_is_in_the_pipeline(name: str) -> None:
    script = scripts()[name]
    model = SDXL if "sdxl" in name else "stable-diffusion-v1-5/stable-diffusion-v1-5"
    model = {"sd3": "stabilityai/stable-diffusion-3-medium-diffusers",
             "lux": "black-forest-labs/FLUX.1-dev"}.get(name[-3:], model)  # fmt: skip
    job = build({"model.name": model, "train.batch_size": 1, "train.companions": script["companions"],
                 "validation.loads": script["loads"]})  # fmt: skip
    resolved = resolve(job)
    assert isinstance(resolved, Resolved)
    assert not isinstance(pipelines.companions(job, resolved.name), Unknown)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, "command"),  # a checkout that is not the project
        (f"check_min_version('0.36.0')\n{LOADS}unet = accelerator.prepare(unet)\n", "command"),
        ("check_min_version('0.36.0')\nunet = accelerator.prepare(own('x'))\n", "program"),  # it loads another model
        ("print('a program of that name')\n", "program"),
    ],
)
def test_a_copy_in_the_project_is_the_script(text: str | None, kind: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\naccelerate launch train_dreambooth_lora_sdxl.py --rank 8\n")
    if text is not None:
        (tmp_path / "train_dreambooth_lora_sdxl.py").write_text(text)
    project = Project(tmp_path, Settings())
    (link,) = slurm.read(project.source("run.sh"), None, project).links
    assert link.kind == kind


@pytest.mark.parametrize(
    ("use", "field", "value"),
    [
        ("", "train.gradient_checkpointing", False),
        (
            "parser.add_argument('--train_batch_size', type=int, default=3)\nargs.train_batch_size\n",
            "train.batch_size",
            3,
        ),
        ("", "train.peft.r", 8),  # what the copy does not declare is as the script has it
        (
            "if args.gradient_checkpointing:\n    unet.enable_gradient_checkpointing()\n",
            "train.gradient_checkpointing",
            True,
        ),
    ],
)
def test_an_option_that_a_copy_never_uses_has_no_effect(use: str, field: str, value: Value, tmp_path: Path) -> None:
    flags = "--pretrained_model_name_or_path m --gradient_checkpointing --rank 8"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\naccelerate launch train_text_to_image_lora.py {flags}\n")
    text = f"check_min_version('0.24.0')\n{LOADS}parser.add_argument('--gradient_checkpointing', action='store_true')\n"
    (tmp_path / "train_text_to_image_lora.py").write_text(f"{text}{use}unet = accelerator.prepare(unet)\n")
    project = Project(tmp_path, Settings())
    (link,) = slurm.read(project.source("run.sh"), None, project).links
    assert (
        values(command("diffusers", tmp_path, *(str(launchers.text(word)) for word in link.words[1:])))[field] == value
    )


def test_the_launch_may_state_the_precision(tmp_path: Path) -> None:
    """`accelerate launch --mixed_precision=bf16 train_text_to_image.py`: its Accelerator reads the environment."""
    flags = "--pretrained_model_name_or_path m --train_batch_size 4"
    (tmp_path / "run.sh").write_text(
        f"#!/bin/bash\naccelerate launch --num_processes 1 --mixed_precision=bf16 train_text_to_image.py {flags}\n"
    )
    project = Project(tmp_path, Settings())
    [chain] = Follower(project).chains("run.sh")
    assert values(chain[-1].reading)["train.precision"] == "bf16-mixed"
