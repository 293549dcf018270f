"""Job scripts within job scripts, where they stand, and what they may or may not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_scripts import HEAD, Script

from preflight.vocabulary.reading import Call, Launch, Word
from preflight.vocabulary.values import Cause, Const, Origin, Span, Unknown

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


@settings(max_examples=60)
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

    start = time.process_time()
    script = Script(tmp_path, HEAD + body + "python train.py --x $X\n")
    assert time.process_time() - start < 10
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
    ranks = ["--local_rank=0", "--local-rank=0"]  # what this launcher puts before the words
    assert script.words() == [*ranks, "--length", "2048", "--bs", "4", "--lr", "6e-5", "--fp16"]
    values = [word.value for word in script.link.words[len(ranks) :] if word.value is not None]
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


@pytest.mark.parametrize(
    "line",
    [
        "$(which torchrun) --nproc_per_node 2 train.py --bs 8",
        "`which torchrun` --nproc_per_node 2 train.py --bs 8",
        "RUN=$(command -v torchrun 2>/dev/null)\n$RUN --nproc_per_node 2 train.py --bs 8",
        '"$(type -P python3)" -m torch.distributed.run --nproc_per_node 2 train.py --bs 8',
    ],
)
def test_a_program_that_is_looked_for_on_the_path(line: str, tmp_path: Path) -> None:
    script = Script(tmp_path, f"{HEAD}{line}\n")
    assert script.link.target == "train.py"
    assert script.link.launch.launcher == "torchrun"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("pass\n")
    script = Script(tmp_path, f"{HEAD}#SBATCH --gres=gpu:1\npython src/x.py\n")
    [binding] = script.reading.bindings
    assert binding.field == "model.name"
    assert isinstance(binding.expr, Const)
    assert isinstance(binding.expr.value, Unknown)
    assert binding.expr.value.cause is Cause.file_not_found
    assert binding.expr.value.words.startswith("src/x.py, which job.sbatch starts")
    assert script.at(binding.origin) == "src/x.py"


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


@pytest.mark.parametrize(
    ("option", "target"),
    [
        ("", "train.py"),
        ("#SBATCH --chdir=src/pkg\n", "src/pkg/train.py"),
        ("#SBATCH -D src/pkg\n", "src/pkg/train.py"),
        ("#SBATCH --chdir=/home/me/project/src/pkg\n", "src/pkg/train.py"),
        ("#SBATCH --chdir=/home/me/elsewhere\n", "train.py"),
    ],
)
def test_a_script_starts_in_the_directory_of_chdir(option: str, target: str, tmp_path: Path) -> None:
    assert Script(tmp_path, f"{HEAD}{option}srun python train.py\n").link.target == target
