"""When a dry run has seen enough."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize(("trained", "gradients", "ends"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_long_work_without_gradients_ends_a_run_that_has_trained(trained: bool, gradients: bool, ends: int) -> None:
    from preflight.dryrun.inside.loops import LOOKS, Loops
    from preflight.dryrun.inside.settings import Settings
    from preflight.dryrun.inside.tape import Tape

    said: list[str] = []
    loops = Loops(Settings(after=-1.0), Tape(), said.append)
    loops.trained_at = 0.0 if trained else None
    layer = torch.nn.Identity()
    with torch.set_grad_enabled(gradients):
        for _ in range(LOOKS):
            loops.entered(layer)
            loops.left(layer)
    assert len(said) == ends


def test_the_batch_of_a_loader_with_a_sampler_of_batches() -> None:
    """accelerate makes the loader of a Trainer anew in this way."""
    from preflight.dryrun.inside.loops import Loops
    from preflight.dryrun.inside.settings import Settings
    from preflight.dryrun.inside.tape import Tape

    class Loader(torch.utils.data.DataLoader):
        pass

    loops = Loops(Settings(), Tape(), lambda _: None)
    made = Loader.__init__
    Loader.__init__ = lambda loader, *args, **kwargs: loops.made(made, loader, *args, **kwargs)
    batches = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(range(64)), 8, False)
    facts = [Loader(range(64), **given)._dry_fact for given in ({"batch_sampler": batches}, {"batch_size": 4}, {})]
    assert [fact["batch_size"] for fact in facts] == [8, 4, 1]
