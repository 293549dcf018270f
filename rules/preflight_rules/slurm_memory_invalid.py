from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import TRAIN, job

BROKEN = job("--gres=gpu:1 --cpus-per-task=8", "--mem=1.5G")


class SlurmMemoryInvalid(Rule):
    """sbatch refuses the size of the memory, or reads another size than was meant.

    A size is an integer, in MiB or with the unit K, M, G or T (and an optional B). `1.5G`, `64GiB`, `0.5T`, `200 G` and
    `${MEM}` are refused. A script may have only one of `--mem`, `--mem-per-cpu` and `--mem-per-gpu`. `--mem=64` asks
    for 64 MiB.

    The job is refused when it is submitted, or killed within seconds of its start.

    The fix writes the same size in a form that sbatch accepts. If the unit is missing, the fix adds one and is unsafe.
    """

    name = "slurm-memory-invalid"
    summary = "sbatch refuses or misreads the size of the memory"
    tags = ("slurm", "host-memory")
    examples = (
        Example(
            "sbatch takes integers",
            {"train.sbatch": BROKEN, "train.py": TRAIN},
            fixed={"train.sbatch": BROKEN.replace("1.5G", "1536M")},
            says=("Invalid --mem specification",),
        ),
        Example(
            "Two of the memory options",
            {"train.sbatch": job("--gres=gpu:1", "--mem=64G", "--mem-per-cpu=4G"), "train.py": TRAIN},
            says=("mutually exclusive",),
        ),
        Example(
            "A bare number is MiB",
            {"train.sbatch": BROKEN.replace("1.5G", "64"), "train.py": TRAIN},
            fixed={"train.sbatch": BROKEN.replace("1.5G", "64G")},
            unsafe=True,
            says=("64 MiB",),
        ),
        Example(
            "Sizes as sbatch takes them", {"train.sbatch": BROKEN.replace("1.5G", "64gb"), "train.py": TRAIN}, finds=0
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        yield from self.from_problems(case)
