"""Cards that cannot compute a job are not named for it, whatever fits into them."""

from __future__ import annotations

import pytest

from preflight.machines.gpus import GIB, abilities, find_gpu, smallest_that_fits
from preflight.vocabulary.job import Job


def job(**train: object) -> Job:
    return Job.model_validate({"train": train})


@pytest.mark.parametrize(
    ("train", "asks"),
    [
        ({"precision": "fp32"}, set()),
        ({"precision": "fp16-mixed", "weights_dtype": "fp16"}, set()),
        ({"precision": "fp32", "quantization": {"type": "none", "compute_dtype": "bf16"}}, set()),
        ({"precision": "bf16-mixed"}, {"bf16"}),
        ({"precision": "fp16-mixed", "weights_dtype": "bf16"}, {"bf16"}),
        ({"precision": "fp16-mixed", "quantization": {"type": "nf4", "compute_dtype": "bf16"}}, {"bf16"}),
        ({"precision": "fp16-mixed", "attention": "flash"}, {"flash"}),
    ],
)
def test_what_a_job_asks_of_its_card(train: dict[str, object], asks: set[str]) -> None:
    assert set(abilities(job(**train))) == asks


def test_no_card_is_named_that_lacks_the_precision() -> None:
    need = 13 * GIB
    old, new = (smallest_that_fits(need, job(precision=one)) for one in ("fp16-mixed", "bf16-mixed"))
    assert old is not None
    assert new is not None
    assert old.compute_capability < (8, 0) <= new.compute_capability
    turing = find_gpu("T4")
    assert turing is not None
    assert turing.capacity >= need  # it is large enough, and has no bf16
