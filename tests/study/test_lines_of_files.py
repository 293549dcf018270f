"""Scripts that take their settings from the lines of a file: one combination for each line, blamed at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs_as_text import FLAGS_LOOP as PROGRAM

from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Cause, Choices, Const, Unknown, Value, evaluate

HEAD = "#!/bin/bash\n#SBATCH --gres=gpu:1\n"
STATED = "#SBATCH --array=1-3\n"
TABLE = "8 1\n16 2\n64 6\n"
CSV = "8,1\n16,2\n64,6\n"
FLAGS = "--batch_size 8 --workers 1\n--batch_size 16 --workers 2\n--batch_size 64 --workers 6\n"
RAGGED = "--batch_size 8\n--batch_size 16 --workers 2\n--workers 6 --batch_size 64\n"
COMMANDS = "python train.py --batch_size 8 --workers 1\npython train.py --batch_size 16 --workers 2\n"


def studies(root: Path, script: str, head: str = HEAD + STATED, **more: str) -> tuple[Study, ...]:
    files = {
        "job.sh": head + script, "train.py": PROGRAM, "table.txt": TABLE, "table.csv": CSV, "flags.txt": FLAGS,
        "ragged.txt": RAGGED, "commands.sh": COMMANDS, **more,
    }  # fmt: skip
    for name, text in files.items():
        (root / name).write_text(text)
    return build(["job.sh"], Project(root, Settings()))[0]


def pairs(found: tuple[Study, ...]) -> list[tuple[Value, Value]]:
    """The batch size and the workers of each combination of each study; `?` for an unknown."""
    listed = []
    for study in found:
        (box,) = study.boxes
        axes = [axis for axis in box.axes if isinstance(axis.domain, Choices)]
        values = axes[0].domain.values if axes and isinstance(axes[0].domain, Choices) else (None,)
        for value in values:
            env = {axes[0].name: Const(value)} if axes else {}
            one = [evaluate(box.fields[name].expr, env) for name in ("train.batch_size", "data.workers")]
            listed.append(tuple("?" if isinstance(each, Unknown) else each for each in one))
    return listed  # type: ignore[return-value]


ALL: list[tuple[Value, Value]] = [(8, 1), (16, 2), (64, 6)]
TWO = "python train.py --batch_size $B --workers $W\n"
ONE = "python train.py --batch_size $1 --workers $2\n"
LINE = "python train.py --batch_size $LINE --workers $LINE\n"
FIRST = "python train.py --batch_size ${P[0]} --workers ${P[1]}\n"


# --- what must stay unknown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        'LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" other.txt)\n' + LINE,
        'LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" /data/table.txt)\n' + LINE,
        'LINE=$(shuf -n 1 table.txt)\n' + LINE,
        'LINE=$(sed -n "${N}p" table.txt)\n' + LINE,
        'LINE=$(sed -n "/8/p" table.txt)\n' + LINE,
        'python make.py > table.txt\nread -r B W < table.txt\n' + TWO,
        "cat table.txt | sort -r | while read -r B W; do\n" + TWO + "done\n",
    ],
)  # fmt: skip
def test_lines_that_are_not_known_stay_unknown(script: str, tmp_path: Path) -> None:
    assert pairs(studies(tmp_path, script)) == [("?", "?")]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    script = 'B=$(sed -n "${SLURM_ARRAY_TASK_ID}p" other.txt)\npython train.py --batch_size $B\n'
    (study,) = studies(tmp_path, script)
    value = evaluate(study.boxes[0].fields["train.batch_size"].expr)
    assert isinstance(value, Unknown)
    assert value.cause is Cause.file_not_found
    assert "other.txt" in value.words


def test_a_file_of_too_many_lines_is_unknown(tmp_path: Path) -> None:
    script = 'B=$(sed -n "${SLURM_ARRAY_TASK_ID}p" long.txt)\npython train.py --batch_size $B\n'
    (study,) = studies(tmp_path, script, **{"long.txt": "8\n" * 100_000})
    value = evaluate(study.boxes[0].fields["train.batch_size"].expr)
    assert isinstance(value, Unknown)
    assert value.cause is Cause.budget


def test_an_index_without_a_line_is_unknown_for_that_index_alone(tmp_path: Path) -> None:
    script = 'read -r B W <<< "$(sed -n "${SLURM_ARRAY_TASK_ID}p" table.txt)"\n' + TWO
    found = pairs(studies(tmp_path, script, HEAD + "#SBATCH --array=0-3\n"))
    assert found == [("?", "?"), *ALL]


# --- what must be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        'LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" table.txt)\nread -r B W <<< "$LINE"\n' + TWO,
        'LINE=`sed -n ${SLURM_ARRAY_TASK_ID}p table.txt`\nset -- $LINE\n' + ONE,
        'LINE=$(sed "${SLURM_ARRAY_TASK_ID}q;d" table.txt)\nP=($LINE)\n' + FIRST,
        'LINE=$(awk "NR==$SLURM_ARRAY_TASK_ID" table.txt)\n'
        'B=$(echo $LINE | cut -d" " -f1)\nW=$(echo "$LINE" | awk \'{print $2}\')\n' + TWO,
        'B=$(awk -v n=$SLURM_ARRAY_TASK_ID \'NR==n {print $1}\' table.txt)\n'
        'W=$(awk "NR==$SLURM_ARRAY_TASK_ID {print \\$2}" table.txt)\n' + TWO,
        'LINE=$(head -n $SLURM_ARRAY_TASK_ID table.csv | tail -n 1)\nIFS=, read -r B W <<< "$LINE"\n' + TWO,
        'B=$(cat table.csv | head -$SLURM_ARRAY_TASK_ID | tail -1 | cut -d, -f1)\n'
        'W=$(sed -n "${SLURM_ARRAY_TASK_ID}p" < table.csv | cut -d , -f 2 2>/dev/null)\n' + TWO,
        'mapfile -t L < table.txt\nread -r B W <<< "${L[$((SLURM_ARRAY_TASK_ID - 1))]}"\n' + TWO,
        'readarray -t L < <(cat table.txt)\nread -r B W <<< "${L[$((SLURM_ARRAY_TASK_ID - 1))]}"\n' + TWO,
        'IFS="," read -ra P <<< $(sed -n "${SLURM_ARRAY_TASK_ID}p" table.csv)\n' + FIRST,
        'python train.py $(sed -n "${SLURM_ARRAY_TASK_ID}p" flags.txt)\n',
        'ARGS=$(sed -n "${SLURM_ARRAY_TASK_ID}p" "$SLURM_SUBMIT_DIR/flags.txt")\nsrun python train.py $ARGS\n',
        'ARGS=($(sed -n "${SLURM_ARRAY_TASK_ID}p" $(dirname $0)/flags.txt))\nsrun python train.py "${ARGS[@]}"\n',
        'CMD="python train.py $(sed -n "${SLURM_ARRAY_TASK_ID}p" flags.txt)"\neval $CMD\n',
        'CMD="python train.py $(sed -n "${SLURM_ARRAY_TASK_ID}p" flags.txt)"\nsrun bash -c "$CMD"\n',
        "while read -r B W; do\n" + TWO + "done < table.txt\n",
        "cat table.csv | while IFS=, read -r B W; do\n" + TWO + "done\n",
        "while read -r ARGS; do\npython train.py $ARGS\ndone < flags.txt\n",
        'for P in $(cat table.csv); do\nB=$(echo $P | cut -d, -f1)\nW=$(echo $P | cut -d, -f2)\n' + TWO + "done\n",
        "for N in $(seq 1 3); do\nread -r B W <<< $(sed -n ${N}p table.txt)\n" + TWO + "done\n",
    ],
)  # fmt: skip
def test_each_line_is_a_combination(script: str, tmp_path: Path) -> None:
    assert pairs(studies(tmp_path, script)) == ALL


@pytest.mark.parametrize(
    ("array", "expected"),
    [("", ALL), ("2-3", ALL[1:]), ("1-3%2", ALL), ("1,3", [ALL[0], ALL[2]])],
)
def test_the_array_limits_the_lines(array: str, expected: list[tuple[Value, Value]], tmp_path: Path) -> None:
    script = 'read -r B W <<< "$(sed -n "${SLURM_ARRAY_TASK_ID}p" table.txt)"\n' + TWO
    assert pairs(studies(tmp_path, script, HEAD + (f"#SBATCH --array={array}\n" if array else ""))) == expected


def test_lines_with_other_options_are_launches_of_their_own(tmp_path: Path) -> None:
    script = "python train.py $(sed -n ${SLURM_ARRAY_TASK_ID}p ragged.txt)\n"
    found = studies(tmp_path, script)
    assert [pairs((study,)) for study in found] == [[(8, 4)], [(16, 2)], [(64, 6)]]


@pytest.mark.parametrize("start", ["eval $LINE", 'eval "$LINE"', "$LINE", 'bash -c "$LINE"', "srun $LINE"])
def test_a_line_may_be_a_command(start: str, tmp_path: Path) -> None:
    script = f'LINE=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" commands.sh)\n{start}\n'
    assert pairs(studies(tmp_path, script, HEAD + "#SBATCH --array=0-1\n")) == ALL[:2]


def test_the_line_is_blamed(tmp_path: Path) -> None:
    script = "python train.py $(sed -n ${SLURM_ARRAY_TASK_ID}p flags.txt)\n"
    (study,) = studies(tmp_path, script)
    (axis,) = study.boxes[0].axes
    assert isinstance(axis.domain, Choices)
    places = [origin for origin in axis.domain.origins if origin is not None]
    assert [(place.path, FLAGS[place.span.start : place.span.end]) for place in places] == [
        ("flags.txt", "8"), ("flags.txt", "16"), ("flags.txt", "64"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        "read -r -d '' ARGS <<EOF\n--batch_size 8 \\\n  --workers 1\nEOF\npython train.py $ARGS\n",
        "N=8\nread -r -d '' CMD <<EOF\ntrain.py --batch_size $N\n --workers 1\nEOF\nsrun python $CMD\n",
        'cat > table.txt <<EOF\n8 1\nEOF\nread -r B W < table.txt\n' + TWO,
        'cat <<EOF > new.txt\n8 1\nEOF\nread -r B W < new.txt\n' + TWO,
        'read -r B W <<< "8 1"\n' + TWO,
        "B=8\nW=$(echo a,1 | cut -d, -f2)\n" + TWO,
        "B=$(grep batch table.ini | awk '{print $2}')\n"
        "W=$(grep '^workers' table.ini | tr ':' ' ' | awk '{print $NF}')\n" + TWO,
    ],
)  # fmt: skip
def test_texts_of_the_script_are_read(script: str, tmp_path: Path) -> None:
    assert pairs(studies(tmp_path, script, **{"table.ini": "batch: 8\nworkers:1\n"})) == ALL[:1]


def test_a_file_that_may_have_been_there_before_is_unknown(tmp_path: Path) -> None:
    script = "if [ ! -f table.txt ]; then\ncat > table.txt <<EOF\n8 1\nEOF\nfi\nread -r B W < table.txt\n" + TWO
    assert pairs(studies(tmp_path, script)) == [("?", "?")]


@pytest.mark.parametrize("values", ["{1..3}", "$(seq 3)", "$(seq 1 3)", "1 2 3"])
def test_each_value_of_a_loop_is_a_launch(values: str, tmp_path: Path) -> None:
    script = f"for N in {values}; do python train.py --batch_size $N --workers 1; done\n"
    assert pairs(studies(tmp_path, script)) == [(1, 1), (2, 1), (3, 1)]
