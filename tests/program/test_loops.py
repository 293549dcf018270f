"""What hand-written loops and trainers' own ways of naming things come to."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs_as_text import facts, is_unknown, read_program, text_at, values

LOOP = """
import torch, torchvision
from torch.utils.data import DataLoader
model = torchvision.models.resnet50().cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=64, shuffle=True)
for x, y in loader:
    {body}
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


def looped(body: str, tmp_path: Path) -> dict[str, object]:
    inner = dedent(body).strip().replace("\n", "\n    ")
    return dict(values(read_program(LOOP.format(body=inner), tmp_path)))


ONCE = {
    "one pass": "loss = criterion(model(x), y)",
    "either branch": "if amp:\n    out = model(x)\nelse:\n    out = model(x)\nloss = criterion(out, y)",
    "an evaluation beside it": "with torch.no_grad():\n    old = model(x)\nloss = criterion(model(x), old)",
    "now and then": "extra = model(x) if step % 100 == 0 else None\nloss = criterion(model(x), y)",
}


@pytest.mark.parametrize("body", ONCE.values(), ids=ONCE.keys())
def test_one_forward_pass_is_the_loaders_batch(body: str, tmp_path: Path) -> None:
    assert looped(body, tmp_path)["train.batch_size"] == 64


def test_two_views_go_through_the_model_together(tmp_path: Path) -> None:
    body = "loss = nt_xent(model(x[0].cuda()), model(x[1].cuda()))"
    found = looped(body, tmp_path)
    assert (found["train.batch_size"], found["train.sequences_per_sample"]) == (64, 2)
    reading = read_program(LOOP.format(body=body), tmp_path)
    assert text_at(reading, "train.batch_size", tmp_path) == "64"


KEPT = {
    "no": "loss = model(x).loss",
    "loop": "_, loss = model(x)",
    "step": "out = None\nout = model(x)\nloss = out.loss",
}


@pytest.mark.parametrize(("kept", "body"), KEPT.items(), ids=KEPT.keys())
def test_what_is_still_bound_when_backward_runs(kept: str, body: str, tmp_path: Path) -> None:
    assert looped(body, tmp_path)["train.outputs_kept"] == kept


GPT = """
import torch, torch.nn as nn
import torch.nn.functional as F
class GPT(nn.Module):
    def __init__(self, vocab_size, n_embd, n_layer, n_head, block_size):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([nn.MultiheadAttention(n_embd, n_head) for _ in range(n_layer)])
        self.lm_head = nn.Linear(n_embd, vocab_size)
    def forward(self, idx):
        x = self.wte(idx)
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)
total = 65536
B, T = 8, 256
accumulation = total // (B * T)
model = GPT(vocab_size=50304, n_embd=256, n_layer=4, n_head=4, block_size=256)
opt = torch.optim.AdamW(model.parameters())
def batch(tokens):
    return tokens[: B * T].{shape}
for step in range(10):
    for micro in range(accumulation):
        x = batch(tokens)
        loss = F.cross_entropy(model(x), x) / accumulation
        loss.backward()
    opt.step()
"""


def test_batches_cut_out_of_one_text(tmp_path: Path) -> None:
    reading = read_program(GPT.replace("{shape}", "view(B, T)"), tmp_path)
    found = values(reading)
    assert (found["train.batch_size"], found["train.seq_len"], found["train.grad_accum"]) == (8, 256, 32)
    assert "token_mean_loss" not in facts(reading)  # all rows are equally long


@pytest.mark.parametrize("shape", ["reshape(100, 4)", "view(4, 100)", "view(-1, T)"])
def test_other_shapes_are_no_batches(shape: str, tmp_path: Path) -> None:
    assert "train.batch_size" not in values(read_program(GPT.replace("{shape}", shape), tmp_path))


SFT = """
import torch
from trl import SFTConfig, SFTTrainer
args = SFTConfig("out", per_device_train_batch_size=2, model_init_kwargs={"torch_dtype": torch.bfloat16})
trainer = SFTTrainer(model=MODEL, args=args, train_dataset=data)
trainer.train()
"""


def test_a_trainer_of_trl_loads_the_model_it_is_given_by_name(tmp_path: Path) -> None:
    found = values(read_program(SFT.replace("MODEL", '"Qwen/Qwen2.5-0.5B"'), tmp_path))
    assert (found["model.name"], found["task"]) == ("Qwen/Qwen2.5-0.5B", "causal-lm")
    assert found["train.weights_dtype"] == "bf16"


def test_a_trainers_model_that_is_an_object_names_nothing(tmp_path: Path) -> None:
    assert "model.name" not in values(read_program(SFT.replace("MODEL", "build()"), tmp_path))


