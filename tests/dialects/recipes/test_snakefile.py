"""Snakemake workflows: the shell lines of rules with `params` and the config file, and what each run decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes_as_text import commands

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


@pytest.mark.parametrize(
    "text", ['rule a:\n    shell: "ls"\n', 'rule a:\n    run:\n        print("python")\n', "rule a:\n"]
)
def test_rules_that_start_nothing_are_left_alone(text: str, tmp_path: Path) -> None:
    assert commands("Snakefile", text, tmp_path) == []
