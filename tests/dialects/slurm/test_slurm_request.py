"""Directives against what a real sbatch 22.05 answered (`sbatch --test-only`, a controller with the cluster below)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.dialects.slurm.request import ignored_problems, read_request, script_problems
from preflight.dialects.slurm.schema import array_indices, memory_bytes, memory_meant
from preflight.documents.directives import read_directives
from preflight.slurm.allocation import resolve
from preflight.slurm.import_.conf import read_slurm_conf
from preflight.vocabulary.budgets import IGNORED_DIRECTIVES
from preflight.vocabulary.reading import Problem, Request
from preflight.vocabulary.text import Source
from preflight.vocabulary.values import Cause, Unknown

MIB = 2**20
CONF = """\
ClusterName=pf
GresTypes=gpu
NodeName=gpu[1-4] CPUs=64 RealMemory=256000 Gres=gpu:a100:4 State=CLOUD
NodeName=cpu[1-2] CPUs=32 RealMemory=128000 State=CLOUD
PartitionName=gpu Nodes=gpu[1-4] Default=YES MaxTime=24:00:00
PartitionName=cpu Nodes=cpu[1-2] MaxTime=4:00:00
"""
VERDICTS = (Path(__file__).parent / "slurm_verdicts.txt").read_text(encoding="utf-8").splitlines()


def read(*options: str) -> tuple[Request, tuple[Problem, ...]]:
    text = "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options)
    return read_request(Source("job.sbatch", text), read_directives(text)[0])


@pytest.mark.parametrize("line", VERDICTS)
def test_verdicts_of_a_real_controller(line: str) -> None:
    options, code, answer = (part.strip() for part in line.split("|"))
    request, problems = read(options)
    allocation = resolve(request, read_slurm_conf(CONF))
    accepted = not [one for one in problems if one.severity == "error"] and allocation.impossible is None
    assert accepted == (code == "rc=0"), (answer, problems, allocation.impossible)
    if "Invalid --mem specification" in answer:
        assert [one.rule for one in problems] == ["slurm-memory-invalid"]
        assert "Invalid --mem specification" in problems[0].message


@pytest.mark.parametrize("options", [("--mem=100G", "--mem-per-cpu=4G"), ("--mem=100G --mem-per-cpu=4G",)])
def test_two_memory_options_from_one_line_or_two(options: tuple[str, ...]) -> None:
    _, problems = read(*options)
    assert [one.rule for one in problems] == ["slurm-memory-invalid"]
    assert "mutually exclusive" in problems[0].message
    assert len(problems[0].related) == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64G", 2**36),
        ("64gb", 2**36),
        ("64g", 2**36),
        ("1T", 2**40),
        ("32000", 32000 * MIB),
        ("1025K", 2 * MIB),
        ("0", 0),
    ],
)
def test_sizes_that_sbatch_takes(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1.5G", "1536M"), ("64GiB", "64G"), ("64Gi", "64G"), ("0.5T", "512G"), ("200 G", "200G"), ("1e3G", "1000G"),
        ("1e3", None), ("abc", None), ("-1", None), ("100%", None), ("${MEM}", None), ("", None), ("1P", None),
    ],
)  # fmt: skip
def test_sizes_that_sbatch_refuses_and_what_was_meant(text: str, meant: str | None) -> None:
    assert memory_bytes(text) is None
    assert memory_meant(text) == meant
    if meant is not None:
        assert memory_bytes(meant) is not None


@given(st.integers(0, 10**7), st.sampled_from(["", "K", "M", "G", "T", "kb", "Mb", "GB", "tB"]))
def test_an_integer_with_a_unit_is_always_taken(number: int, unit: str) -> None:
    size = memory_bytes(f"{number}{unit}")
    assert size is not None
    assert size % MIB == 0


@given(st.text(max_size=12))
def test_no_text_crashes_the_schema(text: str) -> None:
    for option in ("mem", "nodes", "gres", "gpus", "time", "array", "ntasks"):
        read(f"--{option}={text.split(chr(10))[0]}")


def test_the_last_directive_wins_and_keeps_its_place() -> None:
    request, problems = read("--mem=8G", "-N 2 --mem 32G", "--nodes=4")
    assert problems == ()
    assert request.memory == 32 * 2**30
    assert request.nodes == 4
    origin = request.origins["memory"]
    text = "#!/bin/bash\n#SBATCH --mem=8G\n#SBATCH -N 2 --mem 32G\n#SBATCH --nodes=4\n"
    assert text[origin.span.start : origin.span.end] == "32G"
    assert request.insert_at is not None
    assert request.insert_at.span.start == len(text)


def test_a_range_of_nodes_is_unknown_and_says_so() -> None:
    request, _ = read("--nodes=2-4")
    assert request.nodes == Unknown("2 to 4 nodes", Cause.run_time)


def test_gpus_in_their_spellings() -> None:
    request, _ = read("--gres=gpu:a100:4,nvme:1")
    assert (request.gpus_per_node, request.gpu_type) == (4, "a100")
    request, _ = read("--gpus-per-node=h100:8")
    assert (request.gpus_per_node, request.gpu_type) == (8, "h100")
    request, _ = read("-G 6")
    assert request.gpus == 6
    request, _ = read("--gres=shard:3")
    assert request.gpus_per_node is None


def test_a_shell_variable_is_plain_text_in_a_directive() -> None:
    request, problems = read("--nodes=$NUM_NODES")
    assert isinstance(request.nodes, Unknown)
    assert "not expanded" in problems[0].message


def test_a_bare_small_number_forgot_its_unit() -> None:
    _, problems = read("--mem=64")
    assert [(one.rule, one.severity, one.fix) for one in problems] == [("slurm-memory-invalid", "warning", "64G")]
    assert read("--mem=32000")[1] == ()


def test_unknown_options() -> None:
    _, problems = read("--container-image=pytorch.sqsh", "--job_name=x", "--memory=4G")
    assert [one.rule for one in problems] == ["invalid-config", "invalid-config"]
    assert all("no option" in one.message for one in problems)


def ignored(text: str) -> list[Problem]:
    directives, lines = read_directives(text)
    return list(ignored_problems(Source("job.sbatch", text), lines, directives))


def test_what_is_switched_off_on_purpose_is_silent() -> None:
    assert ignored("#!/bin/bash\n#SBATCH --mem=8G\n##SBATCH --mem=16G\n##SBATCH --mail-user=me\npython x.py\n") == []


def test_directives_without_effect() -> None:
    found = ignored("#!/bin/bash\n#SBATCH -N 1\nset -e\n#SBATCH --mem=64G\n")
    assert [(one.rule, one.severity) for one in found] == [("slurm-directive-ignored", "error")]
    assert "line 3" in found[0].message
    found = ignored("#!/bin/bash\n # SBATCH --mem=64G\n# SBATCH --mem=64G\n")
    assert "#SBATCH --mem=64G" in [one.fix for one in found]


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --nodes={nodes}",
        "#SBATCH --nodes={{ nodes }}",
        "#SBATCH -N <NODES>",
        "#SBATCH --time=<run_time>",
        "#SBATCH --mem=%d",
        "#SBATCH --mem=@MEMORY@",
        "#SBATCH --mem=YOUR_MEMORY",
        "#SBATCH -p { partition }",
        "#SBATCH --gres=gpu:{gpus}",
    ],
)
def test_a_template_is_no_mistake(line: str) -> None:
    text = f"{line}\n#SBATCH --cpus-per-task=4\nsrun python train.py\n"
    directives, ignored = read_directives(text)
    request, problems = read_request(Source("job.sbatch", text), directives)
    assert problems == ()
    assert ignored == ()
    assert request.cpus_per_task == 4
    assert not list(script_problems(Source("job.sbatch", text)))
    assert all(isinstance(value, Unknown) for value in (request.memory, request.nodes) if value is not None)


@pytest.mark.parametrize(
    "line",
    [
        "#   sbatch --array=0 run.sbatch",
        "#       sbatch --time=24:00:00 --export=ALL scripts/train.slurm",
        "# SBATCH --mem=4G\n#SBATCH --mem=8G",
        "##SBATCH --job-name=x",
    ],
)
def test_prose_and_directives_that_are_switched_off(line: str) -> None:
    text = f"#!/bin/bash\n{line}\nsrun python train.py\n"
    directives, ignored = read_directives(text)
    assert list(ignored_problems(Source("job.sbatch", text), ignored, directives)) == []


def test_a_directive_that_is_lost() -> None:
    for line, severity in (("# SBATCH --mem=4G", "warning"), ("# SBATCH --job-name=x", "info")):
        text = f"#!/bin/bash\n{line}\nsrun python train.py\n"
        directives, ignored = read_directives(text)
        [problem] = ignored_problems(Source("job.sbatch", text), ignored, directives)
        assert problem.severity == severity


def test_a_script_that_was_joined_from_thousands_says_how_many_more_there_are() -> None:
    text = "#!/bin/bash\n#SBATCH --gres=gpu:1\n" + "python train.py\n#SBATCH --gres=gpu:2\n" * 1000
    directives, ignored = read_directives(text)
    problems = list(ignored_problems(Source("job.sbatch", text), ignored, directives))
    assert len(problems) == IGNORED_DIRECTIVES
    assert problems[-1].message == f"{problems[-2].message} (and 900 lines like it below)"


def test_files_that_sbatch_refuses_whole() -> None:
    assert list(script_problems(Source("a.sbatch", "#!/bin/sh\n#SBATCH -N 1\n"))) == []
    assert len(list(script_problems(Source("a.sbatch", "#SBATCH -N 1\r\n")))) == 2


def test_array_indices() -> None:
    assert array_indices("0-15:5,20%2") == (0, 5, 10, 15, 20)
    assert array_indices("3") == (3,)
    assert array_indices("5-1") is None
    assert array_indices("$N") is None
