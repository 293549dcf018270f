"""Large trees that are timed: a monorepo, a Hydra tree, folders of job scripts. The same at every run.

python benchmarks/speed/trees.py KIND COUNT FOLDER    writes one of them, to be looked at or profiled
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import projects

Files = Iterator[tuple[str, str]]

PARAGRAPH = (
    "def step_{i}_{j}(values: list[float], scale: float = {j}.5) -> list[float]:\n"
    "    return [scale * value for value in values if value > {i}]\n\n\n"
)
YAML_ROW = (
    "  service-{i}-{j}:\n    image: web:{j}.2\n    ports: [80, {j}]\n    environment: {{LEVEL: info, REGION: r{i}}}\n"
)
TEXT_ROW = "Row {j} of page {i}: nothing to read here, but some sixty characters of prose.\n"


def monorepo(count: int) -> Files:
    """`count` files of a median of 4 kB, in folders of 50; every 200th is a launch: a sweep or a script."""
    for i in range(count):
        folder = f"area{i // 2000}/package{i // 50}"
        if i % 200 == 0:
            yield f"{folder}/train.py", projects.PROGRAM
            kind = i // 200 % 2
            yield (f"{folder}/sweep.yaml", projects.SWEEP) if kind else (f"{folder}/train.slurm", projects.SCRIPT)
        elif i % 10 < 6:
            text = projects.MODULE + "\n\n" + "".join(PARAGRAPH.format(i=i, j=j) for j in range(30))
            yield f"{folder}/module{i}.py", text
        elif i % 10 < 8:
            yield f"{folder}/values{i}.yaml", "services:\n" + "".join(YAML_ROW.format(i=i, j=j) for j in range(40))
        elif i % 10 == 8:
            yield f"{folder}/tool{i}.sh", projects.SHELL * 40
        else:
            yield f"{folder}/page{i}.md", "".join(TEXT_ROW.format(i=i, j=j) for j in range(60))


def hydra(count: int) -> Files:
    """A Hydra tree of about `count` files: 20 primary configs, groups of models, data, loggers and debug options."""
    yield "train.py", projects.HYDRA_PROGRAM
    body = "  - _self_\noptim:\n  lr: 3e-4\nseed: {seed}\n"
    for k in range(20):
        chosen = f"defaults:\n  - model: model{k}\n  - data: data{k}\n  - logger: logger{k}\n  - debug: debug0\n"
        name = "config" if k == 0 else f"config{k}"
        yield f"conf/{name}.yaml", chosen + body.format(seed=k)
    names = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
    each = (count - 21) // 5
    for i in range(each):
        yield f"conf/model/model{i}.yaml", f"name: {names[i % 4]}\n"
        yield f"conf/data/data{i}.yaml", f"batch_size: {8 + 8 * (i % 4)}\nseq_len: {512 * (1 + i % 2)}\nworkers: 4\n"
        yield f"conf/logger/logger{i}.yaml", f"project: p{i}\noffline: false\ntags: [a, b]\n"
        yield f"conf/debug/debug{i}.yaml", f"level: {i}\nprofile: false\n"
        experiment = (
            f"# @package _global_\ndefaults:\n  - override /model: model{i}\n  - override /data: data{i}\nseed: {i}\n"
        )
        yield f"conf/experiment/run{i}.yaml", experiment


def scripts(count: int) -> Files:
    """`count` job scripts with arrays over one program."""
    yield "train.py", projects.PROGRAM
    for i in range(count):
        script = projects.SCRIPT.replace("#SBATCH --time", f"#SBATCH --array=0-{7 + i % 8}\n#SBATCH --time")
        script = script.replace("MODEL=bert", "SIZES=(8 12 16 20 24 28 32 36 40 44 48 52 56 60 64)\nMODEL=bert")
        yield f"jobs/job{i}.sbatch", script.replace("--batch_size 32", '--batch_size "${SIZES[$SLURM_ARRAY_TASK_ID]}"')


TREES: dict[str, Callable[[int], Files]] = {"monorepo": monorepo, "hydra": hydra, "scripts": scripts}


def write(kind: str, count: int, folder: Path) -> None:
    for name, text in TREES[kind](count):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "preflight.toml").write_text(projects.SETTINGS, encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
