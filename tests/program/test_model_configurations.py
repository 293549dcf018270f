"""Configurations that a program changes before it makes a model, and vocabularies that it resizes."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from calls_as_text import HEAD
from programs_as_text import is_unknown, read_program, values

from preflight.vocabulary.values import Value


def told(body: str, tmp_path: Path, **given: Value) -> dict[str, Value]:
    return values(read_program(f"{HEAD}import transformers\n{dedent(body)}", tmp_path), given)


READ = 'config = transformers.AutoConfig.from_pretrained("gpt2")\n'
MAKE = "model = transformers.AutoModelForCausalLM.from_config(config)\n"
CHANGES = {
    "an attribute": READ + "config.n_layer = 2\n" + MAKE,
    "setattr": READ + 'setattr(config, "n_layer", 2)\n' + MAKE,
    "update": READ + 'config.update({"n_layer": 2})\n' + MAKE,
    "an argument": 'config = transformers.AutoConfig.from_pretrained("gpt2", n_layer=2)\n' + MAKE,
    "given to from_pretrained": (
        READ + 'config.n_layer = 2\nm = transformers.AutoModelForCausalLM.from_pretrained("gpt2", config=config)\n'
    ),
}


@pytest.mark.parametrize("body", CHANGES.values(), ids=CHANGES)
def test_a_changed_configuration_is_not_the_hubs(body: str, tmp_path: Path) -> None:
    found = told(body, tmp_path)
    assert (found["model.name"], found["model.config.n_layer"]) == ("gpt2", 2)


def test_a_change_by_an_argument_has_its_value(tmp_path: Path) -> None:
    body = READ + "config.n_layer = args.accum\n" + MAKE
    assert told(body, tmp_path, accum=3)["model.config.n_layer"] == 3


def test_a_change_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert is_unknown(told(READ + "config.vocab_size = len(tokenizer)\n" + MAKE, tmp_path)["model.config.vocab_size"])


def test_the_width_of_a_head_does_not_follow_the_sizes(tmp_path: Path) -> None:
    found = told(READ + "config.hidden_size = 64\n" + MAKE, tmp_path)
    assert is_unknown(found["model.config.head_dim"])
    stated = told(READ + "config.hidden_size = 64\nconfig.head_dim = 8\n" + MAKE, tmp_path)
    assert stated["model.config.head_dim"] == 8


@pytest.mark.parametrize("change", ["use_cache = False", "pad_token_id = 7", "num_labels = 3", "_attn = 1"])
def test_what_sizes_nothing_is_no_change(change: str, tmp_path: Path) -> None:
    found = told(f"{READ}config.{change}\n{MAKE}", tmp_path)
    assert not [field for field in found if field.startswith("model.config.")]


UNREAD = {
    "a class of the project": "class Mine(transformers.LlamaConfig): pass\nconfig = Mine(hidden_size=64)\n",
    "arguments that are not known": "config = transformers.LlamaConfig(hidden_size=64, **load())\n",
}


@pytest.mark.parametrize("body", UNREAD.values(), ids=UNREAD)
def test_a_configuration_that_is_not_read_is_unknown(body: str, tmp_path: Path) -> None:
    found = told(body + "model = transformers.LlamaForCausalLM(config)\n", tmp_path)
    assert is_unknown(found["model.architecture"])


def test_attributes_of_a_configuration_that_is_made(tmp_path: Path) -> None:
    body = "config = transformers.LlamaConfig(hidden_size=64)\nconfig.num_hidden_layers = 3\n"
    found = told(body + "model = transformers.LlamaForCausalLM(config)\n", tmp_path)
    assert (found["model.config.hidden_size"], found["model.config.num_hidden_layers"]) == (64, 3)


BY_TYPE = """
if args.model is None:
    config = transformers.CONFIG_MAPPING[args.kind]()
    if args.text is not None:
        config.update_from_string(args.text)
    {more}
else:
    config = transformers.AutoConfig.from_pretrained(args.model)
if args.model is None:
    model = transformers.AutoModelForCausalLM.from_config(config)
else:
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, config=config)
"""
PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--kind", default="gpt2")
parser.add_argument("--model")
parser.add_argument("--text")
args = parser.parse_args()
"""


def by_type(tmp_path: Path, more: str = "pass", **given: Value) -> dict[str, Value]:
    return told(PARSER + BY_TYPE.format(more=more), tmp_path, **given)


@pytest.mark.parametrize(("given", "kind"), [({}, "gpt2"), ({"kind": "opt"}, "opt")])
def test_a_configuration_by_its_type_has_the_defaults_of_its_class(
    given: dict[str, Value], kind: str, tmp_path: Path
) -> None:
    found = by_type(tmp_path, **given)
    assert (found["model.architecture"], found["model.config.model_type"]) == (kind, kind)
    assert found.get("model.name") is None


def test_a_model_that_is_named_is_not_made_by_its_type(tmp_path: Path) -> None:
    found = by_type(tmp_path, model="gpt2-medium")
    assert (found["model.name"], found.get("model.architecture")) == ("gpt2-medium", None)


def test_a_text_that_changes_a_configuration_is_not_read(tmp_path: Path) -> None:
    assert is_unknown(by_type(tmp_path, text="n_layer=3")["model.architecture"])


def test_what_is_set_later_is_not_the_classs(tmp_path: Path) -> None:
    assert by_type(tmp_path, "config.n_layer = 3")["model.config.n_layer"] == 3
    assert is_unknown(by_type(tmp_path, "config.n_layer = measure()")["model.config.n_layer"])


def test_a_class_without_arguments_has_its_defaults(tmp_path: Path) -> None:
    made = "model = transformers.GPT2LMHeadModel(transformers.GPT2Config({}))\n"
    assert told(made.format(""), tmp_path)["model.config.model_type"] == "gpt2"
    assert "model.config.model_type" not in told(made.format("n_layer=measure()"), tmp_path)


LOADED = 'model = transformers.AutoModelForCausalLM.from_pretrained("gpt2")\n'
UNKNOWN_SIZE = {
    "a list that is not known": "tok.add_tokens(load())\n",
    "many": "tok.add_tokens([f'<{i}>' for i in range(5000)])\n",
    "many in a dictionary": 'tok.add_special_tokens({"additional_special_tokens": load()})\n',
}


@pytest.mark.parametrize("adds", UNKNOWN_SIZE.values(), ids=UNKNOWN_SIZE)
def test_a_vocabulary_that_grows_is_unknown(adds: str, tmp_path: Path) -> None:
    found = told(LOADED + adds + "model.resize_token_embeddings(len(tok))\n", tmp_path)
    assert is_unknown(found["train.vocab_size"])


@pytest.mark.parametrize("adds", ["", 'tok.add_special_tokens({"pad_token": "<p>"})\n', 'tok.add_tokens(["a", "b"])\n'])
def test_a_few_tokens_do_not_matter(adds: str, tmp_path: Path) -> None:
    assert "train.vocab_size" not in told(LOADED + adds + "model.resize_token_embeddings(len(tok))\n", tmp_path)


def test_a_vocabulary_of_a_stated_size(tmp_path: Path) -> None:
    assert told(LOADED + "model.resize_token_embeddings(60000)\n", tmp_path)["train.vocab_size"] == 60000
