"""Nothing of a checked tree is imported: each of its files is a bait, named like a module that may be asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bait import Bait

PYTHON = sys.executable
ESTIMATE = ("estimate", "bert-base-uncased", "--set", "train.batch_size=8", "--set", "train.seq_len=64")
# What pip writes as a console script: it imports `re` and `sys` before it comes to preflight.
SCRIPT = "import re\nimport sys\n{}\n"
PREFLIGHT = "from preflight.__main__ import main\nmain()"

PATHS = {"the tree": "{home}"}
MORE_PATHS = {
    "an empty entry": ":", "a link to it": "{outside}/link", "a relative one": ".", "behind others": "/nowhere:",
    "another spelling": "{home}/../checkout/.", "a folder of it": "{home}/sub/..", "through /proc": "/proc/self/cwd",
}  # fmt: skip


@pytest.fixture(scope="module")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Bait:
    made = Bait(tmp_path_factory.mktemp("bait"))
    (made.outside / "link").symlink_to(made.home)
    made.write("sub/more.txt", "")
    (made.outside / "preflight").write_text(SCRIPT.format(PREFLIGHT))
    (made.outside / "bare").write_text(SCRIPT.format(""))
    return made


def _of_python(bait: Bait, *command: str, **environment: str) -> set[str]:
    """What the interpreter itself imports of the tree before any program of ours begins."""
    done, markers = bait.run(PYTHON, *command, **environment)
    assert done.returncode == 0, done.stderr
    return markers


def test_the_baits_bite(bait: Bait) -> None:
    """A Python that is told to look in the tree runs it: else the tests below could not fail."""
    _, markers = bait.run(PYTHON, "-c", "import json, yaml, evil_rules, preflight_bait", PYTHONPATH=str(bait.home))
    assert {"json", "yaml", "preflight_bait", "evil_rules", "sitecustomize"} <= markers


@pytest.mark.parametrize(
    "arguments", [("check", "."), ("check", "sweep.yaml"), ("rule",), ESTIMATE], ids=lambda one: one[0]
)
def test_commands_in_the_tree(bait: Bait, arguments: tuple[str, ...]) -> None:
    done, markers = bait.run(PYTHON, str(bait.outside / "preflight"), *arguments)
    assert done.returncode == 0, done.stderr
    assert markers == set()


def test_isolated_as_the_hook_and_the_action_start_it(bait: Bait) -> None:
    done, markers = bait.run(PYTHON, "-I", "-m", "preflight", "check", ".", PYTHONPATH=str(bait.home))
    assert done.returncode == 0, done.stderr
    assert markers == set()


def test_as_a_module_no_more_than_python_imports_itself(bait: Bait) -> None:
    """The limit: with `python -m`, Python looks in the current directory for what it needs to start a module."""
    done, markers = bait.run(PYTHON, "-m", "preflight", "check", ".")
    assert done.returncode == 0, done.stderr
    assert "1 study" in done.stdout
    assert markers <= _of_python(bait, "-m", "bare")


@pytest.mark.parametrize("path", [
    *(pytest.param(path, id=name) for name, path in PATHS.items()),
    *(pytest.param(path, id=name, marks=pytest.mark.slow) for name, path in MORE_PATHS.items()),
])  # fmt: skip
def test_on_pythonpath_no_more_than_python_imports_itself(bait: Bait, path: str) -> None:
    """The limit: who puts a tree on PYTHONPATH has Python start with it (encodings, sitecustomize)."""
    path = path.format(home=bait.home, outside=bait.outside)
    limit = _of_python(bait, str(bait.outside / "bare"), PYTHONPATH=path)
    done, markers = bait.run(PYTHON, str(bait.outside / "preflight"), "check", ".", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "1 study" in done.stdout
    assert markers <= limit
    assert not markers & {"preflight_bait", "evil_rules", "json", "yaml", "click", "pydantic", "torch"}


@pytest.mark.slow
def test_the_named_tree_counts_too(bait: Bait) -> None:
    """The tree on PYTHONPATH is not the current directory's but the one that is named."""
    elsewhere = {"PYTHONPATH": str(bait.home)}
    program, tree = str(bait.outside / "preflight"), str(bait.home)
    limit = _of_python(bait, str(bait.outside / "bare"), **elsewhere)
    _, markers = bait.run(PYTHON, program, "check", tree, cwd=bait.outside, **elsewhere)
    assert markers <= limit


