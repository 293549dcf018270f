"""What library calls mean for a job: programs as text, and the Job fields they come to."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD, told
from programs_as_text import facts, is_unknown, read_program, text_at, values

# --- loaders ----------------------------------------------------------------------------------------------------------


def test_a_loader_without_arguments_has_torchs_defaults(tmp_path: Path) -> None:
    found = told("loader = DataLoader(data)", tmp_path)
    assert found["train.batch_size"] == 1
    assert found["data.workers"] == 0
    assert found["data.pin_memory"] is False


def test_literals_and_parameters_by_keyword_and_by_position(tmp_path: Path) -> None:
    reading = read_program(HEAD + "train_loader = DataLoader(data, args.batch_size, True, num_workers=16)\n", tmp_path)
    assert values(reading, {"batch_size": 8})["train.batch_size"] == 8
    assert values(reading)["data.shuffle"] is True
    assert text_at(reading, "data.workers", tmp_path) == "16"
    assert max(b.rank for b in reading.bindings if b.field == "data.workers") == 3
    assert max(b.rank for b in reading.bindings if b.field == "train.batch_size") == 2


ROLES = {
    "names": """
        val_loader = DataLoader(a, batch_size=64, num_workers=2)
        train_loader = DataLoader(b, batch_size=16, num_workers=8)
    """,
    "data sets": """
        first = DataLoader(splits["validation"], batch_size=64, num_workers=2)
        second = DataLoader(splits["train"], batch_size=16, num_workers=8)
    """,
    "shuffle": """
        first = DataLoader(a, batch_size=64, num_workers=2)
        second = DataLoader(b, batch_size=16, num_workers=8, shuffle=True)
    """,
    "functions": """
        def val_dataloader():
            return DataLoader(a, batch_size=64, num_workers=2)
        def train_dataloader():
            return DataLoader(b, batch_size=16, num_workers=8)
        val_dataloader(), train_dataloader()
    """,
    "keys": """
        loaders = {"train": DataLoader(a, batch_size=16, num_workers=8), "val": DataLoader(b, 64, num_workers=2)}
    """,
    "a test set where nothing validates": """
        train_loader = DataLoader(a, batch_size=16, num_workers=8)
        test_loader = DataLoader(b, batch_size=64, num_workers=2)
    """,
    "two targets at once": """
        train_loader, val_loader = DataLoader(a, 16, num_workers=8), DataLoader(b, 64, num_workers=2)
    """,
}


@pytest.mark.parametrize("how", ROLES)
def test_which_loader_trains_and_which_validates(how: str, tmp_path: Path) -> None:
    found = told(dedent(ROLES[how]), tmp_path)
    assert (found["train.batch_size"], found["validation.batch_size"]) == (16, 64)
    assert (found["data.workers"], found["data.validation_workers"]) == (8, 2)
    assert found["data.validation_persistent"] is False


def test_a_test_set_does_not_stand_in_for_a_validation_set(tmp_path: Path) -> None:
    body = "train_loader = DataLoader(a, 8)\nval_loader = DataLoader(b, 16)\ntest_loader = DataLoader(c, 512)\n"
    assert told(body, tmp_path)["validation.batch_size"] == 16


def test_arguments_passed_on_are_unknown_and_not_defaults(tmp_path: Path) -> None:
    reading = read_program(HEAD + "import json\nloader = DataLoader(data, **json.loads(input()))\n", tmp_path)
    assert is_unknown(values(reading)["train.batch_size"])
    assert {b.rank for b in reading.bindings if b.field == "data.workers"} == {-1}


# --- optimizers and precision -----------------------------------------------------------------------------------------

OPTIMIZERS = [
    ("torch.optim.AdamW(p)", "adamw", "foreach"),
    ("torch.optim.Adam(p, fused=True)", "adam", "fused"),
    ("torch.optim.AdamW(p, foreach=False)", "adamw", "for-loop"),
    ("torch.optim.SGD(p, 0.1)", "sgd", "foreach"),
    ("torch.optim.SGD(p, 0.1, 0.9)", "sgd-momentum", "foreach"),
    ("torch.optim.SGD(p, lr=0.1, momentum=0.0)", "sgd", "foreach"),
    ("torch.optim.Adafactor(p)", "adafactor", "foreach"),
    ("torch.optim.LBFGS(p)", "other", "foreach"),
]


@pytest.mark.parametrize(("call", "name", "implementation"), OPTIMIZERS)
def test_optimizers_and_how_their_step_runs(call: str, name: str, implementation: str, tmp_path: Path) -> None:
    found = told(f"p = []\nopt = {call}", tmp_path)
    assert (found["train.optimizer"], found["train.optimizer_impl"]) == (name, implementation)


def test_bitsandbytes_has_no_implementation_to_choose(tmp_path: Path) -> None:
    found = told("import bitsandbytes as bnb\nopt = bnb.optim.PagedAdamW8bit([])", tmp_path)
    assert found["train.optimizer"] == "paged-adamw-8bit"
    assert "train.optimizer_impl" not in found


def test_a_scheduler_is_no_optimizer(tmp_path: Path) -> None:
    found = told("opt = torch.optim.SGD([], 0.1)\ns = torch.optim.lr_scheduler.StepLR(opt, 3)", tmp_path)
    assert found["train.optimizer"] == "sgd"


def test_a_choice_by_parameter_stays_a_choice(tmp_path: Path) -> None:
    body = """
        if args.optimizer == "adamw":
            opt = torch.optim.AdamW([])
        else:
            opt = torch.optim.SGD([], 0.1)
    """
    assert told(body, tmp_path)["train.optimizer"] == "adamw"
    assert told(body, tmp_path, optimizer="sgd")["train.optimizer"] == "sgd"


AUTOCAST = [
    ("torch.autocast('cpu', dtype=torch.bfloat16)", None),
    ("torch.autocast('cuda', enabled=False)", "fp32"),
    ("torch.autocast('cuda')", "fp16-mixed"),
    ("torch.autocast(device_type='cuda', dtype=torch.bfloat16)", "bf16-mixed"),
    ("torch.cuda.amp.autocast()", "fp16-mixed"),
    ("torch.cuda.amp.autocast(False)", "fp32"),
    ("torch.amp.autocast('cuda', torch.float16, args.amp)", "fp32"),
]


@pytest.mark.parametrize(("call", "precision"), AUTOCAST)
def test_autocast(call: str, precision: str | None, tmp_path: Path) -> None:
    body = f"model = torch.nn.Linear(2, 2)\nwith {call}:\n    loss = model(x).sum()\nloss.backward()\n"
    assert told(body, tmp_path).get("train.precision") == precision


OFF = "torch.autocast('cuda', enabled=False)"
REGIONS = {
    "within": (
        f"with torch.autocast('cuda'):\n    y = model(x)\n    with {OFF}:\n        loss = y.sum()\n",
        "fp16-mixed",
    ),
    "behind": (f"with torch.autocast('cuda'):\n    y = model(x)\nwith {OFF}:\n    loss = y.sum()\n", "fp16-mixed"),
    "before": (f"with {OFF}:\n    z = x.float()\nwith torch.autocast('cuda'):\n    loss = model(x)\n", "fp16-mixed"),
    "around the model": (f"with torch.autocast('cuda'):\n    x = x * 2\nwith {OFF}:\n    loss = model(x)\n", "fp32"),
    "nothing else": (f"with {OFF}:\n    loss = model(x)\n", "fp32"),
}


@pytest.mark.parametrize(("body", "precision"), REGIONS.values(), ids=REGIONS)
def test_an_autocast_region_that_is_off(body: str, precision: str, tmp_path: Path) -> None:
    text = f"model = torch.nn.Linear(2, 2)\n{body}loss.sum().backward()\n"
    assert told(text, tmp_path).get("train.precision") == precision


def test_autocast_that_a_flag_switches_on(tmp_path: Path) -> None:
    body = "with torch.amp.autocast('cuda', enabled=args.amp):\n    pass\n"
    assert told(body, tmp_path)["train.precision"] == "fp32"
    assert told(body, tmp_path, amp=True)["train.precision"] == "fp16-mixed"


def test_autocast_of_an_evaluation_says_nothing_about_training(tmp_path: Path) -> None:
    body = """
        @torch.no_grad()
        def evaluate(model):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                model(x)
        evaluate(torch.nn.Linear(2, 2))
    """
    assert "train.precision" not in told(body, tmp_path)


def test_weights_converted_by_hand_are_pure_precision(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("gpt2").to("cuda", torch.bfloat16)
    """
    found = told(body, tmp_path)
    assert (found["train.precision"], found["train.weights_dtype"]) == ("bf16", "bf16")


