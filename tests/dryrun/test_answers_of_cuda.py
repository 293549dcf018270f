"""torch.cuda answers a dry run as the stated GPU would."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize(("capability", "native"), [((7, 5), False), ((8, 0), True)])
def test_an_older_gpu_emulates_bfloat16(capability: tuple[int, int], native: bool) -> None:
    """A T4 makes tensors of the type, and accelerate trains in it."""
    from preflight.dryrun.inside.cuda import _answers
    from preflight.dryrun.inside.settings import Settings
    from preflight.dryrun.inside.tape import Tape

    supported = _answers(Settings(capability=capability), Tape())["is_bf16_supported"]
    assert supported()
    assert supported(including_emulation=False) is native
