"""A model of a library that is named by hand: a name that the library lacks is refused, with the nearest one."""

from __future__ import annotations

import pytest

from preflight.engine.estimator import refuse_unknown_model
from preflight.vocabulary.errors import UsageError


@pytest.mark.parametrize("target", ["torchvision:resnet50", "timm:vit_base_patch16_224.augreg_in21k", "package.Model"])
def test_a_target_that_may_exist_is_taken(target: str) -> None:
    refuse_unknown_model({"model.target": target}, "", UsageError)


def test_a_name_with_a_stated_size_is_taken() -> None:
    refuse_unknown_model({"model.target": "timm:resnet5", "model.parameters": 10}, "", UsageError)


@pytest.mark.parametrize("target", ["torchvision:resnet5", "timm:resnet5"])
@pytest.mark.parametrize("field", ["model.target", "model.name"])
def test_a_mistyped_target_is_refused(target: str, field: str) -> None:
    with pytest.raises(UsageError, match=r'has no model resnet5 \(did you mean "resnet50"\?\)'):
        refuse_unknown_model({field: target}, "", UsageError)