def test_a_part_converted_by_hand_is_not_the_model(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float32)
        model.get_model().projector.to(torch.bfloat16)
    """
    assert told(body, tmp_path)["train.weights_dtype"] == "fp32"


def test_conversions_under_the_same_conditions_do_not_double_each_other(tmp_path: Path) -> None:
    lines = [f"        if args.tower and args.bits == {n}:\n            model.to(torch.bfloat16)" for n in range(12)]
    body = "\n".join([
        "        import argparse",
        "        from transformers import AutoModelForCausalLM",
        "        parser = argparse.ArgumentParser()",
        '        parser.add_argument("--tower")',
        '        parser.add_argument("--bits", type=int, default=3)',
        "        args = parser.parse_args()",
        '        model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float32)',
        *lines,
    ])  # fmt: skip
    assert told(body, tmp_path)["train.weights_dtype"] == "fp32"


def test_images_converted_by_hand_are_not(tmp_path: Path) -> None:
    assert "train.weights_dtype" not in told("images = torch.zeros(3).half()", tmp_path)


# --- frozen parts and versions ----------------------------------------------------------------------------------------

FREEZING = {
    "nothing": ("", None),
    "a part, parameter by parameter": (
        "for p in model.vision_model.parameters():\n    p.requires_grad = False\n",
        ("vision_model",),
    ),
    "two parts at once": (
        "model.vision_model.requires_grad_(False)\nmodel.text_model.encoder.requires_grad_(False)\n",
        ("vision_model", "text_model.encoder"),
    ),
    "thawed": ("model.vision_model.requires_grad_(True)\n", None),
    "a loop that only counts": ("for p in model.vision_model.parameters():\n    n = p.numel()\n", None),
}


@pytest.mark.parametrize("how", FREEZING)
def test_frozen_parts(how: str, tmp_path: Path) -> None:
    body, expected = FREEZING[how]
    text = "from transformers import CLIPModel\nmodel = CLIPModel.from_pretrained('c')\n" + body
    assert told(text, tmp_path).get("train.frozen") == expected


def test_pinned_versions_decide_defaults(tmp_path: Path) -> None:
    text = "from transformers import TrainingArguments\nargs = TrainingArguments('out')\n"
    pins = "# ours\ntransformers==4.40.2\ntorch>=2.1\nnumpy==1.26.4\n"
    found = values(read_program(text, tmp_path, None, requirements__txt=pins))
    assert found["software.transformers"] == "4.40.2"
    assert "software.torch" not in found
    assert found["train.optimizer_impl"] == "foreach"
    assert values(read_program(text, tmp_path, None, requirements__txt=""))["train.optimizer_impl"] == "fused"


def test_packages_that_weigh_on_a_process(tmp_path: Path) -> None:
    text = "import json, torch\nfrom transformers.models import bert\nloss.backward()\n"
    assert values(read_program(text, tmp_path))["data.imports"] == ("torch", "transformers")
    assert "data.imports" not in values(read_program("import json, torch\nloss.backward()\n", tmp_path))


def test_how_workers_start(tmp_path: Path) -> None:
    assert told("torch.multiprocessing.set_start_method('spawn')", tmp_path)["data.start_method"] == "spawn"
    body = "loader = DataLoader(data, 8, num_workers=2, multiprocessing_context='spawn')"
    assert told(body, tmp_path)["data.start_method"] == "spawn"


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("batch_size=8", False),
        ("num_workers=2, prefetch_factor=4, persistent_workers=True", False),
        ("persistent_workers=False", False),
        ("num_workers=args.accum, prefetch_factor=4", False),
        ("prefetch_factor=4", True),
        ("num_workers=0, persistent_workers=True", True),
    ],
)
def test_what_a_loader_refuses(arguments: str, refused: bool, tmp_path: Path) -> None:
    reading = read_program(HEAD + f"loader = DataLoader(data, {arguments})\n", tmp_path)
    assert bool(reading.problems) is refused


@pytest.mark.parametrize(
    ("model", "mean"),
    [("AutoModelForCausalLM", True), ("AutoModelForSequenceClassification", False), ("CLIPModel", False)],
)
def test_language_models_average_over_the_tokens_of_their_batch(model: str, mean: bool, tmp_path: Path) -> None:
    text = f"from transformers import {model}\nm = {model}.from_pretrained('x')\nm(**batch).loss.backward()\n"
    assert facts(read_program(text, tmp_path)).get("token_mean_loss", False) is mean


HELPER = """
import torch
class Helper:
    def __init__(self, model):
        self.model = model
    def forward(self, batch):
        with torch.cuda.amp.autocast():
            return self.model(batch)
"""


@pytest.mark.parametrize("helper", [HELPER, HELPER.replace("torch.cuda.amp.autocast()", "torch.no_grad()")])
def test_an_autocast_that_was_not_followed(helper: str, tmp_path: Path) -> None:
    text = """
    import torch
    from helper import Helper
    model = torch.nn.Linear(1, 1)
    made = {"a": Helper}[open("kind.txt").read()](model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in torch.utils.data.DataLoader(data, batch_size=4):
        made.forward(batch).mean().backward()
        optimizer.step()
    """
    found = values(read_program(text, tmp_path, helper__py=helper)).get("train.precision", "nothing")
    assert is_unknown(found) if "autocast" in helper else found == "nothing"
