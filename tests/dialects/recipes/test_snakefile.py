"""Snakemake workflows: the shell lines of rules with `params` and the config file, and what each run decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes_as_text import batches, commands, unread

CONFIG = {"config/config.yaml": "batch: 24\ntrain:\n  workers: 5\n"}
HEAD = 'configfile: "config/config.yaml"\n\nSIZE = 12\n\n'
READ = {
    "params": ('    params:\n        b=16,\n    shell:\n        "python train.py --batch-size {params.b}"\n', "16"),
    "one param": ('    params: 8\n    shell: "python train.py --batch-size {params}"\n', "8"),
    "the config file": ('    shell: "python train.py --batch-size {config[batch]}"\n', "24"),
    "the config file through params": (
        '    params:\n        b=config["train"]["workers"]\n    shell: "python train.py --batch-size {params.b}"\n',
        "5",
    ),
    "get with a default": (
        '    params:\n        b=config.get("none", 3)\n    shell: "python train.py --batch-size {params.b}"\n',
        "3",
    ),
    "a constant of the file": ('    shell: "python train.py --batch-size {SIZE}"\n', "12"),
    "threads": ('    threads: 7\n    shell: "python train.py --batch-size {threads}"\n', "7"),
    "files stand for themselves": (
        '    input: "a.csv"\n    output: "{name}.pt"\n    shell:\n        """\n'
        "        python train.py --batch-size 2\n        touch {output}\n"
        '        """\n',
        "2",
    ),
    "a function": ('    params:\n        b=lambda w: 4\n    shell: "python train.py --batch-size {params.b}"\n', "?"),
    "a wildcard": ('    shell: "python train.py --batch-size {wildcards.b}"\n', "?"),
    "an f-string": ('    params: b=5\n    shell: f"python train.py --batch-size {SIZE}"\n', "12"),
    "an f-string with a hole": (
        '    params: b=5\n    shell: f"python train.py --batch-size {{params.b}}"\n',
        "5",
    ),
    "a sum of texts": ('    shell: "python train.py --batch-size " + str(SIZE)\n', "?"),
    "braces": ("    shell: \"python train.py --batch-size 6 | awk '{{print}}'\"\n", "6"),
}


@pytest.mark.parametrize(("body", "batch"), READ.values(), ids=READ)
def test_the_shell_line_of_a_rule(body: str, batch: str, tmp_path: Path) -> None:
    found = commands("workflow/Snakefile", f"{HEAD}rule train:\n{body}", tmp_path, CONFIG)
    assert found == [f"train.py --batch-size {batch}"]


def test_each_rule_starts_what_it_says(tmp_path: Path) -> None:
    rules = (
        'rule a:\n    shell: "python train.py --batch-size 1"\n\nrule b:\n    shell: "python train.py --batch-size 2"\n'
    )
    assert commands("Snakefile", rules, tmp_path) == ["train.py --batch-size 1", "train.py --batch-size 2"]


RULE = 'rule a:\n    params: x=SIZE\n    shell: "python train.py --batch-size {config[batch]} --workers {params.x}"\n'
CHANGED = {
    "another file lies over the first": (
        'configfile: "config/config.yaml"\nconfigfile: "more.yaml"\nSIZE = 2\n',
        "32",
        "2",
    ),
    "a file is not there": ('configfile: "config/config.yaml"\nconfigfile: "none.yaml"\nSIZE = 2\n', "?", "2"),
    "a condition chooses the file": (f'{HEAD}if BIG:\n    configfile: "more.yaml"\n', "?", "12"),
    "a key is assigned": (f'{HEAD}config["batch"] = 48\n', "48", "12"),
    "the file lies over an assignment": (f'config["batch"] = 48\n{HEAD}', "24", "12"),
    "a condition assigns a key": (f'{HEAD}if BIG:\n    config["batch"] = 48\n', "?", "12"),
    "a key that is not known": (f"{HEAD}config[key()] = 48\n", "?", "12"),
    "a method changes it": (f"{HEAD}config.update(more)\n", "?", "12"),
    "a function gets it": (f"{HEAD}prepare(config)\n", "?", "12"),
    "a schema adds what is missing": (f'{HEAD}validate(config, schema="x.yaml")\n', "24", "12"),
    "a name is augmented": (f"{HEAD}SIZE += 2\n", "24", "?"),
    "a condition assigns a name": (f"{HEAD}if BIG:\n    SIZE = 4\n", "24", "?"),
    "a loop assigns a name": (f"{HEAD}for SIZE in sizes():\n    pass\n", "24", "?"),
    "Python that is none": (f"{HEAD}1 +\n", "?", "?"),
}


@pytest.mark.parametrize(("head", "batch", "workers"), CHANGED.values(), ids=CHANGED)
def test_what_may_change_a_value(head: str, batch: str, workers: str, tmp_path: Path) -> None:
    found = commands("Snakefile", f"{head}\n{RULE}", tmp_path, {**CONFIG, "more.yaml": "batch: 32\n"})
    assert found == [f"train.py --batch-size {batch} --workers {workers}"]


def test_a_rule_of_another_with_its_own_sections(tmp_path: Path) -> None:
    more = "\nuse rule a as b with:\n    params: x=7\n\nonsuccess:\n    shell('ls')\n"
    found = commands("Snakefile", f"{HEAD}{RULE}{more}", tmp_path, CONFIG)
    assert found == [f"train.py --batch-size 24 --workers {count}" for count in (12, 7)]
    assert len(batches("Snakefile", f"{HEAD}{RULE}{more}", tmp_path, CONFIG)) == 2


@pytest.mark.parametrize(
    "more",
    ["rule b:\n    shell: COMMAND\n", "use rule * from other as other_*\n", "use rule c as b with:\n    threads: 2\n"],
)
def test_a_rule_that_cannot_be_read_is_said(more: str, tmp_path: Path) -> None:
    assert unread("Snakefile", f"{HEAD}{RULE}\n{more}", tmp_path, CONFIG)
    assert not unread("Snakefile", f"{HEAD}{RULE}\nrule b:\n    shell: 'ls'\n", tmp_path / "other", CONFIG)


@pytest.mark.parametrize("first", ["'a'", "f()", "''"])
def test_a_text_that_doubles_in_every_line_ends(first: str, tmp_path: Path) -> None:
    lines = "".join(f"X{n + 1} = X{n} + X{n}\n" for n in range(60))
    rule = 'rule a:\n    shell: f"python train.py --batch-size 2 {X60}"\n'
    assert len(commands("Snakefile", f"X0 = {first}\n{lines}{rule}", tmp_path)) == 1


def test_every_rule_is_read(tmp_path: Path) -> None:
    rules = "".join(f'rule r{n}:\n    shell: "python train.py --batch-size {n}"\n\n' for n in range(250))
    assert len(commands("Snakefile", rules, tmp_path)) == 250


@pytest.mark.parametrize(
    "text", ['rule a:\n    shell: "ls"\n', 'rule a:\n    run:\n        print("python")\n', "rule a:\n"]
)
def test_rules_that_start_nothing_are_left_alone(text: str, tmp_path: Path) -> None:
    assert commands("Snakefile", text, tmp_path) == []
