"""What library calls mean for a job: programs as text, and the Job fields they come to."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import facts, is_unknown, read_program, text_at, values

HEAD = """
import argparse
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--accum", type=int, default=4)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--optimizer", default="adamw")
args = parser.parse_args()
"""


def told(body: str, tmp_path: Path, **given: object) -> dict[str, object]:
    return dict(values(read_program(HEAD + dedent(body), tmp_path), given))  # type: ignore[arg-type]


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


def test_images_converted_by_hand_are_not(tmp_path: Path) -> None:
    assert "train.weights_dtype" not in told("images = torch.zeros(3).half()", tmp_path)


# --- models -----------------------------------------------------------------------------------------------------------

MODELS = [
    (
        "transformers.AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')",
        {"model.name": "bert-base-uncased", "task": "sequence-classification"},
    ),
    ("transformers.GPT2LMHeadModel.from_pretrained('gpt2')", {"model.name": "gpt2", "task": "causal-lm"}),
    ("transformers.AutoModelForSeq2SeqLM.from_pretrained('t5-small')", {"task": "seq2seq-lm"}),
    ("transformers.WhisperForConditionalGeneration.from_pretrained('w')", {"task": "speech-seq2seq"}),
    ("transformers.CLIPModel.from_pretrained('c')", {"task": "contrastive"}),
    (
        "transformers.AutoModelForCausalLM.from_pretrained('m', dtype=torch.float16, attn_implementation='eager')",
        {"train.weights_dtype": "fp16", "train.attention": "eager"},
    ),
    (
        "transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=64, num_hidden_layers=2))",
        {"model.architecture": "llama", "model.config.hidden_size": 64, "model.config.num_hidden_layers": 2},
    ),
    (
        "transformers.AutoModelForMaskedLM.from_config(transformers.XLMRobertaConfig(vocab_size=9))",
        {"model.architecture": "xlm-roberta", "model.config.vocab_size": 9, "task": "masked-lm"},
    ),
    ("torchvision.models.resnet50()", {"model.target": "torchvision:resnet50", "task": "image-classification"}),
    ("timm.create_model('vit_base_patch16_224', num_classes=9)", {"model.target": "timm:vit_base_patch16_224"}),
    ("timm.create_model('vit_base_patch16_224')", {"train.image_size": 224}),
    ("open_clip.create_model_and_transforms('ViT-B-32')", {"model.name": "openai/clip-vit-base-patch32"}),
]


@pytest.mark.parametrize(("call", "expected"), MODELS)
def test_models(call: str, expected: dict[str, object], tmp_path: Path) -> None:
    found = told(f"import open_clip, timm, torchvision, transformers\nmodel = {call}", tmp_path)
    assert {field: found.get(field) for field in expected} == expected


@pytest.mark.parametrize("name", ["AutoTokenizer", "AutoConfig", "AutoImageProcessor", "GenerationConfig"])
def test_what_is_no_model(name: str, tmp_path: Path) -> None:
    found = told(f"import transformers\nx = transformers.{name}.from_pretrained('bert-base-uncased')", tmp_path)
    assert "model.name" not in found


def test_a_teacher_is_a_copy_and_not_what_is_trained(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("student")
        teacher = AutoModelForCausalLM.from_pretrained("teacher")
    """
    found = told(body, tmp_path)
    assert (found["model.name"], found["train.copies.reference"]) == ("student", 1)


def test_a_folder_with_a_configuration_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    found = told("import transformers\nm = transformers.AutoModelForCausalLM.from_pretrained('mine')", tmp_path)
    assert found["model.path"] == "mine"
    assert "model.name" not in found


def test_qlora(tmp_path: Path) -> None:
    body = """
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig
        bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb)
        model = prepare_model_for_kbit_training(model)
        model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    """
    found = told(body, tmp_path)
    assert found["train.quantization.type"] == "nf4"
    assert found["train.quantization.compute_dtype"] == "bf16"
    assert found["train.quantization.upcast_rest"] is True
    assert found["train.gradient_checkpointing"] is True
    assert (found["train.peft.method"], found["train.peft.r"]) == ("lora", 16)
    assert found["train.peft.targets"] == ("q_proj", "v_proj")


