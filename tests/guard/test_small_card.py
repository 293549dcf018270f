"""The card in small counts what is alive, raises past its budget, and shows what an exception holds."""

from __future__ import annotations

import pytest
import torch

from preflight import guard
from preflight.guard import small_card
from preflight.guard.small_card import SmallCard, size_of

MIB = 2**20


def test_no_size() -> None:
    with pytest.raises(ValueError, match="write 64MiB"):
        size_of("much")


def test_tensors_count_while_they_live() -> None:
    with SmallCard() as card:
        one = torch.zeros(MIB // 4)
        view = one.view(2, -1)
        assert card.live == MIB
        del one
        assert card.live == MIB
        del view
        assert (card.live, card.peak) == (0, MIB)
    assert small_card.current() is None


def test_sizes_are_rounded_to_blocks() -> None:
    with SmallCard() as card:
        one = torch.zeros(1)
        assert (card.live, card.requested) == (512, 4)
        del one


def test_it_raises_torchs_own_error_past_the_budget() -> None:
    with SmallCard("1MiB") as card, pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 2\.00 MiB"):
        torch.zeros(MIB // 2)
    assert card.ooms == 1
    assert card.live == 0


def test_modules_that_were_there_before_are_held() -> None:
    with SmallCard("1MiB") as card:
        card.hold(torch.nn.Linear(256, 256, bias=False))
        assert card.live in (0, 256 * 1024)  # the module is gone when nothing refers to it


def test_an_exception_holds_the_tensors_of_its_frames_until_it_is_freed() -> None:
    def step() -> None:
        kept = torch.zeros(MIB // 8)
        torch.zeros(MIB)
        del kept

    with SmallCard("1MiB") as card:
        error: BaseException | None = None
        try:
            step()
        except torch.OutOfMemoryError as found:
            error = found
        assert card.live == MIB // 2
        guard.free(error)
        assert card.live == 0


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.slow
def test_it_fires_in_forward_backward_and_optimizer(foreach: bool) -> None:
    seen = set()
    for budget in range(2, 40, 2):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        where = "forward"
        try:
            with SmallCard(budget * MIB) as card:
                card.hold(model)
                loss = model(torch.randn(1024, 256)).pow(2).mean()
                where = "backward"
                loss.backward()
                del loss
                where = "optimizer"
                optimizer.step()
        except torch.OutOfMemoryError:
            seen.add(where)
    assert {"forward", "backward"} <= seen
