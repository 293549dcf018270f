"""transformers' Trainer on a card in small: the same weights as on a large one, or refused with a reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from preflight.guard import hf_trainer
from preflight.guard.halving import CannotHalve
from preflight.guard.small_card import SmallCard

pytestmark = pytest.mark.slow

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 500,
    "num_key_value_heads": 2,
}  # fmt: skip


def rows(tokens: bool) -> list[dict[str, torch.Tensor]]:
    made = torch.Generator().manual_seed(1)
    found = []
    for number in range(32):
        ids = torch.randint(0, 500, (64,), generator=made)
        labels = torch.where(torch.arange(64) < 5 + number, ids, -100) if tokens else torch.tensor(number % 2)
        found.append({"input_ids": ids, "labels": labels})
    return found


def trained(tmp_path: Path, causal: bool, budget: str | None, accumulation: int = 1, **more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if causal:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **more))
    else:
        known = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
        config = transformers.BertConfig(**known, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = transformers.BertForSequenceClassification(config)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, report_to=[], use_cpu=True, seed=3,
        gradient_accumulation_steps=accumulation, optim="sgd", learning_rate=0.1, save_strategy="no",
    )  # fmt: skip
    given = transformers.Trainer(model, arguments, train_dataset=rows(causal))
    if budget is None:
        given.train()
        return given
    with SmallCard(budget) as card:
        card.hold(model)
        hf_trainer.trainer(given).train()
    return given


@pytest.mark.parametrize(
    ("causal", "accumulation", "budget"), [(True, 1, "4MiB"), (True, 2, "4MiB"), (False, 1, "0.9MiB")]
)
def test_it_ends_with_the_weights_of_a_large_card(
    tmp_path: Path, causal: bool, accumulation: int, budget: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trained(tmp_path, causal, None, accumulation)
    halved = trained(tmp_path, causal, budget, accumulation)
    assert "parts from here on" in capsys.readouterr().err
    for one, other in zip(plain.model.parameters(), halved.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=2e-6)
    losses = [[row["loss"] for row in of.state.log_history if "loss" in row] for of in (plain, halved)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"auto_find_batch_size": True}, "starts the training again itself"),
        ({"world_size": 2}, "several GPUs"),
    ],
)
def test_what_cannot_be_halved_is_only_recorded(
    changed: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fake:
        args = SimpleNamespace(**{"auto_find_batch_size": False, "world_size": 1, "n_gpu": 1, **changed})
        accelerator = model = compute_loss = _prepare_inputs = None

        def __init__(self) -> None:
            self.callbacks: list[Any] = []

        def add_callback(self, callback: Any) -> None:
            self.callbacks.append(callback)

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> None:
            raise AssertionError

    given = Fake()
    real = given.training_step
    assert hf_trainer.trainer(given) is given
    assert given.training_step == real
    assert len(given.callbacks) == 1
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1


def test_a_version_that_is_not_known_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    class Other:
        def training_step(self, inputs: Any) -> None: ...

    hf_trainer.trainer(Other())
    assert "has no compute_loss" in capsys.readouterr().err


def test_experts_that_are_balanced_over_the_batch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotHalve, match="balances the experts"):
        trained(tmp_path, True, "4MiB", output_router_logits=True)
