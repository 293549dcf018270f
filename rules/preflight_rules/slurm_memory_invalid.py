from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule
from preflight_rules.shared.programs import TRAIN, job

BROKEN = job("--gres=gpu:1 --cpus-per-task=8", "--mem=1.5G")


class SlurmMemoryInvalid(Rule):
    """sbatch refuses the memory that is written, or reads it as something else than was meant.

    A size is an integer, bare in MiB or with K, M, G or T and an optional B: `1.5G`, `64GiB`, `0.5T`, `200 G` and
    `${MEM}` are refused, and of `--mem`, `--mem-per-cpu` and `--mem-per-gpu` there may be only one, whatever the number
    of directives. `--mem=64` asks for 64 MiB.

    It matters because the job is refused at submission, or killed within seconds of starting.

    The fix writes the same size in a way that sbatch takes. Where the unit was forgotten, adding one is unsafe.
    """

    name = "slurm-memory-invalid"
    summary = "The memory is written in a way that sbatch refuses or misreads"
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
