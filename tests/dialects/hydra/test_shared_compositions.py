"""Another option of a group is composed from the defaults' composition: as Hydra's algorithm composes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra_trees import tree

from preflight.dialects.hydra import compose as module
from preflight.dialects.hydra.compose import Composition, compose
from preflight.dialects.hydra.overrides import _PLAIN, _parsed, parse_override
from preflight.dialects.hydra.repository import Repository
from preflight.dialects.hydra.tree import leaves

TREE = {
    "conf/config.yaml": "defaults:\n  - model: small\n  - data: text\n  - _self_\n  - extra: one\nlr: 1\n",
    "conf/model/small.yaml": "width: 64\nlr: 2\n",
    "conf/model/large.yaml": "width: 128\ndepth: 4\n",
    "conf/model/global.yaml": "# @package _global_\nlr: 5\n",
    "conf/model/nested.yaml": "defaults: [small]\nwidth: 256\n",
    "conf/data/text.yaml": "batch: ${model.width}\n",
    "conf/data/none.yaml": "",
    "conf/extra/one.yaml": "# @package _global_\nmodel: {width: 1}\n",
    "conf/extra/two.yaml": "# @package _global_\nlr: 9\n",
}
CHOSEN = {**TREE, "conf/config.yaml": "defaults:\n  - model: small\n  - data: text\n  - extra: ${model}\n",
          "conf/extra/small.yaml": "a: 1\n", "conf/extra/large.yaml": "a: 2\n"}  # fmt: skip
TWICE = {**TREE, "conf/config.yaml": "defaults:\n  - model: small\n  - model@other: small\n"}
GAP = {**TREE, "conf/config.yaml": "defaults:\n  - model: small\n  - missing: one\n"}


def said(found: Composition) -> object:
    values = [(path, repr(item)) for path, item in leaves(found.root)]
    return values, found.choices, found.groups, found.files, found.parts, [one.message for one in found.problems]


@pytest.mark.parametrize("files", [TREE, CHOSEN, TWICE, GAP])
@pytest.mark.parametrize(
    "word", ["model=large", "data=${model}", "extra=${data}", "model=absent", "+model@more=${data}"]
)
def test_choices_are_looked_up_as_hydra_does(
    files: dict[str, str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = parse_override(word, None, None, [])
    assert given is not None
    short = compose(Repository(tree(tmp_path, files), ("conf",)), "config", (given,))
    monkeypatch.setattr(module, "_choices_to_look_up", lambda create, *rest: create(*rest))
    whole = compose(Repository(tree(tmp_path, files), ("conf",)), "config", (given,))
    assert said(short) == said(whole)


@pytest.mark.parametrize(
    ("files", "word"),
    [
        (TREE, "model=large"),
        (TREE, "model=global"),
        (TREE, "model=nested"),
        (TREE, "model=absent"),
        (TREE, "model=null"),
        (TREE, "data=none"),
        (TREE, "extra=two"),
        (TREE, "+data=none"),
        (TREE, "~extra"),
        (TREE, "lr=3"),
        (TREE, "model=[small,large]"),
        (CHOSEN, "model=large"),
        (CHOSEN, "data=none"),
        (TWICE, "model=large"),
        (TWICE, "model@other=large"),
        (GAP, "model=large"),
        (TREE, "model=large data=none"),
        (TREE, "model=large extra=two data=text"),
        (TREE, "model=large model=small"),
        (TREE, "model=large data=absent"),
        (TREE, "model=nested data=none"),
        (TREE, "model=large lr=3"),
        (CHOSEN, "model=large data=none"),
    ],
)
def test_the_short_way_says_what_hydra_says(
    files: dict[str, str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [one for text in word.split() if (one := parse_override(text, None, None, [])) is not None]
    short = said(compose(Repository(tree(tmp_path, files), ("conf",)), "config", given))
    monkeypatch.setattr(module, "_with_options", lambda *_: [])
    assert short == said(compose(Repository(tree(tmp_path, files), ("conf",)), "config", given))


def test_hydra_is_asked_once_for_all_simple_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, asked = tree(tmp_path, TREE), []
    real = module._by_hydra
    monkeypatch.setattr(module, "_by_hydra", lambda *args: (asked.append(args[1]), real(*args))[1])
    for words in (["model=large"], ["data=none"], ["extra=two"], ["model=large"], ["model=large", "data=none"]):
        given = [one for word in words if (one := parse_override(word, None, None, [])) is not None]
        compose(Repository(project, ("conf",)), "config", given)
    assert asked == ["config"]


def test_a_changed_text_is_composed_anew(tmp_path: Path) -> None:
    project = tree(tmp_path, TREE)
    before = compose(Repository(project, ("conf",)), "config", ())
    changed = project.with_overlay({"conf/model/small.yaml": "width: 65\n"})
    after = compose(Repository(changed, ("conf",)), "config", ())
    assert said(before) != said(after)


@pytest.mark.parametrize("word", ["null", "True", "FALSE", "inf", "NaN", "1e3", "a,b", "", "${x}", "'a'", "a b", "1"])
def test_a_value_that_is_no_name_is_read_by_the_grammar(word: str) -> None:
    assert repr(_parsed(f"model={word}")) == repr(OverridesParser.create().parse_override(f"model={word}"))


@pytest.mark.parametrize("sign", ["", "+", "++"])
@pytest.mark.parametrize("key", ["model", "optim/inner", "_a-b/c9"])
@pytest.mark.parametrize("value", ["small", "data-3", "_x", "nulls", "infinity", "e3", "True_", "nan-1"])
def test_an_override_of_names_is_what_the_grammar_says(sign: str, key: str, value: str) -> None:
    text = f"{sign}{key}={value}"
    assert _PLAIN.fullmatch(text)
    assert _parsed(text) == OverridesParser.create().parse_override(text)


EXPERIMENT = {
    **TREE,
    "conf/exp/run.yaml": "# @package _global_\ndefaults:\n  - override /model: large\nlr: 7\n",
    "conf/config.yaml": "defaults:\n  - model: small\n  - data: text\n  - _self_\n  - exp: null\nlr: 1\n",
}


@pytest.mark.parametrize(
    ("path", "text", "asked"),
    [
        ("conf/exp/run.yaml", "# @package _global_\ndefaults:\n  - override /model: nested\nlr: 7\n", 1),
        ("conf/exp/run.yaml", "# @package other\ndefaults:\n  - override /model: large\nlr: 7\n", 1),
        ("conf/exp/run.yaml", "# @package _global_\nlr: 7\n", 1),
        ("conf/model/large.yaml", "# @package _global_\nwidth: 128\n", 1),
        ("conf/model/large.yaml", "defaults: [small]\nwidth: 128\n", 1),
        ("conf/config.yaml", "defaults:\n  - model: small\n  - _self_\n  - exp: null\nlr: 1\n", 1),
        ("conf/model/large.yaml", "width: [\n", 1),
        ("conf/model/large.yaml", "width: 129\n", 0),
        ("conf/exp/run.yaml", "# @package _global_\ndefaults:\n  - override /model: large\nlr: 8\n", 0),
        ("conf/config.yaml", EXPERIMENT["conf/config.yaml"] + "seed: 3\n", 0),
    ],
)
def test_an_edit_that_changes_no_defaults_list_keeps_the_order(
    path: str, text: str, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, times = tree(tmp_path, EXPERIMENT), []
    real = module._by_hydra
    monkeypatch.setattr(module, "_by_hydra", lambda *args: (times.append(args[1]), real(*args))[1])
    given = parse_override("exp=run", None, None, [])
    assert given is not None
    compose(Repository(project, ("conf",)), "config", [given])
    times.clear()
    kept = said(compose(Repository(project.with_overlay({path: text}), ("conf",)), "config", [given]))
    assert len(times) >= asked
    assert asked or not times
    fresh = tree(tmp_path, EXPERIMENT).with_overlay({path: text})
    assert kept == said(compose(Repository(fresh, ("conf",)), "config", [given]))


def experiment(*entries: str, header: str = "# @package _global_\n", rest: str = "lr: 7\n") -> str:
    return header + "defaults:\n" + "".join(f"  - {entry}\n" for entry in entries) + rest


EXPERIMENTS = {
    **EXPERIMENT,
    "conf/model/wide.yaml": "width: 512\n",
    "conf/data/wide.yaml": "batch: 3\n",
    "conf/exp/first.yaml": experiment("override /model: small", "override /data: none", rest="lr: 1\n"),
    "conf/exp/alike.yaml": experiment("override /model: large", "override /data: wide", rest="width: 2\n"),
    "conf/exp/wide.yaml": experiment("override /model: wide", "override /data: wide"),
    "conf/exp/same.yaml": experiment("override /model: small", "override /data: text"),
    "conf/exp/self.yaml": experiment("_self_", "override /model: large", "override /data: wide"),
    "conf/exp/more.yaml": experiment("override /model: large", "override /data: wide", "override /extra: two"),
    "conf/exp/adds.yaml": experiment("override /model: large", "/model@more: wide"),
    "conf/exp/nested.yaml": experiment("override /model: nested", "override /data: wide"),
    "conf/exp/global.yaml": experiment("override /model: global", "override /data: wide"),
    "conf/exp/absent.yaml": experiment("override /model: absent", "override /data: wide"),
    "conf/exp/headless.yaml": experiment("override /model: large", "override /data: wide", header=""),
    "conf/exp/named.yaml": experiment("override /model: large", "override /data: ${model}"),
    "conf/exp/twice.yaml": experiment("override /model: large", "override /model: small"),
    "conf/exp/wrong.yaml": experiment("override /model: large", "override /data: wide", "{a: b, c: d}"),
}
NAMES = [path[9:-5] for path in EXPERIMENTS if path.startswith("conf/exp/")]
OTHERS = {
    "in the defaults": ("", {}),
    "added": ("+", {"conf/config.yaml": EXPERIMENT["conf/config.yaml"].replace("  - exp: null\n", "")}),
    "twice": ("", {"conf/config.yaml": EXPERIMENT["conf/config.yaml"] + "  - data@b: wide\n"}),
    "named after a choice": ("", {"conf/config.yaml": EXPERIMENT["conf/config.yaml"].replace("exp: n", "e: n")}),
    "by its name": ("", {"conf/model/wide.yaml": "# @package all._name_\nwidth: 512\n"}),
}


@pytest.mark.parametrize("case", OTHERS)
def test_experiments_alike_are_composed_as_hydra_composes_them(case: str, tmp_path: Path) -> None:
    sign, changes = OTHERS[case]
    files = EXPERIMENTS | changes
    project = tree(tmp_path / "all", files)
    for name in NAMES:
        given = parse_override(f"{sign}exp={name}", None, None, [])
        assert given is not None
        after, alone = Repository(project, ("conf",)), Repository(tree(tmp_path / name, files), ("conf",))
        assert said(compose(after, "config", [given])) == said(compose(alone, "config", [given])), name


def test_hydra_is_asked_once_for_experiments_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, asked = tree(tmp_path, EXPERIMENTS), []
    real = module._by_hydra
    monkeypatch.setattr(module, "_by_hydra", lambda *args: (asked.append(args[1]), real(*args))[1])
    for name in ("first", "alike", "wide", "same"):
        given = parse_override(f"exp={name}", None, None, [])
        assert given is not None
        compose(Repository(project, ("conf",)), "config", [given])
    assert len(asked) == 2  # the defaults, and the first experiment
    edited = project.with_overlay({"conf/exp/alike.yaml": EXPERIMENTS["conf/exp/alike.yaml"] + "a: 1\n"})
    given = parse_override("exp=alike", None, None, [])
    assert given is not None
    compose(Repository(edited, ("conf",)), "config", [given])
    assert len(asked) <= 3  # the defaults may be composed again; the order of the experiment is kept