def test_a_batch_of_a_preference_trainer_keeps_a_way_back(tmp_path: Path) -> None:
    text = SFT.replace("SFT", "DPO").replace("MODEL", '"Qwen/Qwen2.5-0.5B"')
    reading = read_program(text, tmp_path)
    assert (values(reading)["train.batch_size"], values(reading)["train.sequences_per_sample"]) == (2, 2)
    assert text_at(reading, "train.batch_size", tmp_path) == "2"


SIZES = {"224": 224, "(224, 224)": 224, "[192, 192]": 192, "(args.size, args.size)": 160, "(224, 320)": 320}


@pytest.mark.parametrize(("size", "side"), SIZES.items())
def test_pictures_given_as_a_pair(size: str, side: int, tmp_path: Path) -> None:
    text = f"""
    import argparse
    from torchvision import transforms
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=160)
    args = parser.parse_args()
    train_transform = transforms.Compose([transforms.Resize({size}), transforms.ToTensor()])
    """
    found = values(read_program(text, tmp_path))["train.image_size"]
    assert not is_unknown(found)
    assert found == side


WHOLE = {
    "a column of a split": 'tokenizer(ds["test"]["text"], return_tensors="pt")',
    "a list named for a set": 'tokenizer(test_texts, return_tensors="pt")',
}
BATCHED = {
    "a slice": 'tokenizer(test_texts[i : i + 8], return_tensors="pt")',
    "a batch": 'tokenizer(batch["text"], return_tensors="pt")',
}
EVALUATES = """
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
inputs = {made}
with torch.no_grad():
    logits = model(**inputs)
model(x).loss.backward()
"""


PART = {
    "a batch with the name of a set": """
with torch.no_grad():
    for i, batch in enumerate(loader):
        prompts = [f"Say: {text}" for text in batch["text"]]
        test_inputs = tokenizer(prompts, return_tensors="pt")
        model.generate(**test_inputs)
""",
    "some prompts": """
test_prompts = ["one", "two"]
with torch.no_grad():
    model(**tokenizer(test_prompts, return_tensors="pt"))
""",
    "one sample of a column": """
i = 13
inputs = tokenizer(dataset["validation"][text_column][i], return_tensors="pt")
with torch.no_grad():
    model.generate(**inputs)
""",
    "a hundred samples for a table": """
images = []
for i in range(100):
    images += [test_data[i][0]]
with torch.no_grad():
    model(torch.stack([transform(image) for image in images]))
""",
    "what the caller gives": """
def generate(prompts):
    with torch.no_grad():
        return model(torch.cat([cache[prompt] for prompt in prompts]))

generate(some)
""",
    "as many answers as there are rewards": """
rewards = []
for text in texts:
    rewards.append(score(text))
count = len(torch.tensor(rewards))
model.generate(prompt, num_return_sequences=count)
""",
}


@pytest.mark.parametrize("evaluation", PART.values(), ids=PART.keys())
def test_what_is_no_whole_set(evaluation: str, tmp_path: Path) -> None:
    head = EVALUATES.partition("inputs =")[0]
    assert "eval_unbatched" not in facts(read_program(f"{head}{evaluation}model(x).loss.backward()\n", tmp_path))


FULL = "x, y = train_data\nfor epoch in range(9):\n    model(x).loss.backward()\n    optimizer.step()\n"
BY_BATCH = "for x, y in loader:\n    model(x).loss.backward()\n    optimizer.step()\n"
DRAWN = "for step in range(9):\n    x, y = draw()\n    model(x).loss.backward()\n    optimizer.step()\n"


@pytest.mark.parametrize(("loop", "warned"), [(FULL, False), (BY_BATCH, True), (DRAWN, True)])
def test_where_a_step_takes_all_an_evaluation_may(loop: str, warned: bool, tmp_path: Path) -> None:
    head = EVALUATES.partition("inputs =")[0]
    text = f"{head}\n{loop}\nwith torch.no_grad():\n    model(val_x)\n"
    assert ("eval_unbatched" in facts(read_program(text, tmp_path))) is warned


@pytest.mark.parametrize("scaler", ["timm.utils.NativeScaler", "timm.utils.ApexScaler"])
def test_timms_scaler_is_a_backward_pass_and_a_step(scaler: str, tmp_path: Path) -> None:
    text = (
        "import timm.utils\nimport torch\nfrom torch.utils.data import DataLoader\n"
        "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.AdamW(model.parameters())\n"
        f"def epoch(loss_scaler):\n    for x, y in DataLoader(data, 3):\n        loss = model(x).sum()\n"
        f"        loss_scaler(loss, optimizer, clip_grad=1.0)\nepoch({scaler}())\n"
    )
    found = values(read_program(text, tmp_path))
    assert (found["train.batch_size"], found["train.optimizer"], found["train.grad_accum"]) == (3, "adamw", 1)


