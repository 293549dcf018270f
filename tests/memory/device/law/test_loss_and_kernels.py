"""What Liger replaces, by the type of the model."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from preflight.memory.device.estimate import estimate
from preflight.memory.device.law import loss_and_kernels
from preflight.memory.device.resolve import resolve
from preflight.vocabulary.job import Job, build
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Unknown

sys.path.insert(0, str(Path(__file__).parents[4] / "scripts"))

import make_liger_table

EVERY = ("liger", "norm", "rope", "mlp")
SOURCE = """
def apply_liger_kernel_to_llama(rope: bool = True, cross_entropy: bool = False, rms_norm: bool = True,
                                swiglu: bool = True, fused_linear_cross_entropy: bool = True, model=None): ...
def apply_liger_kernel_to_other(rope: bool = False, geglu: bool = True, fused_linear_cross_entropy: bool = False): ...
MODEL_TYPE_TO_APPLY_LIGER_FN = {"llama": apply_liger_kernel_to_llama, "other": apply_liger_kernel_to_other}
"""


def job(name: str, **more: object) -> Job:
    stated = {
        "train.batch_size": 8,
        "train.seq_len": 1024,
        "train.precision": "bf16",
        "train.gradient_checkpointing": False,
    }
    return build({**stated, "model.name": name, **more})


@pytest.mark.parametrize(
    ("asked", "loss", "model_type", "found"),
    [
        (EVERY, "fused", "llama", (("mlp", "norm", "rope"), "fused")),
        (EVERY, "fused", "gpt2", ((), "full")),
        (EVERY, "fused", None, ((), "full")),
        (EVERY, "fused", "granite", (("mlp", "norm", "rope"), "full")),
        (("liger", "norm"), "full", "llama", (("norm",), "full")),
        (("rope", "norm"), "fused", "gpt2", (("norm", "rope"), "fused")),
        ((), "chunked", "llama", ((), "chunked")),
    ],
)
def test_what_a_model_really_has(
    asked: tuple[str, ...], loss: str, model_type: str | None, found: tuple[tuple[str, ...], str]
) -> None:
    assert loss_and_kernels.applied(asked, loss, model_type) == found


def test_the_table_follows_the_source() -> None:
    found = make_liger_table.replaced_by(ast.parse(SOURCE))
    assert found == {"llama": ["loss", "mlp", "norm", "rope"], "other": ["mlp"]}


def test_the_table_is_that_of_the_installed_release() -> None:
    try:
        release = version("liger_kernel")
    except PackageNotFoundError:
        pytest.skip("liger-kernel is not installed")
    if f"liger-kernel {release}," not in loss_and_kernels.TABLE.read_text(encoding="utf-8"):
        pytest.skip(f"liger-kernel {release} is not the release that the table was made from")
    assert loss_and_kernels.replaced() == make_liger_table.replaced()


def test_a_model_that_liger_does_not_know_has_all_logits() -> None:
    plain, asked = (
        estimate(job("gpt2", **more), None)
        for more in ({}, {"train.loss": "fused", "train.fused_kernels": list(EVERY)})
    )
    assert not isinstance(plain, Unknown)
    assert not isinstance(asked, Unknown)
    assert asked.requested == plain.requested
    assert any("Liger has no kernels" in note for note in asked.notes)


@pytest.mark.slow
def test_without_torch_the_interval_reaches_down_to_the_kernels() -> None:
    """The shipped law has none; the traced one, which is lower, lies inside."""
    pytest.importorskip("torch")
    asked = job("meta-llama/Llama-3.2-1B", **{"train.fused_kernels": list(EVERY)})
    resolved = resolve(asked)
    assert not isinstance(resolved, Unknown)
    assert resolved.setup.kernels == ("mlp", "norm", "rope")
    traced = estimate(asked, None)
    shipped = estimate(asked, None, SHIPPED_ONLY)
    assert not isinstance(traced, Unknown)
    assert not isinstance(shipped, Unknown)
    assert shipped.requested.low <= traced.requested.expected < shipped.requested.expected
