"""A rehearsal leaves nothing behind: the run after it is bit for bit that of a program that has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from preflight.guard import rehearsal
from preflight.guard.small_card import SmallCard

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {}), ("AdamW", {"foreach": False}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("RMSprop", {}),
    ("Adagrad", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("ASGD", {}), ("Adafactor", {}),
]  # fmt: skip


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(*layers)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(16, 8, generator=made), torch.randint(0, 4, (16,), generator=made)


def trained(name: str, settings: dict[str, Any], rehearsed: bool, tmp_path: Path) -> list[torch.Tensor]:
    model = network()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **settings)

    def loss(part: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(part[0]), part[1])

    if rehearsed:
        rehearsal.rehearse(
            loss, batch(99), model, optimizer, validate=lambda: model.eval()(batch(98)[0]),
            save=lambda folder: torch.save(model.state_dict(), Path(folder) / "model.pt"),
        )  # fmt: skip
        assert not optimizer.state or name == "Adagrad"  # which makes its states at once
        assert model.training
    for number in range(3):
        optimizer.zero_grad()
        loss(batch(number)).backward()
        optimizer.step()
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize(("name", "settings"), OPTIMIZERS)
def test_the_run_after_it_is_the_same_to_the_bit(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    plain = trained(name, settings, False, tmp_path)
    after = trained(name, settings, True, tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(plain, after, strict=True))


def test_what_will_not_fit_dies_before_the_first_step() -> None:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    kept = [one.detach().clone() for one in model.parameters()]
    with SmallCard("256KiB") as card:
        card.hold(model)
        with pytest.raises(torch.OutOfMemoryError):
            rehearsal.rehearse(
                lambda part: model(part).mean(), torch.zeros(4, 64), model, optimizer,
                validate=lambda: model(torch.zeros(4096, 64)),
            )  # fmt: skip
        assert all(torch.equal(one, other) for one, other in zip(kept, model.parameters(), strict=True))
        assert not optimizer.state


def test_states_that_are_there_stay() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 4)).sum().backward()
    optimizer.step()
    rehearsal.dry_step(optimizer)
    assert {int(of["step"]) for of in optimizer.state.values()} == {1}


def test_gradients_that_are_there_are_refused() -> None:
    model = torch.nn.Linear(4, 4)
    model(torch.zeros(1, 4)).sum().backward()
    with pytest.raises(ValueError, match="before the first step"):
        rehearsal.rehearse(
            lambda part: model(part).sum(), torch.zeros(1, 4), model, torch.optim.SGD(model.parameters())
        )


class Texts(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((index * 7 % 10 + 1,), index)


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def test_the_longest_samples_are_the_worst_batch() -> None:
    loader = torch.utils.data.DataLoader(Texts(), batch_size=3, collate_fn=padded)
    assert rehearsal.worst_batch(loader, len).shape == (3, 10)
    with pytest.raises(ValueError, match="state length="):
        rehearsal.worst_batch(loader)
    data: Any = loader.dataset
    data.lengths = [len(data[index]) for index in range(10)]
    assert rehearsal.worst_batch(loader).shape == (3, 10)
    with pytest.raises(ValueError, match="no batches"):
        rehearsal.worst_batch(torch.utils.data.DataLoader(Texts(), batch_size=None))