@pytest.mark.parametrize("engine", ["from vllm import LLM as Engine", "from elsewhere import Engine"])
def test_an_engine_makes_batches_itself(engine: str, tmp_path: Path) -> None:
    text = f"{EVALUATES.partition('inputs =')[0]}\n{engine}\nmodel_of_text = Engine('gpt2')\nllm = Engine('gpt2')\n"
    text += (
        "prompts = [row['text'] for row in test_data]\nllm.generate(prompts)\nmodel_of_text.generate(test_prompts)\n"
    )
    assert "eval_unbatched" not in facts(read_program(f"{text}model(x).loss.backward()\n", tmp_path))


@pytest.mark.parametrize("made", WHOLE.values(), ids=WHOLE.keys())
def test_a_whole_set_in_one_call(made: str, tmp_path: Path) -> None:
    assert facts(read_program(EVALUATES.format(made=made), tmp_path)).get("eval_unbatched") is True


@pytest.mark.parametrize("made", BATCHED.values(), ids=BATCHED.keys())
def test_part_of_a_set_in_one_call(made: str, tmp_path: Path) -> None:
    assert "eval_unbatched" not in facts(read_program(EVALUATES.format(made=made), tmp_path))


def test_flags_of_trls_model_configuration(tmp_path: Path) -> None:
    text = """
    from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config
    from transformers import AutoModelForCausalLM
    parser = TrlParser((SFTConfig, ModelConfig))
    training_args, model_args = parser.parse_args_and_config()
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    SFTTrainer(model=model, args=training_args, train_dataset=data, peft_config=get_peft_config(model_args)).train()
    """
    reading = read_program(text, tmp_path)
    assert "train.peft.method" not in values(reading)
    given = {"model_name_or_path": "gpt2", "use_peft": True, "use_dora": False, "lora_r": 32}
    found = values(reading, {**given, "lora_target_modules": ("all-linear",)})
    assert (found["model.name"], found["train.peft.method"], found["train.peft.r"]) == ("gpt2", "lora", 32)
    assert found["train.peft.targets"] == "all-linear"
    unused = read_program(text.replace(", peft_config=get_peft_config(model_args)", ""), tmp_path)
    assert "train.peft.method" not in values(unused, {**given})


TRAINED_TWICE = """
import torch, torchvision
from torch.utils.data import DataLoader
def train(model, every):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=64)):
        (criterion(model(x), y) / every).backward()
        if (step + 1) % every == 0:
            opt.step()
model = torchvision.models.resnet50().cuda()
train(model, {first})
train(model, {second})
"""


@pytest.mark.parametrize(("first", "second", "known"), [(8, 8, True), (8, 2, False), (8, 1, False)])
def test_trainings_that_accumulate_differently(first: int, second: int, known: bool, tmp_path: Path) -> None:
    found = values(read_program(TRAINED_TWICE.format(first=first, second=second), tmp_path))["train.grad_accum"]
    assert (found == first) if known else is_unknown(found)


PIECES = {
    "a tensor that is cut": "for part in x.split(8):\n    loss = model(part).sum()\n    loss.backward()",
    "a function of the program": "for mb in progress(cut(x)):\n    loss = model(mb).sum()\n    loss.backward()",
    "a function that goes back": "def back(loss):\n    loss.backward()\nfor mb in cut(x):\n    back(model(mb).sum())",
    "named pieces": "for piece in micro_batches:\n    loss = model(piece).sum()\n    loss.backward()",
}


@pytest.mark.parametrize("body", PIECES.values(), ids=PIECES.keys())
def test_the_batch_of_a_loader_that_is_split_is_unknown(body: str, tmp_path: Path) -> None:
    program = LOOP.replace("    loss.backward()\n", "").format(body=body.replace("\n", "\n    "))
    assert is_unknown(values(read_program(program, tmp_path))["train.batch_size"])


@pytest.mark.parametrize("loop", ["minibatch in loader", "chunk, (x, y) in enumerate(loader)", "k in 'ab'.split('b')"])
def test_a_loop_over_the_whole_batch_splits_nothing(loop: str, tmp_path: Path) -> None:
    program = LOOP.replace("x, y in loader", loop).format(body="loss = model(x).sum()")
    assert values(read_program(program, tmp_path))["train.batch_size"] == 64


IN_TURNS = """
import torch
model = torch.nn.Linear(4, 4)
first, second = torch.optim.AdamW(model.a), torch.optim.AdamW(model.b)
for step, x in enumerate(data):
    model(x).sum().backward()
    if step % 2 == 0:
        first.step()
    else:
        second.step()
    {zero}
"""


@pytest.mark.parametrize(
    ("zero", "accumulated"), [("model.zero_grad()", 1), ("if step % 2 == 0: model.zero_grad()", 2)]
)
def test_optimizers_that_take_turns_accumulate_nothing(zero: str, accumulated: int, tmp_path: Path) -> None:
    assert values(read_program(IN_TURNS.format(zero=zero), tmp_path))["train.grad_accum"] == accumulated
