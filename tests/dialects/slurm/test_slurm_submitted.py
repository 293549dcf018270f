"""Jobs that a script submits: each with the options, the variables and the arguments of its own `sbatch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.study import build
from preflight.study.follow import Follower
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Request
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Study
from preflight.vocabulary.values import Unknown, Value, evaluate

TRAIN = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=1)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", per_device_train_batch_size=parser.parse_args().bs)).train()
"""
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\n#SBATCH --mem=8G\npython train.py --bs ${BS:-$1}\n"
GIB = 2**30


def submitted(root: Path, text: str, job: str = JOB) -> tuple[Study, ...]:
    (root / "train.py").write_text(TRAIN)
    (root / "job.sh").write_text(job)
    (root / "run.sh").write_text(f"#!/bin/bash\n{text}\n")
    return build.build(["run.sh"], Project(root, Settings()))[0]


def batch(study: Study) -> Value:
    bound = study.boxes[0].fields.get("train.batch_size")
    value = None if bound is None else evaluate(bound.expr)
    return None if isinstance(value, Unknown) else value


def asked(study: Study) -> Request:
    assert study.request is not None
    return study.request


@pytest.mark.parametrize(
    "text",
    [
        "sbatch --version",
        "sbatch --test-only job.sh",
        "sbatch --mem=4G",  # the script comes from a standard input that is not known
        'sbatch --wrap "echo done"',
        "sbatch other.sh",
        "sbatch <<EOF\n#!/bin/bash\n#SBATCH --mem=1G\nsqueue\nEOF",
        "cat <<EOF > text.txt\nsbatch job.sh\nEOF",
        "tmux attach -t 0",
        "tmux new -d 'htop'",
        "screen -ls",
        "parallel echo {} ::: 1 2",
        "ls | xargs -n 1 wc -l",
        "bash <<EOF\nls -l\nEOF",
    ],
)
def test_what_starts_no_training(text: str, tmp_path: Path) -> None:
    assert submitted(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the command line overrides the directives, and variables and arguments reach the script
        ("sbatch --mem=32G --export=ALL,BS=4 job.sh", [(4, 32, 1)]),
        ("sbatch --mem 32G --gres gpu:a100:2 --export ALL,BS=4 job.sh", [(4, 32, 2)]),
        ("sbatch -n1 --gpus-per-node=2 job.sh 4", [(4, 8, 2)]),
        ("for bs in 4 8; do sbatch --mem=${bs}G job.sh $bs; done", [(4, 4, 1), (8, 8, 1)]),
        ("for bs in 4 8; do sbatch --export=LR=1e-3,BS=$bs job.sh; done", [(4, 8, 1), (8, 8, 1)]),
        ("export BS=4\nsbatch job.sh", [(4, 8, 1)]),
        ("BS=4 sbatch job.sh", [(4, 8, 1)]),
        ("export BS=4\nsbatch --export=NONE job.sh 8", [(8, 8, 1)]),
        ("export BS=4\nsbatch --export=LR job.sh 8", [(8, 8, 1)]),
        ("SBATCH_MEM_PER_NODE=16G sbatch --export=BS=4 job.sh", [(4, 16, 1)]),
        ("J=$(sbatch --parsable --export=BS=4 job.sh)", [(4, 8, 1)]),
        # what is not known
        ("sbatch --mem=$MEM job.sh 4", [(4, None, 1)]),
        ("sbatch $OPTIONS job.sh 4", [(4, None, None)]),
        ("sbatch --export=$VARIABLES job.sh", [(None, 8, 1)]),
        # the job's text stands in the script
        ('sbatch --mem=4G --gres=gpu:2 --wrap="python train.py --bs 4"', [(4, 4, 2)]),
        ("sbatch --mem=4G -G 2 --wrap 'python train.py --bs 4'", [(4, 4, None)]),
        ('BS=4\nsbatch --mem=4G --gres=gpu:2 --wrap "srun python train.py --bs $BS"', [(4, 4, 2)]),
        ("sbatch --gres=gpu:2 <<EOF\n#!/bin/bash\n#SBATCH --mem=4G\npython train.py --bs 4\nEOF", [(4, 4, 2)]),
        ("M=4\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --mem=${M}G --gres=gpu:1\npython train.py --bs $M\nEOF", [(4, 4, 1)]),
        ("sbatch --gres=gpu:1 <<EOF\n#!/bin/bash\n#SBATCH --mem=${M}G\npython train.py --bs 4\nEOF", [(4, None, 1)]),
        ("cat > j.sh <<EOF\n#!/bin/bash\n#SBATCH --mem=4G --gres=gpu:1\npython train.py --bs 4\nEOF\nsbatch j.sh",
         [(4, 4, 1)]),
        ("cat > j.sh <<EOF\n#!/bin/bash\n#SBATCH --mem=4G --gres=gpu:1\npython train.py --bs 4\nEOF\n"
         "sbatch --mem=6G j.sh", [(4, 6, 1)]),
    ],
)  # fmt: skip
def test_each_job_has_its_own_request(text: str, expected: list[tuple[Value, Value, Value]], tmp_path: Path) -> None:
    def known(value: Value) -> Value:
        return None if isinstance(value, Unknown) else value

    found = []
    for study in submitted(tmp_path, text):
        memory = known(asked(study).memory)
        found.append(
            (batch(study), memory // GIB if isinstance(memory, int) else None, known(asked(study).gpus_per_node))
        )
    assert found == expected


def test_a_place_of_its_own_for_each_submission(tmp_path: Path) -> None:
    first, second = submitted(tmp_path, "sbatch --mem=4G job.sh 4\nsbatch --mem=6G job.sh 8")
    places = [asked(one).origins["memory"] for one in (first, second)]
    text = (tmp_path / "run.sh").read_text()
    assert [text[one.span.start : one.span.end] for one in places] == ["4G", "6G"]
    assert [one.path for one in places] == ["run.sh", "run.sh"]


def test_a_directive_in_a_here_document_has_its_place(tmp_path: Path) -> None:
    text = (
        "for b in 4 8; do\nsbatch <<EOF\n#!/bin/bash\n#SBATCH --mem=4G --gres=gpu:1\npython train.py --bs $b\nEOF\ndone"
    )
    studies = submitted(tmp_path, text)
    assert [batch(one) for one in studies] == [4, 8]
    place = asked(studies[0]).origins["memory"]
    assert (tmp_path / "run.sh").read_text()[place.span.start : place.span.end] == "4G"
    assert asked(studies[0]).insert_at is None


def test_the_index_of_an_array_that_the_command_line_states(tmp_path: Path) -> None:
    job = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py --bs $SLURM_ARRAY_TASK_ID\n"
    (study,) = submitted(tmp_path, "sbatch --array=1-3 job.sh", job)
    assert [axis.name for box in study.boxes for axis in box.axes] == ["SLURM_ARRAY_TASK_ID"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tmux new -d 'python train.py --bs 4'", [4]),
        ('tmux new-session -d -s a "cd . && python train.py --bs 4"', [4]),
        ('tmux send-keys -t a "python train.py --bs 4" C-m', [4]),
        ("screen -dm python train.py --bs 4", [4]),
        ('screen -dmS name bash -c "python train.py --bs 4"', [4]),
        ("parallel -j 2 python train.py --bs {} ::: 4 8", [4, 8]),
        ("parallel 'python train.py --bs {}' ::: 4 8", [4, 8]),
        ('for b in 4 8; do bash -c "python train.py --bs $b"; done', [4, 8]),
        ("parallel python train.py --bs {2} --x {1} ::: a ::: 4 8", [4, 8]),
        ("parallel -j 1 python train.py --bs {} ::: 4 8", [None]),
        ("parallel python train.py --bs {} < values.txt", [None]),
        ("echo 4 8 | xargs -n 1 python train.py --bs", [None]),
        ("echo 4 8 | xargs -I{} python train.py --bs {}", [None]),
        ("bash <<EOF\npython train.py --bs 4\nEOF", [4]),
        ("srun --gpus=1 bash -s <<'EOF'\npython train.py --bs 4\nEOF", [4]),
        ("CUDA_VISIBLE_DEVICES=0 nohup nice -n 5 python train.py --bs 4 > log 2>&1 &", [4]),
        ("srun singularity exec --nv i.sif bash -c 'python train.py --bs 4'", [4]),
        ("conda run --no-capture-output -n env python train.py --bs 4", [4]),
    ],
)
def test_commands_that_start_other_commands(text: str, expected: list[Value], tmp_path: Path) -> None:
    assert [batch(one) for one in submitted(tmp_path, text)] == expected


