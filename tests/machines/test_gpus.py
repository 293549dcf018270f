from __future__ import annotations

import pytest

from preflight.machines import gpus as room

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("RTX 3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("rtx_3090", "RTX 3090"),
        ("3090", "RTX 3090"),
        ("RTX3080Ti", "RTX 3080 Ti"),
        ("A100-80GB", "A100 80GB"),
        ("a100_80gb", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A800-SXM4-80GB", "A100 80GB"),
        ("Tesla V100-SXM2-32GB", "V100 32GB"),
        ("v100-32g", "V100 32GB"),
        ("l40s", "L40S"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("RTX 4080", "RTX 4080"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("Quadro RTX 8000", "Quadro RTX 8000"),
        ("A100m40", "A100 40GB"),
        ("a100m80", "A100 80GB"),
        ("a100_80", "A100 80GB"),
        ("a100_3g.20gb", "A100 MIG 3g.20gb"),
        ("nvidia_h100_1g.10gb", "H100 MIG 1g.10gb"),
        ("nvidia_h100_80gb_hbm3_3g.40gb", "H100 MIG 3g.40gb"),
        ("nvidia_a100-sxm4-40gb_3g.20gb", "A100 MIG 3g.20gb"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
    ],
)
def test_names_as_people_and_drivers_write_them(name: str, gpu: str) -> None:
    found = room.find_gpu(name)
    assert found is not None
    assert found.name == gpu


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu",
        "NVIDIA",
        "RTX 4080 Laptop GPU",
        "RTX 7000",
        "RTX 3080 Max-Q",
        "cpu",
        "gpu80",
        "80",
        "a100m99",
        "nvidia_h100_80gb_hbm3_9g.99gb",
    ],
)
def test_another_card_is_never_taken_for_a_known_one(name: str) -> None:
    assert room.find_gpu(name) is None


def test_an_ambiguous_name_means_the_smaller_card_and_says_so() -> None:
    found = room.find_gpu("a100")
    assert found is not None
    assert found.name == "A100 40GB"
    assert room.ambiguity("a100") == "a100 can be A100 40GB or A100 80GB; A100 40GB is assumed, the smaller"
    assert room.ambiguity("A100-80GB") is None


def test_capacities_are_what_cuda_reports_not_the_nameplate() -> None:
    found = room.find_gpu("RTX 3090")
    assert found is not None
    assert found.capacity == round(23.56 * GIB)
    for gpu in room.gpus():
        assert gpu.context[0] <= gpu.context[1] <= gpu.context[2], gpu.name
        assert gpu.nccl[0] <= gpu.nccl[1] <= gpu.nccl[2], gpu.name
        assert gpu.source, gpu.name
        assert room.candidates(gpu.name)[0] == gpu, gpu.name


def test_nearest_names_help_with_a_typo() -> None:
    assert "RTX 3090" in room.nearest("RTX 3900")
    assert room.nearest("zzzzzz") == ()


def test_the_smallest_that_fits_counts_each_cards_own_context() -> None:
    by_total = room.smallest_that_fits(round(14.5 * GIB))
    assert by_total is not None
    assert by_total.name == "T4"
    without_context = room.smallest_that_fits(lambda gpu: round(14.5 * GIB) + gpu.context[2])
    assert without_context is not None
    assert without_context.capacity > by_total.capacity
    assert room.smallest_that_fits(10**13) is None
    slices = room.smallest_that_fits(4 * GIB)
    assert slices is not None
    assert "MIG" not in slices.name
