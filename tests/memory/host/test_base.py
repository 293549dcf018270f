"""What a process takes before it loads data: parts that add up, whatever brings them."""

from __future__ import annotations

import pytest

from preflight.memory.host.base import PARTS, base_of, bytes_of, parts_of

MIB = 2**20


def test_a_part_counts_once_whoever_brings_it() -> None:
    alone, both = base_of(["torch", "lightning"], False), base_of(["lightning", "pytorch_lightning", "torch"], False)
    assert alone == both
    assert parts_of(["trl", "accelerate"], False) == parts_of(["trl"], False)


def test_an_optimizers_step_imports_the_compiler() -> None:
    step = base_of(["torch"], True).expected - base_of(["torch"], False).expected
    assert step == PARTS["dynamo"]
    assert base_of(["transformers"], True) == base_of(["transformers"], False)


def test_pandas_and_scipy_share_a_part() -> None:
    together = bytes_of(frozenset({"torch", "pandas", "scipy"}))
    assert together < PARTS["torch"] + PARTS["pandas"] + PARTS["scipy"]


@pytest.mark.parametrize("packages", [[], ["torch"], ["transformers"], ["lightning", "datasets"], ["nobody.knows"]])
def test_ends_are_in_order(packages: list[str]) -> None:
    found = base_of(packages, False)
    assert 140 * MIB < found.low <= found.expected <= found.high < 560 * MIB


def test_a_build_for_cuda_is_larger_and_may_be_what_the_processor_runs() -> None:
    processor, gpu = base_of(["torch"], False), base_of(["torch"], False, cuda=True)
    assert gpu.expected - processor.expected == PARTS["cuda build"]
    assert processor.high == gpu.high