def test_a_makefile_that_submits(tmp_path: Path) -> None:
    submitted(tmp_path, "ls")
    (tmp_path / "Makefile").write_text('train:\n\tsbatch --mem=4G --gres=gpu:1 --wrap "python train.py --bs 4"\n')
    follower = Follower(Project(tmp_path, Settings()))
    (chain,) = follower.chains("Makefile")
    assert [one.reading.path for one in chain] == ["Makefile", "Makefile", "train.py"]
    request = chain[1].reading.request
    assert request is not None
    assert request.memory == 4 * GIB


BARE = "#!/bin/bash\npython train.py --bs 4\n"


def test_a_word_that_may_be_any_option_leaves_no_default(tmp_path: Path) -> None:
    """The script states nothing: what it gets is not one node, one task and no GPU."""
    (tmp_path / "bare.sh").write_text(BARE)
    [study] = submitted(tmp_path, "sbatch $OPTIONS bare.sh")
    request = asked(study)
    for value in (request.nodes, request.tasks_per_node, request.cpus_per_task, request.memory, request.gpus_per_node):
        assert isinstance(value, Unknown)
    assert not study.problems


@pytest.mark.parametrize(
    ("option", "step", "visible"),
    [
        ("--gpus-per-task=2", "srun", "0,1"),
        ("--gpus-per-task=2", "srun --gpus-per-task=1", "0"),
        ("--gres=gpu:2", "srun", None),
    ],
)
def test_steps_have_the_gpus_per_task_of_their_job(option: str, step: str, visible: str | None, tmp_path: Path) -> None:
    text = f'sbatch -n1 {option} --wrap="{step} python train.py --bs 4"'
    [study] = submitted(tmp_path, text)
    given = study.launch.environment.get("CUDA_VISIBLE_DEVICES")
    assert (None if given is None else evaluate(given)) == visible
