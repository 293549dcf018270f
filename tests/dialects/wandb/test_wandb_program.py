"""The program of a W&B sweep: the command's macros, launchers, where it is found."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from wandb_sweeps import only, project, read, words

from preflight.dialects.wandb import reader as wandb
from preflight.vocabulary.values import evaluate

PARAMETERS = "parameters:\n  lr: {values: [1, 2]}\n  bs: {value: 8}\n  amp: {value: true}\n  fast: {value: false}\n"
ALL = ["--lr=@lr", "--bs=8", "--amp=True", "--fast=False"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("", ALL),
        ("[python3, train.py, '${args}']", ALL),
        ("['${env}', '${interpreter}', '${program}', --bs, 5, '${args}']", ["--bs", "5", *ALL]),
        ("['${interpreter}', '${program}', '${args}', --bs=5]", [*ALL, "--bs=5"]),
        (
            "[python, '${program}', '${args_no_equals}']",
            ["--lr", "@lr", "--bs", "8", "--amp", "True", "--fast", "False"],
        ),
        ("[python, '${program}', '${args_no_hyphens}']", ["lr=@lr", "bs=8", "amp=True", "fast=False"]),
        ("[python, '${program}', '${args_append_hydra}']", ["+lr=@lr", "+bs=8", "+amp=True", "+fast=False"]),
        ("[python, '${program}', '${args_override_hydra}']", ["++lr=@lr", "++bs=8", "++amp=True", "++fast=False"]),
        ("[python, '${program}', '${args_no_boolean_flags}']", ["--lr=@lr", "--bs=8", "--amp"]),
        ("[python, '${program}', '${args_json}']", ["?"]),
        ("[python, '${program}', '${unknown}', null, 'x${args}']", ["x${args}"]),
        ("[python, '${program}']", []),
    ],
)
def test_macros(command: str, expected: list[str], tmp_path: Path) -> None:
    line = f"command: {command}\n" if command else ""
    reading, _ = read(tmp_path, f"program: train.py\nmethod: grid\n{line}{PARAMETERS}")
    link = only(reading)
    assert (link.kind, link.target) == ("program", "train.py")
    assert words(link) == expected
    assert set(link.settings) == {"lr", "bs", "amp", "fast"}, "wandb.config has them with any command"
    assert [one for one in reading.problems if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("command", "kind", "target", "launcher", "ranks", "total"),
    [
        ("[torchrun, --nproc_per_node=4, '${program}', '${args}']", "program", "train.py", "torchrun", 4, None),
        ("[torchrun, --nproc-per-node, 2, --standalone, train.py]", "program", "train.py", "torchrun", 2, None),
        (
            "[python, -m, torch.distributed.run, --nproc_per_node, 8, train.py]",
            "program",
            "train.py",
            "torchrun",
            8,
            None,
        ),
        (
            "[accelerate, launch, --multi_gpu, --num_processes, 4, train.py]",
            "program",
            "train.py",
            "accelerate",
            None,
            4,
        ),
        ("[deepspeed, --num_gpus=2, train.py]", "program", "train.py", "deepspeed", 2, None),
        ("[uv, run, --extra, gpu, python, -u, train.py]", "program", "train.py", "wandb-agent", None, None),
        ("[poetry, run, train.py]", "program", "train.py", "wandb-agent", None, None),
        ("[env, A=1, python, -m, pkg.main]", "module", "pkg.main", "wandb-agent", None, None),
        ("[bash, run.sh, '${args}']", "script", "run.sh", "wandb-agent", None, None),
        ("[./run.sh]", "script", "run.sh", "wandb-agent", None, None),
    ],
)
def test_launchers(
    command: str, kind: str, target: str, launcher: str, ranks: int | None, total: int | None, tmp_path: Path
) -> None:
    text = f"program: train.py\nmethod: grid\ncommand: {command}\n{PARAMETERS}"
    link = only(read(tmp_path, text, **{"run.sh": "echo\n"})[0])
    assert (link.kind, link.target, link.launch.launcher) == (kind, target, launcher)
    found = [None if one is None else evaluate(one) for one in (link.launch.ranks_per_node, link.launch.total_ranks)]
    assert found == [ranks, total]


def test_what_accelerate_hands_on(tmp_path: Path) -> None:
    command = "command: [A=1, accelerate, launch, --mixed_precision, bf16, train.py]\n"
    environment = only(read(tmp_path, f"program: x\nmethod: grid\n{command}{PARAMETERS}")[0]).launch.environment
    assert {name: evaluate(value) for name, value in environment.items()} == {
        "A": "1",
        "ACCELERATE_MIXED_PRECISION": "bf16",
    }


def test_programs_are_found_beside_and_above(tmp_path: Path) -> None:
    text = "program: {}\nmethod: grid\nparameters: {{x: {{value: 1}}}}\n"
    programs = {
        "sweeps/a.yaml": "train.py",
        "sweeps/b.yaml": "src/t.py",
        "sweeps/c.yaml": "gone.py",
        "d.yaml": "../x.py",
    }
    files = {path: text.format(program) for path, program in programs.items()}
    files |= {"sweeps/train.py": "", "train.py": "", "src/t.py": ""}
    found = project(tmp_path, files)

    def targets(path: str) -> list[str]:
        return [link.target for link in wandb.read(found.source(path), None, found).links]

    assert targets("sweeps/a.yaml") == ["sweeps/train.py"]
    assert targets("sweeps/b.yaml") == ["src/t.py"]
    assert targets("sweeps/c.yaml") == targets("d.yaml") == []
    [problem] = wandb.read(found.source("sweeps/c.yaml"), None, found).problems
    assert (problem.severity, "gone.py" in problem.message) == ("info", True)


def test_programs_are_found_in_one_folder_beside(tmp_path: Path) -> None:
    text = "program: {}\nmethod: grid\nparameters: {{x: {{value: 1}}}}\n"
    programs = {"sweeps/a.yaml": "train.py", "sweeps/b.yaml": "run/eval.py", "sweeps/c.yaml": "twice.py"}
    files = {path: text.format(program) for path, program in programs.items()}
    files |= {"code/train.py": "", "code/run/eval.py": "", "code/twice.py": "", "old/twice.py": "", ".git/train.py": ""}
    found = project(tmp_path, files)
    read = {path: wandb.read(found.source(path), None, found) for path in programs}
    assert [link.target for link in read["sweeps/a.yaml"].links] == ["code/train.py"]
    assert [link.target for link in read["sweeps/b.yaml"].links] == ["code/run/eval.py"]
    assert not read["sweeps/c.yaml"].links
    [problem] = read["sweeps/c.yaml"].problems
    assert "twice.py was not found" in problem.message


def test_a_sweep_that_python_runs_has_no_program(tmp_path: Path) -> None:
    reading, _ = read(tmp_path, "method: random\nparameters: {x: {value: 1}}\n")
    assert reading.links == ()
    assert reading.problems == ()


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6)
KEYS = st.sampled_from(["value", "values", "min", "max", "q", "distribution", "parameters", "probabilities", "x"])
BODIES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(st.text("abcxyz1-_.", min_size=1, max_size=8), BODIES, max_size=4))
def test_no_shape_of_parameters_breaks_it(tmp_path_factory: pytest.TempPathFactory, bodies: dict[str, object]) -> None:
    text = yaml.safe_dump({"method": "random", "program": "train.py", "parameters": bodies})
    found = project(tmp_path_factory.mktemp("sweep"), {"sweep.yaml": text, "train.py": ""})
    source = found.source("sweep.yaml")
    assert wandb.recognises(source, found)
    reading = wandb.read(source, None, found)
    assert set(only(reading).settings) >= set(bodies)
    for problem in reading.problems:
        assert 0 <= problem.origin.span.start <= problem.origin.span.end <= len(text)
