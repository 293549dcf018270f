"""The table of transformers' and TRL's defaults: against the classes of the installed releases, and by release."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import MISSING, fields
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from preflight.frameworks.library_defaults import (
    arguments_at,
    in_use,
    library_arguments,
    model_config_at,
    older_names,
    table,
)
from preflight.vocabulary.values import Const

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import make_defaults  # noqa: E402


def installed(library: str) -> str:
    try:
        found = version(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed: its classes cannot be compared with the table")
    newest = table()["releases"][library][-1]
    if tuple(map(int, found.split(".")[:2])) > tuple(map(int, newest.split(".")[:2])):
        pytest.skip(f"{library} {found} is newer than {newest}, the last release that the table was made from")
    return found


@pytest.mark.parametrize(
    ("library", "flavour"),
    [
        pytest.param(library, flavour, marks=pytest.mark.integration if library == "trl" else ())
        for library, kinds in make_defaults.CLASSES.items()
        for flavour in kinds
    ],
)
def test_the_table_says_what_the_installed_class_says(library: str, flavour: str) -> None:
    release = installed(library)
    name, kept = make_defaults.CLASSES[library][flavour]
    home = importlib.import_module(library)
    if not hasattr(home, name):
        pytest.skip(f"{library} {release} has no {name}")
    found = {field.name: field.default for field in fields(getattr(home, name))}
    told = model_config_at(release) if flavour == "model" else arguments_at(flavour, version("transformers"), release)
    for argument in kept:
        if argument not in found or argument not in told:
            continue
        default = found[argument].value if isinstance(found[argument], Enum) else found[argument]
        assert told[argument].default == (None if default is MISSING else default), argument


@pytest.mark.parametrize(
    ("flavour", "transformers", "trl", "name", "default"),
    [
        ("transformers", "4.28.1", None, "optim", "adamw_hf"),
        ("transformers", "4.57.1", None, "optim", "adamw_torch"),
        ("transformers", None, None, "optim", "adamw_torch_fused"),
        ("sft", None, "0.9.6", "max_length", None),
        ("sft", None, None, "max_length", 1024),
        ("grpo", None, "0.14.0", "per_device_train_batch_size", 1),
        ("grpo", None, "0.16.1", "per_device_train_batch_size", 8),
        ("grpo", None, "0.17.0", "beta", 0.04),
        ("grpo", None, None, "beta", 0.0),
        ("grpo", None, "0.19.1", "vllm_mode", "server"),
        ("grpo", None, None, "vllm_mode", "colocate"),
        ("no trainer of TRL", None, None, "gradient_checkpointing", True),
    ],
)  # fmt: skip
def test_a_default_is_that_of_the_release(
    flavour: str, transformers: str | None, trl: str | None, name: str, default: object
) -> None:
    assert arguments_at(flavour, transformers, trl)[name].default == default


def test_an_argument_of_older_releases_is_known_where_no_release_is_stated() -> None:
    assert "max_prompt_length" not in arguments_at("grpo", None, "1.16.0")
    assert arguments_at("grpo", None)["max_prompt_length"].default is None


def test_older_names_of_arguments_count() -> None:
    args = library_arguments({"evaluation_strategy": Const("epoch")}, "transformers", None)
    assert args.value("eval_strategy") == "epoch"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("bool", ("bool", False)), ("bool | None", ("bool", True)), ("Optional[bool]", ("bool", True)),
        ("Union[str, IntervalStrategy]", ("str", False)), ("float | int", ("float", False)), ("int", ("int", False)),
        ("dict[str, Any] | str | None", ("str", True)), ("Optional[Union[bool, str]]", ("str", True)),
    ],
)  # fmt: skip
def test_the_type_of_a_flag(annotation: str, expected: tuple[str, bool]) -> None:
    node = make_defaults.ast.parse(annotation, mode="eval").body
    assert make_defaults.type_of(node) == expected


def test_the_table_is_written_as_the_script_writes_it() -> None:
    text = make_defaults.TABLE.read_text("utf-8")
    assert "".join(make_defaults.lines(json.loads(text))) == text


def test_releases_before_the_oldest_that_was_read_take_what_that_one_takes() -> None:
    assert "per_gpu_train_batch_size" in older_names("transformers", in_use("3.4.0", None))
    assert "per_gpu_train_batch_size" not in older_names("transformers", in_use("5.0.0", None))
