"""Job scripts: which programs they start, with which words, on how many processes; and what stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_scripts import HEAD, Script

from preflight.vocabulary.values import Choices, Const, evaluate

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


@pytest.mark.parametrize(
    ("commands", "trains"),
    [
        ("module load cuda\njupyter lab --no-browser --port=8888\n", False),
        ("srun jupyter-notebook --ip=0.0.0.0\n", False),
        ("code-server --port 8080\n", False),
        ("python -m jupyter lab --no-browser --port=8888\n", False),
        ("srun python3 -m jupyterlab --ip=0.0.0.0\n", False),
        ("python -m notebook &\npython -m tensorboard.main --logdir runs\n", False),
        ("python -m jupyter nbconvert --execute train.ipynb\n", True),
        ("python -m jupyter lab &\npython -m package.train\n", True),
        ("jupyter nbconvert --execute train.ipynb\n", True),
        ("jupyter lab &\n./train_all\n", True),
    ],
)
def test_a_server_that_people_work_in_is_no_training(commands: str, trains: bool, tmp_path: Path) -> None:
    script = Script(tmp_path, f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{commands}")
    assert script.reading.trains is trains


def test_a_module_of_the_project_is_no_server_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text("import torch\nif __name__ == '__main__':\n    loss.backward()\n")
    script = Script(tmp_path, "#!/bin/bash\n#SBATCH --gres=gpu:1\npython -m notebook\n")
    assert script.reading.trains
    assert [link.target for link in script.reading.links] == ["notebook"]


@pytest.mark.parametrize("name", ["launch.sh", "launch.zsh", "launch"])
def test_a_plain_script_is_read_with_no_request(name: str, tmp_path: Path) -> None:
    script = Script(tmp_path, "#!/bin/bash\npython train.py --bs 4\n", name)
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
        ("preflight run -- python train.py", "python", None, None, None),
        ("srun -n8 preflight run --retry 2 -- python train.py", "srun", None, 8, None),
        ("preflight run --mode enforce -- torchrun --nproc_per_node 4 train.py", "torchrun", 4, None, None),
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
