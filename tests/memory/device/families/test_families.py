"""Which family a model is of."""

from __future__ import annotations

import pytest

from preflight.memory.device.families import FAMILIES, Config, family_of

PHI3: Config = {"hidden_size": 3072, "num_attention_heads": 24}


@pytest.mark.parametrize(
    ("architecture", "config", "family"),
    [
        ("falcon", {"new_decoder_architecture": True}, "falcon-grouped"),
        ("falcon", {"new_decoder_architecture": False, "multi_query": True}, "falcon"),
        ("phi3", PHI3, "phi3"),
        ("phi3", {**PHI3, "partial_rotary_factor": 0.75}, None),
        ("qwen3_moe", {"mlp_only_layers": None}, "qwen3_moe"),
        ("qwen3_moe", {"mlp_only_layers": [0, 1]}, None),
        ("bloom", {}, None),
    ],
)
def test_the_config_decides_where_a_type_has_several(architecture: str, config: Config, family: str | None) -> None:
    found = family_of(architecture, config)
    assert (found.name if found is not None else None) == family


@pytest.mark.parametrize(
    ("name", "dims", "part"),
    [
        ("llama", {"a": 32, "k": 32}, {"grouped": False}),
        ("llama", {"a": 32, "k": 8}, {"grouped": True}),
        ("gemma", {"a": 8, "k": 1}, {"grouped": "one"}),
        ("gpt_neox", {"d": 64, "R": 16}, {"rotary": False}),
        ("gpt_neox", {"d": 64, "R": 64}, {"rotary": "whole"}),
        ("electra", {"a": 12, "d": 64, "E": 768}, {"embedding": "width"}),
    ],
)
def test_dimensions_that_coincide_are_part_of_the_key(name: str, dims: dict[str, int], part: dict[str, object]) -> None:
    assert FAMILIES[name].coinciding(dims) == part


def test_what_coincides_is_no_dimension_of_its_own() -> None:
    family = FAMILIES["stablelm"].at({"grouped": False, "rotary": "whole"})
    assert not {"k", "R"} & set(family.named)
    config = family.config({"a": 4, "d": 16, "f": 30, "V": 90, "L": 2})
    assert config["num_key_value_heads"] == 4
    assert config["partial_rotary_factor"] == 1.0
