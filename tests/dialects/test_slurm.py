"""Job scripts: which programs they start, with which words, on how many processes; and what stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.dialects import slurm
from preflight.dialects.reading import Call, Launch, Link, Reading, Word
from preflight.project import Project
from preflight.settings import Settings
from preflight.values import Choices, Const, Origin, Span, Unknown, Value, evaluate

FILES = ("train.py", "src/pkg/train.py", "scripts/inner.sh", "sweep.yaml", "env.sh", "config.yaml")
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n"


class Script:
    """A script in a project of its own, read."""

    def __init__(self, root: Path, text: str, name: str = "job.sbatch", call: Call | None = None, **files: str) -> None:
        for path in FILES:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(files.get(path.replace("/", "_").replace(".", "_"), "pass\n"))
        (root / name).write_text(text)
        self.text, self.project = text, Project(root, Settings())
        self.source = self.project.source(name)
        self.reading: Reading = slurm.read(self.source, call, self.project)

    @property
    def recognised(self) -> bool:
        return slurm.recognises(self.source, self.project)

    @property
    def link(self) -> Link:
        [link] = self.reading.links
        return link

    def words(self, link: Link | None = None) -> list[str]:
        """The words of a link, unknown parts as `?`."""
        return [shown(word) for word in (link or self.link).words]

    def at(self, origin: Origin | None) -> str:
        assert origin is not None
        return self.text[origin.span.start : origin.span.end]

    def count(self, name: str) -> Value:
        expr = getattr(self.link.launch, name)
        return None if expr is None else evaluate(expr)


def shown(word: Word) -> str:
    if word.value is None:
        return word.prefix
    value = evaluate(word.value)
    return word.prefix + ("?" if isinstance(value, Unknown) else str(value))


# --- what is not a job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\necho hello\n",
        "#!/bin/bash\npip install -r requirements.txt\n",
        "#!/bin/bash\npython missing.py --bs 4\n",
        "#!/bin/bash\n# python train.py\n",
        '#!/bin/bash\ncat <<EOF > job.sh\n#SBATCH --mem=1.5G\nEOF\n',
        "#!/bin/bash\npython -c 'print(1)'\n",
    ],
)  # fmt: skip
def test_scripts_that_start_nothing_of_the_project_stay_silent(text: str, tmp_path: Path) -> None:
    script = Script(tmp_path, text, "tool.sh")
    assert not script.reading.links
    assert not script.reading.problems or not script.recognised


def test_a_job_on_cpus_is_no_training_of_its_own(tmp_path: Path) -> None:
    script = Script(tmp_path, "#!/bin/bash\n#SBATCH --mem=4G\nblastp -query x.fa\n")
    assert script.recognised
    assert not script.reading.trains


def test_a_plain_script_is_read_with_no_request(tmp_path: Path) -> None:
    script = Script(tmp_path, "#!/bin/bash\npython train.py --bs 4\n", "launch.sh")
    assert script.recognised
    assert script.reading.request is None
    assert script.words() == ["--bs", "4"]


# --- words and their places -------------------------------------------------------------------------------------------


def test_words_keep_the_place_of_their_values(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "srun python -u train.py data.batch_size=22 --lr 1e-4 '+trainer.x=a b'\n")
    assert script.words() == ["data.batch_size=22", "--lr", "1e-4", "+trainer.x=a b"]
    value = script.link.words[0].value
    assert isinstance(value, Const)
    assert script.at(value.origin) == "22"


def test_variables_arithmetic_defaults_and_continued_lines(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        HEAD
        + 'BS=${BS:-16}\nEPOCHS=3\nARGS="--epochs $EPOCHS --bs=$((BS * 2))"\n'
        + "srun python train.py $ARGS \\\n  --nodes $SLURM_NNODES --host $(hostname)\n",
    )
    assert script.words() == ["--epochs", "3", "--bs=32", "--nodes", "2", "--host", "?"]


def test_a_value_in_a_variable_is_blamed_where_it_is_written(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'BATCH=48\nsrun python train.py --bs "$BATCH"\n')
    value = script.link.words[1].value
    assert isinstance(value, Const)
    assert script.at(value.origin) == "48"


def test_what_hangs_on_a_condition_is_unknown(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'BS=16\nif [ "$1" = big ]; then BS=64; fi\nsrun python train.py --bs $BS\n')
    assert script.words() == ["--bs", "?"]


def test_exported_variables_reach_the_program(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "export A=1\nB=2\nC=3 srun python train.py\n")
    environment = {name: evaluate(expr) for name, expr in script.link.launch.environment.items()}
    assert environment["A"] == "1"
    assert environment["C"] == "3"
    assert environment["SLURM_NNODES"] == "2"
    assert "B" not in environment


# --- launchers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "launcher", "ranks", "total", "nodes"),
    [
        ("srun python train.py", "srun", None, None, None),
        ("srun -N 1 --ntasks-per-node 2 python train.py", "srun", 2, None, 1),
        ("srun -n8 --cpu-bind=none python train.py", "srun", None, 8, None),
        ("python train.py", "python", None, None, None),
        ("torchrun --nproc_per_node=4 --nnodes 2 train.py", "torchrun", 4, None, 2),
        ("python -m torch.distributed.run --nproc-per-node 4 train.py", "torchrun", 4, None, None),
        ("accelerate launch --num_processes 8 --num_machines 2 train.py", "accelerate", None, 8, 2),
        ("uv run --with x torchrun --nproc_per_node 2 train.py", "torchrun", 2, None, None),
        ("conda run -n env python train.py", "python", None, None, None),
        ("apptainer exec --nv -B /data:/data image.sif python train.py", "python", None, None, None),
        ("srun --container-image=a.sqsh --container-mounts=/a:/b bash -c 'python train.py'", "srun", None, None, None),
        ("srun --ntasks-per-node=1 torchrun --nproc_per_node 4 train.py", "torchrun", 4, None, None),
        ("srun torchrun --nproc_per_node 4 train.py", "torchrun", 16, None, None),
        ("nohup time python train.py", "python", None, None, None),
        ("mpirun -np 8 python train.py", "srun", None, 8, None),
        ("nsys profile -o out python train.py", "python", None, None, None),
    ],
)
def test_launch_lines(
    line: str, launcher: str, ranks: int | None, total: int | None, nodes: int | None, tmp_path: Path
) -> None:
    script = Script(tmp_path, f"{HEAD}{line}\n")
    assert (script.link.kind, script.link.target) == ("program", "train.py")
    assert script.link.launch.launcher == launcher
    assert (script.count("ranks_per_node"), script.count("total_ranks"), script.count("nodes")) == (ranks, total, nodes)


@pytest.mark.parametrize(
    ("line", "kind", "target"),
    [
        ("python -m pkg.train --x 1", "module", "pkg.train"),
        ("bash scripts/inner.sh 5", "script", "scripts/inner.sh"),
        ("wandb sweep --project p sweep.yaml", "sweep", "sweep.yaml"),
        ("axolotl train config.yaml", "program", "config.yaml"),
        ("python $(dirname $0)/train.py", "program", "train.py"),
        ("python /home/someone/project/train.py", "program", "train.py"),
        ("cd src/pkg && python train.py", "program", "src/pkg/train.py"),
        ("cd $SLURM_SUBMIT_DIR && srun python train.py", "program", "train.py"),
        ("sbatch scripts/inner.sh", "script", "scripts/inner.sh"),
        ('CMD="python train.py --a 1"\n$CMD', "program", "train.py"),
        ('CMD="python train.py --a 1"\neval $CMD', "program", "train.py"),
        ("run() { python train.py --bs $1; }\nrun 8", "program", "train.py"),
    ],
)
def test_targets(line: str, kind: str, target: str, tmp_path: Path) -> None:
    script = Script(tmp_path, f"{HEAD}{line}\n")
    assert (script.link.kind, script.link.target) == (kind, target)


def test_a_function_gets_its_words(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'run() { python train.py --bs "$1" "${@:2}"; }\nrun 8\n')
    assert script.words()[:2] == ["--bs", "8"]


# --- several launches -------------------------------------------------------------------------------------------------


def test_one_after_the_other_and_at_the_same_time(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        HEAD + "python train.py --a 1\npython train.py --a 2 &\npython train.py --a 3 &\nwait\npython train.py --a 4\n",
    )
    groups = [link.group for link in script.reading.links]
    assert groups[0] < groups[1] == groups[2] < groups[3]


def test_a_loop_over_listed_values_is_unrolled(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "for bs in 16 32; do\n  srun python train.py --bs $bs\ndone\n")
    assert [script.words(link) for link in script.reading.links] == [["--bs", "16"], ["--bs", "32"]]
    first, second = script.reading.links
    assert first.origin != second.origin
    assert first.group < second.group


def test_an_array_job_is_an_axis_over_its_indices(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        HEAD.replace("--nodes=2", "--nodes=2 --array=0-2")
        + "SIZES=(8 16 32)\nsrun python train.py --bs ${SIZES[$SLURM_ARRAY_TASK_ID]}\n",
    )
    [axis] = script.reading.axes
    assert isinstance(axis.domain, Choices)
    assert axis.domain.values == (0, 1, 2)
    value = script.link.words[1].value
    assert value is not None
    assert [evaluate(value, {axis.name: Const(index)}) for index in axis.domain.values] == ["8", "16", "32"]


def test_an_array_that_nothing_hangs_on_is_no_axis(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD.replace("--nodes=2", "--nodes=2 --array=0-2") + "srun python train.py\n")
    assert script.reading.axes == ()


# --- scripts within scripts -------------------------------------------------------------------------------------------


def test_a_script_called_with_words_sees_them(tmp_path: Path) -> None:
    words = (Word("", Const("64")), Word("--lr=", Const("0.1")))
    call = Call("job.sbatch", words, {}, Launch("srun", environment={"NAME": Const("x")}))
    script = Script(tmp_path, '#!/bin/bash\npython train.py --bs $1 "${2}" --name $NAME\n', "inner.sh", call)
    assert script.words() == ["--bs", "64", "--lr=0.1", "--name", "x"]


def test_a_sourced_file_sets_variables(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "source env.sh\nsrun python train.py --bs $BATCH\n", env_sh="BATCH=7\n")
    assert script.words() == ["--bs", "7"]
    assert script.reading.reads == ("env.sh",)


def test_directives_of_a_generated_script_are_not_this_ones(tmp_path: Path) -> None:
    text = HEAD + "cat <<EOF > other.sh\n#SBATCH --mem=1.5G\nEOF\nsrun python train.py\n"
    script = Script(tmp_path, text)
    assert script.reading.request is not None
    assert script.reading.request.memory is None
    assert script.reading.problems == ()


def test_a_source_that_is_not_there_sets_nothing(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "source ~/.bashrc\nsource job.sbatch\nsrun python train.py --bs $X\n")
    assert [script.words(link) for link in script.reading.links][-1] == ["--bs", "?"]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab=$ {}()[]\"'\\\n&|;<>#-1234567890srunpythotai.", max_size=80))
def test_no_script_crashes_the_reader(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        script = Script(Path(folder), HEAD + text + "\n")
        for link in script.reading.links:
            assert link.origin is None or link.origin.span.start <= len(script.text)


def test_places_are_exact_behind_quotes_and_wide_characters(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'echo "größer 🚀"\nsrun python train.py --bs="96" lr=0.1\n')
    bs, lr = (word.value for word in script.link.words)
    assert isinstance(bs, Const)
    assert isinstance(lr, Const)
    assert script.at(bs.origin).strip('"') == "96"
    assert script.at(lr.origin) == "0.1"
    assert isinstance(script.link.origin, Origin)
    assert isinstance(script.link.origin.span, Span)


def test_nothing_runs_behind_exit(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "[ -f x ] || exit 1\npython train.py --a 1\nexit 0\npython train.py --a 2\n")
    assert script.words() == ["--a", "1"]


def test_an_array_of_words_is_passed_on_as_words(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'ARGS=(--bs 16)\nARGS+=(--name "a b")\npython train.py "${ARGS[@]}"\n')
    assert script.words() == ["--bs", "16", "--name", "a b"]


@pytest.mark.parametrize(
    "body",
    [
        "X=a\n" + "X=$X$X$X$X\n" * 60,
        "X=a\nfor i in {1..60}; do X+=$X; done\n",
        "for a in {1..60}; do for b in {1..60}; do for c in {1..60}; do Y=$a$b$c; done; done; done\n",
        "f() { f; f; f; f; }\nf\n",
        "for a in {1..99999}; do X=$a; done\n",
        "source job.sbatch\n" * 20,
    ],
)
def test_hostile_scripts_end_in_time(body: str, tmp_path: Path) -> None:
    import time

    start = time.monotonic()
    script = Script(tmp_path, HEAD + body + "python train.py --x $X\n")
    assert time.monotonic() - start < 10
    assert script.reading.links or "source" in body or "60}; do for" in body


def test_braces_in_a_loop(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + "for s in {0..2}; do python train.py --seed $s; done\n")
    assert [script.words(link)[1] for link in script.reading.links] == ["0", "1", "2"]


def test_a_command_kept_in_variables_within_variables(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        HEAD
        + 'LEN=2048\nOPT_ARGS=" \\\n  --lr 6e-5 \\\n  "\nARGS=" \\\n  --length $LEN --bs 4 \\\n  $OPT_ARGS \\\n  "\n'
        + 'export LAUNCHER="python -m torch.distributed.launch \\\n  --nproc_per_node 4 --role `hostname -s`: \\\n  "\n'
        + 'export CMD=" \\\n  `pwd`/train.py $ARGS --fp16 \\\n  "\n'
        + "srun --jobid $SLURM_JOBID --ntasks-per-node=1 bash -c '$LAUNCHER --rank $SLURM_PROCID $CMD' | tee log\n",
    )
    assert (script.link.target, script.count("ranks_per_node")) == ("train.py", 4)
    assert script.words() == ["--length", "2048", "--bs", "4", "--lr", "6e-5", "--fp16"]
    values = [word.value for word in script.link.words if word.value is not None]
    shown = [script.at(value.origin) for value in values if isinstance(value, Const)]
    assert shown == ["2048", "4", "6e-5"]


def test_a_script_that_submits_jobs_leads_to_them(tmp_path: Path) -> None:
    text = "#!/bin/bash\nfor lr in 1 2; do\n  for bs in 8 16; do\n    sbatch scripts/inner.sh $lr $bs\n  done\ndone\n"
    inner = "#!/bin/bash\n#SBATCH --mem=4G\npython train.py --bs $2\n"
    script = Script(tmp_path, text, "submit.sh", scripts_inner_sh=inner)
    assert script.recognised
    assert len({link.origin for link in script.reading.links}) == 4
    assert [script.words(link) for link in script.reading.links][1] == ["1", "16"]


def test_a_script_that_starts_itself_is_nobodys(tmp_path: Path) -> None:
    assert not Script(tmp_path, "#!/bin/bash\nbash loop.sh\n", "loop.sh").recognised


# --- where a script stands, and what it may or may not say ----------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "target"),
    [
        ("", "exp/train.py"),
        ("cd $SLURM_SUBMIT_DIR", "exp/train.py"),
        ("cd ..", "train.py"),
        ('cd "$(dirname "$0")"', "exp/train.py"),
        ('cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")"', "exp/train.py"),
        ('HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" &> /dev/null && pwd)"\ncd $HERE/..', "train.py"),
        ('cd "${0%/*}/.."', "train.py"),
        ("cd $(git rev-parse --show-toplevel)", "train.py"),
        ("cd /home/me/work/exp", "exp/train.py"),
        ("cd /workspace", "train.py"),
        ("cd $SOMEWHERE", "train.py"),
        ("cd ../src/pkg", "src/pkg/train.py"),
        ("cd src/pkg", "src/pkg/train.py"),
    ],
)
def test_which_of_several_programs_of_one_name(lines: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp/train.py").write_text("pass\n")
    script = Script(tmp_path, f"{HEAD}{lines}\npython train.py --bs 8\n", "exp/job.sbatch")
    assert script.link.target == target


def test_words_added_under_a_condition_may_or_may_not_be_there(tmp_path: Path) -> None:
    body = (
        'ARGS=(--model $M --bs 16)\nif [[ $DEBUG ]]; then\n  ARGS+=(--bs 1 --fast)\nfi\npython train.py "${ARGS[@]}"\n'
    )
    script = Script(tmp_path, f"{HEAD}M=gpt2\n{body}")
    assert script.words() == ["--model", "gpt2", "--bs", "16", "--bs", "?", "--fast=?"]


def test_text_added_under_a_condition_may_or_may_not_be_there(tmp_path: Path) -> None:
    body = 'CMD="train.py --bs 16"\nif [ -n "$X" ]; then CMD="$CMD --bs 1 lr=3"; fi\npython $CMD\n'
    assert Script(tmp_path, HEAD + body).words() == ["--bs", "16", "--bs", "?", "lr=?"]


def test_an_array_that_is_made_anew_under_a_condition_is_unknown(tmp_path: Path) -> None:
    body = 'ARGS=(--bs 16)\nif [ $X ]; then ARGS=(--bs 1); fi\npython train.py "${ARGS[@]}"\n'
    assert Script(tmp_path, HEAD + body).words() == ["?"]


@pytest.mark.parametrize(
    ("quoted", "words"), [('"$A"', ["a b"]), ("$A", ["a", "b"]), ('"${B[@]}" -x', ["1", "2", "-x"])]
)
def test_arrays_of_expansions(quoted: str, words: list[str], tmp_path: Path) -> None:
    script = Script(tmp_path, f'{HEAD}A="a b"\nB=(1 2)\nARGS=({quoted})\npython train.py "${{ARGS[@]}}"\n')
    assert script.words() == words


def test_a_sweep_whose_number_is_kept_is_the_sweep_that_is_run(tmp_path: Path) -> None:
    body = "ID=$(wandb sweep --project p sweep.yaml 2>&1 | awk '/agent/{print $NF}')\nwandb agent --count 3 $ID\n"
    script = Script(tmp_path, HEAD + body)
    assert (script.link.kind, script.link.target, script.link.launch.launcher) == ("sweep", "sweep.yaml", "wandb-agent")


def test_a_substitution_that_submits_nothing_starts_nothing(tmp_path: Path) -> None:
    script = Script(tmp_path, f"{HEAD}PORT=$(python train.py --port)\necho $PORT\n")
    assert script.reading.links == ()


def test_a_command_string_with_an_equals_sign_is_one_string(tmp_path: Path) -> None:
    script = Script(
        tmp_path, f'{HEAD}apptainer exec --nv x.sif bash -c "torchrun --nproc_per_node=4 train.py --bs 9"\n'
    )
    assert script.words() == ["--bs", "9"]
    assert script.count("ranks_per_node") == 4
    assert script.at(script.link.words[1].origin) == "9"


def test_a_string_continued_over_lines(tmp_path: Path) -> None:
    script = Script(tmp_path, HEAD + 'A=train.py\nB="--bs 4"\nCMD="$A \\\n  $B \\\n  --lr=1"\npython $CMD\n')
    assert script.words() == ["--bs", "4", "--lr=1"]
