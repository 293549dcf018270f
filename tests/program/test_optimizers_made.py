"""Which optimizer a program makes: own classes, several of them, and those that the text does not decide."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD
from programs_as_text import is_unknown, read_program, values

MODEL = """
class Net(torch.nn.Module):
    pass
model = Net()
"""
LOOP = """
for batch in DataLoader(data, 4, shuffle=True):
    model(batch).sum().backward()
"""


def optimizer(body: str, tmp_path: Path, **given: str) -> object:
    reading = read_program(HEAD + MODEL + dedent(body) + LOOP, tmp_path)
    return values(reading, given).get("train.optimizer")  # type: ignore[arg-type]


# --- no name of a class makes an optimizer one that is known ----------------------------------------------------------

UNKNOWN = {
    "an optimizer of the project": "class Muon(torch.optim.Optimizer): pass\nopt = Muon(model.parameters())",
    "one with the name of a known one": "class AdamW(torch.optim.Optimizer): pass\nopt = AdamW(model.parameters())",
    "a subclass of a known one": "class Fast(torch.optim.AdamW): pass\nopt = Fast(model.parameters())",
    "of a package": "from muon import SingleDeviceMuon\nopt = SingleDeviceMuon(model.parameters())",
    "of a package, in groups": "from muon import Muon\nopt = Muon([dict(params=model.parameters(), lr=1)])",
    "of a package, by a known name": "from mine.opt import AdamW\nopt = AdamW(model.parameters())",
    "a wrapper of another package": "from sam import SAM\nopt = SAM(model.parameters(), torch.optim.SGD)",
    "two for parts of the model": (
        "from muon import Muon\nfirst = Muon(model.a.parameters())\nsecond = torch.optim.AdamW(model.b.parameters())"
    ),
}


@pytest.mark.parametrize("body", UNKNOWN.values(), ids=UNKNOWN)
def test_another_optimizer_is_not_a_known_one(body: str, tmp_path: Path) -> None:
    assert optimizer(body, tmp_path) == "other"


NOT_SAID = {
    "by getattr": "opt = getattr(torch.optim, load())(model.parameters())",
    "by a function of a package": "from tools import create_optimizer\nopt = create_optimizer(args, model)",
    "by a condition that only running tells": """
        if load() == "adamw":
            opt = torch.optim.AdamW(model.parameters())
        else:
            opt = torch.optim.SGD(model.parameters(), 0.1)
    """,
}


@pytest.mark.parametrize("body", NOT_SAID.values(), ids=NOT_SAID)
def test_an_optimizer_that_the_text_does_not_say_is_unknown(body: str, tmp_path: Path) -> None:
    assert is_unknown(optimizer(body, tmp_path))  # type: ignore[arg-type]


# --- ... and what the text says is read ------------------------------------------------------------------------------

KNOWN = {
    "beside one of a single tensor": """
        def calibrate():
            scale = torch.nn.Parameter(torch.ones(1))
            fit = torch.optim.LBFGS([scale], lr=0.1)
            fit.step(lambda: 1)
        opt = torch.optim.AdamW(model.parameters())
        calibrate()
    """,
    "made twice": "opt = torch.optim.SGD(model.parameters(), 1)\nopt = torch.optim.AdamW(model.parameters())",
    "two of a kind": "a = torch.optim.AdamW(model.a.parameters())\nb = torch.optim.AdamW(model.b.parameters())",
    "under a condition, both times": """
        if load():
            opt = torch.optim.AdamW(model.parameters(), lr=1)
        else:
            opt = torch.optim.AdamW(model.parameters(), lr=2)
    """,
    "after a check of the files": """
        if not load():
            raise ValueError
        opt = torch.optim.AdamW(model.parameters())
    """,
    "an average of the weights is none": """
        from averages import ExponentialMovingAverage
        opt = torch.optim.AdamW(model.parameters())
        ema = ExponentialMovingAverage(model.parameters())
    """,
}


@pytest.mark.parametrize("body", KNOWN.values(), ids=KNOWN)
def test_the_optimizer_of_the_model(body: str, tmp_path: Path) -> None:
    assert optimizer(body, tmp_path) == "adamw"


BRANCHES = """
    if args.optimizer == "adamw":
        opt = torch.optim.AdamW(model.parameters())
    elif args.optimizer == "sgd":
        opt = torch.optim.SGD(model.parameters(), 0.1)
"""
TABLE = 'opt = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[args.optimizer](model.parameters())'


@pytest.mark.parametrize("body", [BRANCHES, TABLE])
@pytest.mark.parametrize("given", ["adamw", "sgd"])
def test_the_value_of_an_argument_chooses(body: str, given: str, tmp_path: Path) -> None:
    assert optimizer(body, tmp_path, optimizer=given) == given


# --- a Trainer that gets one ------------------------------------------------------------------------------------------

TRAINER = """
import transformers
model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
args = transformers.TrainingArguments("out", per_device_train_batch_size=4, optim="adafactor")
"""
HANDED_OVER = {
    "class Own(torch.optim.Optimizer): pass\nt = transformers.Trainer(model, args, optimizers=(Own(x), None))": "other",
    "o = torch.optim.SGD(model.parameters(), 1)\nt = transformers.Trainer(model, args, optimizers=(o, None))": "sgd",
    "t = transformers.Trainer(model, args, optimizer_cls_and_kwargs=(torch.optim.Adam, {}))": "adam",
    "t = transformers.Trainer(model, args, optimizers=(None, None))": "adafactor",
    "t = transformers.Trainer(model, args)": "adafactor",
}


@pytest.mark.parametrize(("body", "expected"), HANDED_OVER.items())
def test_the_optimizer_that_a_trainer_gets_wins(body: str, expected: str, tmp_path: Path) -> None:
    found = values(read_program(f"import torch\n{TRAINER}{body}\nt.train()\n", tmp_path))
    assert found["train.optimizer"] == expected


def test_an_optimizer_that_a_trainer_gets_from_elsewhere_is_unknown(tmp_path: Path) -> None:
    body = (
        "from tools import build\nt = transformers.Trainer(model, args, optimizers=(build(model), None))\nt.train()\n"
    )
    assert is_unknown(values(read_program(TRAINER + body, tmp_path))["train.optimizer"])
