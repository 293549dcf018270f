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