def test_checkpointing_under_a_flag(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        if args.amp:
            model.gradient_checkpointing_enable()
    """
    assert "train.gradient_checkpointing" not in told(body, tmp_path)
    assert told(body, tmp_path, amp=True)["train.gradient_checkpointing"] is True


# --- lengths ----------------------------------------------------------------------------------------------------------

LENGTHS = [
    ("tok(texts)", (None, None)),
    ("tok(texts, max_length=128, truncation=True, padding='max_length')", (128, "exact")),
    ("tok(texts, max_length=256, truncation=True, padding=True)", (256, "bound")),
    ("tok(texts, max_length=min(64, tok.model_max_length), truncation=True)", (64, "bound")),
]


@pytest.mark.parametrize(("call", "expected"), LENGTHS)
def test_lengths(call: str, expected: tuple[object, object], tmp_path: Path) -> None:
    found = told(f"import transformers\ntok = transformers.AutoTokenizer.from_pretrained('b')\nx = {call}", tmp_path)
    assert (found.get("train.seq_len"), found.get("train.sequences")) == expected


def test_text_beside_images_has_a_length_of_its_own(tmp_path: Path) -> None:
    body = "import transformers\nmodel = transformers.CLIPModel.from_pretrained('c')\n"
    found = told(body, tmp_path)
    assert found["train.text_len"] == 77
    assert "train.seq_len" not in found


# --- loops ------------------------------------------------------------------------------------------------------------

LOOP = """
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for step, batch in enumerate(DataLoader(data, args.batch_size)):
"""


def loop(body: str, tmp_path: Path) -> tuple[dict[str, object], dict[str, object]]:
    text = HEAD + LOOP + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    reading = read_program(text, tmp_path)
    return dict(values(reading)), dict(facts(reading))


def test_one_step_per_backward_pass(tmp_path: Path) -> None:
    found, known = loop("loss = model(batch).sum()\nloss.backward()\noptimizer.step()", tmp_path)
    assert found["train.grad_accum"] == 1
    assert known["accumulation_supported"] is False
    assert known["framework"] == "hand-written"


def test_a_step_every_so_many_passes(tmp_path: Path) -> None:
    body = """
        loss = model(batch).sum() / args.accum
        loss.backward()
        if (step + 1) % args.accum == 0:
            optimizer.step()
            scheduler.step()
    """
    found, known = loop(body, tmp_path)
    assert found["train.grad_accum"] == 4
    assert known["accumulation_supported"] is True
    assert "scheduler_per_micro_batch" not in known


def test_a_scheduler_stepped_more_often_than_the_optimizer(tmp_path: Path) -> None:
    body = """
        model(batch).sum().backward()
        if (step + 1) % args.accum == 0:
            optimizer.step()
        scheduler.step()
    """
    assert loop(body, tmp_path)[1]["scheduler_per_micro_batch"] is True


def test_micro_batches_in_an_inner_loop(tmp_path: Path) -> None:
    body = """
        for micro in range(args.accum):
            loss = model(batch).sum() / args.accum
            loss.backward()
        optimizer.step()
    """
    assert loop(body, tmp_path)[0]["train.grad_accum"] == 4


KEPT = [
    ("model(batch).sum().backward()", "no"),
    ("loss = model(batch).sum()\nloss.backward()", "no"),
    ("outputs = model(batch)\nloss = outputs.sum()\nloss.backward()", "loop"),
    ("outputs = model(batch)\nloss = outputs.sum()\nloss.backward()\ndel outputs", "step"),
    ("outputs = model(batch)\nloss = outputs.sum()\ndel outputs\nloss.backward()", "no"),
    ("logits, loss = model(batch)\nloss = loss / 2\nloss.backward()", "loop"),
]


@pytest.mark.parametrize(("body", "kept"), KEPT)
def test_until_when_outputs_live(body: str, kept: str, tmp_path: Path) -> None:
    assert loop(body, tmp_path)[0]["train.outputs_kept"] == kept


CONTRASTIVE = [
    ("loss = F.cross_entropy(model(batch), batch['label'])", False),
    ("labels = torch.arange(8)\nloss = F.cross_entropy(model(batch), labels)", True),
    ("loss = F.cross_entropy(model(batch), torch.arange(8))", True),
    ("weights = q @ k.transpose(-2, -1)\nloss = model(batch).sum()", False),
    ("logits = image_features @ text_features.T\nloss = F.cross_entropy(logits, labels)", True),
    ("loss = info_nce(model(batch))", True),
    ("loss = model(batch, return_loss=True).loss", True),
]


@pytest.mark.parametrize(("body", "contrastive"), CONTRASTIVE)
def test_losses_that_compare_samples_of_the_batch(body: str, contrastive: bool, tmp_path: Path) -> None:
    known = loop(body + "\nloss.backward()", tmp_path)[1]
    assert known.get("contrastive_loss", False) is contrastive


# --- evaluation -------------------------------------------------------------------------------------------------------

EVALUATION = """
    import numpy as np
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained("m")
    def evaluate(model, data, num_samples, size=64):
        contexts = []
        for i in range(num_samples):
            contexts.append(data[i])
{body}
    evaluate(model, data, 5000)
"""

BATCHED = {
    "slices": """
        for start in range(0, num_samples, size):
            batch = torch.tensor(np.stack(contexts[start:start + size]))
            model.generate(batch, max_new_tokens=8)
    """,
    "a loader": """
        for batch in DataLoader(contexts, size):
            with torch.no_grad():
                model(batch)
    """,
    "one at a time": """
        for context in contexts:
            model.generate(torch.tensor(np.stack([context])), max_new_tokens=8)
    """,
}
WHOLE = {
    "stacked": """
        batch = torch.from_numpy(np.stack(contexts).astype(np.int64)).to("cuda")
        model.generate(batch, max_new_tokens=8)
    """,
    "tensor of a list": """
        with torch.no_grad():
            model(torch.tensor(contexts))
    """,
    "comprehension": """
        batch = torch.stack([torch.tensor(c) for c in contexts])
        model.generate(batch.cuda(), max_new_tokens=8)
    """,
}


def evaluated(body: str, tmp_path: Path) -> tuple[dict[str, object], dict[str, object]]:
    inner = "\n".join("    " + line for line in dedent(body).strip("\n").splitlines())
    text = dedent(EVALUATION.replace("{body}", "\n".join("    " + line for line in inner.splitlines())))
    reading = read_program(HEAD + text, tmp_path)
    return dict(values(reading)), dict(facts(reading))


@pytest.mark.parametrize("how", BATCHED)
def test_evaluation_in_batches(how: str, tmp_path: Path) -> None:
    assert "eval_unbatched" not in evaluated(BATCHED[how], tmp_path)[1]


@pytest.mark.parametrize("how", WHOLE)
def test_evaluation_of_everything_at_once(how: str, tmp_path: Path) -> None:
    assert evaluated(WHOLE[how], tmp_path)[1]["eval_unbatched"] is True


def test_how_many_samples_and_what_is_generated(tmp_path: Path) -> None:
    found, known = evaluated(WHOLE["stacked"], tmp_path)
    assert known["eval_samples"] == 5000
    assert (found["validation.batch_size"], found["validation.max_new_tokens"]) == (5000, 8)
    assert found["validation.generates"] is True


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