# --- processes of ours ------------------------------------------------------------------------------------------------

MOBILEBERT = ("estimate", "google/mobilebert-uncased", "-s", "train.batch_size=8", "-s", "train.seq_len=64",
              "-s", "task=masked-lm", "-s", "train.precision=fp32")  # fmt: skip
COMPILED = ("estimate", "gpt2", "-s", "train.batch_size=8", "-s", "train.seq_len=64", "-s", "train.precision=fp32",
            "-s", "train.compile=true")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [MOBILEBERT, COMPILED], ids=["no law is shipped", "compiled"])
def test_a_traced_model(bait: Bait, arguments: tuple[str, ...]) -> None:
    done, markers = bait.run(PYTHON, str(bait.outside / "preflight"), *arguments)
    assert done.returncode == 0, done.stderr
    assert "no law is shipped" not in done.stdout
    assert "needs at least" not in done.stdout
    assert markers == set()


@pytest.mark.slow
def test_a_sweep_over_a_traced_model(tmp_path: Path) -> None:
    bait = Bait(tmp_path, "google/mobilebert-uncased")
    done, markers = bait.run(PYTHON, "-I", "-m", "preflight", "check", ".")
    assert "2 combinations, worst needs" in done.stdout
    assert "at least" not in done.stdout  # it was traced
    assert markers == set()


TINY = """\
import sys
from preflight.memory.device.fit import subprocess as tracing
config = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=2, intermediate_size=64, vocab_size=90)
setup = dict(weights="fp32", autocast=None, attention="sdpa", mask=False)
model = dict(architecture="llama", task="causal-lm", config=config)
[made], _ = tracing.request_traces([dict(model=model, setup=setup, point=dict(b=2, s=16), kind="train")])
print(len(made["events"]))
"""


def test_the_question_of_versions(bait: Bait) -> None:
    """A process that starts in the tree asks an interpreter whether it has torch; nothing is imported to find out."""
    code = "from preflight.memory.device.fit import subprocess as tracing; print(tracing.installed(None))"
    done, markers = bait.run(PYTHON, "-I", "-c", code, PYTHONPATH=str(bait.home), PYTHONSTARTUP="sitecustomize.py")
    assert "torch=True" in done.stdout, done.stderr
    assert markers == set()


@pytest.mark.slow
def test_the_tracer(bait: Bait) -> None:
    """The whole way of a trace: torch and transformers are imported by a process that starts in the tree."""
    done, markers = bait.run(PYTHON, "-I", "-c", TINY, PYTHONPATH=str(bait.home), PYTHONSTARTUP="sitecustomize.py")
    assert int(done.stdout) > 100, done.stderr
    assert markers == set()


def test_an_empty_module_makes_nothing_installed(tmp_path: Path) -> None:
    bait = Bait(tmp_path, names=())
    bait.write("torch.py", "")
    bait.write("torch-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    bare = bait.outside / "python"  # a Python that has no torch: it finds no site-packages
    bare.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')
    bare.chmod(0o755)
    code = f"from preflight.memory.device.fit.subprocess import installed; print(installed({str(bare)!r}))"
    done, _ = bait.run(PYTHON, "-I", "-c", code, PYTHONPATH=str(bait.home))
    assert "torch=False" in done.stdout, done.stderr
    assert "9.9" not in done.stdout
    found, _ = bait.run(str(bare), "-c", "import torch", PYTHONPATH=str(bait.home))
    assert found.returncode == 0  # without isolation it is there


@pytest.mark.slow
def test_a_figure_ignores_the_trees_matplotlibrc(bait: Bait) -> None:
    bait.write("matplotlibrc", "text.usetex: True\nbackend: module://preflight_bait\n")
    figure = bait.outside / "step.png"
    done, markers = bait.run(PYTHON, str(bait.outside / "preflight"), *ESTIMATE, "-s", "train.precision=fp32",
                             "--plot", str(figure))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert figure.stat().st_size > 1000
    assert markers == set()
