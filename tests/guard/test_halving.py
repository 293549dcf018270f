"""Steps and evaluations in parts: refused where that is another run, exact where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from preflight.guard.halving import CannotHalve, evaluate, step
from preflight.guard.memory_errors import classify
from preflight.guard.small_card import SmallCard

Batch = tuple[torch.Tensor, torch.Tensor]
MIB = 2**20


def network(*more: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), *more, torch.nn.ReLU(), torch.nn.Linear(256, 10))


def batch(seed: int = 1, size: int = 4096) -> Batch:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(size, 64, generator=made), torch.randint(0, 10, (size,), generator=made)


def loss_of(model: torch.nn.Module) -> Callable[[Batch], torch.Tensor]:
    return lambda part: torch.nn.functional.cross_entropy(model(part[0]), part[1])


@contextmanager
def on_card(budget: str, *held: object) -> Iterator[None]:
    with SmallCard(budget) as card:
        card.hold(*held)
        yield


@pytest.mark.parametrize(
    ("model", "loss", "why"),
    [
        (network(torch.nn.BatchNorm1d(256)), None, "batch normalisation"),
        (network(), lambda model: lambda part: (one := model(part[0])).mm(one.T).softmax(0).diag().mean(), "compares"),
        (network(), lambda model: lambda part: model(part[0]).pow(2).sum(), "the mean of its halves"),
        (network(), lambda model: lambda part: (model(part[0]) * torch.rand(1)).mean(), "random"),
        (network(), lambda model: lambda part: model(part[0]).reshape(4096, 10).mean(), "computed alone"),
    ],
)  # fmt: skip
def test_what_would_be_another_run_is_refused(model: torch.nn.Module, loss: Any, why: str) -> None:
    modes = [one.training for one in model.modules()]
    given = batch()
    with on_card("5MiB", model), pytest.raises(CannotHalve, match=why):
        step((loss or loss_of)(model), given, model)
    assert [one.training for one in model.modules()] == modes


@pytest.mark.parametrize(
    ("given", "why"), [((torch.zeros(9, 64), torch.zeros(8, dtype=torch.long)), "8 and 9 samples"), ("text", "no part")]
)
def test_what_has_no_samples_is_not_split(given: Any, why: str) -> None:
    model = network()

    def full(_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(CannotHalve, match=why):
        step(full, given, model)


@pytest.mark.parametrize("error", [ValueError("out of memory"), KeyboardInterrupt()])
def test_other_errors_pass(error: BaseException) -> None:
    def fails(_: Any) -> torch.Tensor:
        raise error

    with pytest.raises(type(error)):
        step(fails, batch(), network())


def test_an_error_after_which_nothing_is_certain_is_no_reason_to_go_on() -> None:
    def fails(_: Any) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory")

    with pytest.raises(CannotHalve, match="cannot go on"):
        step(fails, batch(), network())


def test_never_after_an_optimizer_step_that_stopped_half_way() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    step(loss_of(model), batch(size=8), model, optimizer)
    with SmallCard("0.2MiB") as card:
        card.hold(model)
        with pytest.raises(torch.OutOfMemoryError):
            optimizer.step()
    with pytest.raises(CannotHalve, match="half-way"):
        step(loss_of(model), batch(size=8), model, optimizer)


def test_one_sample_that_does_not_fit_is_the_end() -> None:
    model = network()
    given = batch(size=4)
    with on_card("0.1MiB", model), pytest.raises(CannotHalve, match="as few as they may be"):
        step(loss_of(model), given, model, same_run=True)


def trained(
    budget: str | None, accumulated: int = 1, scaled: bool = False, **options: Any
) -> tuple[list[torch.Tensor], float]:
    """Parameters after some steps, and the last loss."""
    model = network(torch.nn.LayerNorm(256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    loss = 0.0
    with SmallCard(budget) as card:
        card.hold(model)
        for number in range(3):
            optimizer.zero_grad()
            for turn in range(accumulated):
                loss = step(loss_of(model), batch(10 * number + turn), model, optimizer, scaler=scaler, **options)
            if scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
    return [one.detach().clone() for one in model.parameters()], loss


@pytest.mark.parametrize("options", [{}, {"accumulated": 3}, {"scaled": True}, {"count": lambda part: len(part[1])}])
@pytest.mark.slow
def test_parts_are_the_whole(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    whole, loss = trained(None, **options)
    assert "parts" not in capsys.readouterr().err
    parts, same = trained("6MiB", **options)
    assert "parts" in capsys.readouterr().err
    assert same == pytest.approx(loss, rel=1e-5)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-6)


def test_tokens_count_as_they_are_counted() -> None:
    """A mean over tokens: parts with other numbers of tokens weigh by them."""
    labels = torch.full((1024, 16), -100)
    labels[:300, :9] = 1
    labels[300:, :2] = 2
    inputs = torch.randn(1024, 16, 64, generator=torch.Generator().manual_seed(0))

    def gradients(budget: str | None, **options: Any) -> list[torch.Tensor]:
        model = network()

        def loss(part: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(model(part["x"]).flatten(0, 1), part["labels"].flatten())

        with SmallCard(budget) as card:
            card.hold(model)
            step(loss, {"x": inputs, "labels": labels}, model, **options)
        return [one.grad for one in model.parameters() if one.grad is not None]

    for one, other in zip(
        gradients(None), gradients("24MiB", count=lambda part: (part["labels"] != -100).sum()), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
    with pytest.raises(CannotHalve, match="weighted by something else"):
        gradients("24MiB")


def test_random_numbers_are_those_of_a_step_that_did_not_fail() -> None:
    """Dropout draws in the same order: a split step ends with the state of one that was split from the start."""
    states = []
    for first in (None, "9MiB"):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Dropout(0.5), torch.nn.Linear(256, 10))
        with SmallCard(first) as card:
            card.hold(model)
            torch.manual_seed(4)
            if first is None:
                for half in (0, 1):
                    part = tuple(one[2048 * half : 2048 * (half + 1)] for one in batch())
                    step(loss_of(model), part, model)
            else:
                step(loss_of(model), batch(), model)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_an_evaluation_halves_its_own_batch_and_keeps_the_order() -> None:
    model = network()
    inputs = batch()[0]
    with torch.no_grad():
        whole = model(inputs)
    with SmallCard("4MiB") as card:
        card.hold(model, inputs)
        found = evaluate(lambda part: {"logits": model(part), "ids": list(range(len(part)))}, inputs)
    torch.testing.assert_close(found["logits"], whole)
    assert len(found["ids"]) == len(inputs)
    with on_card("4MiB", model, inputs), pytest.raises(ValueError, match="one number"):
        evaluate(lambda part: model(part).mean(), inputs)


def test_what_it_raises_is_still_out_of_memory() -> None:
    """An objective that calls `guard.step` is pruned, and `find_batch_size` goes on with less."""
    model = network(torch.nn.BatchNorm1d(256))
    with on_card("5MiB", model), pytest.raises(CannotHalve) as error:
        step(loss_of(model), batch(), model)
    found = classify(error.value)
    assert found is not None
    assert (found.kind, found.recoverable) == ("allocator", True)
    assert classify(CannotHalve("the last optimizer step stopped half-way")) is None
