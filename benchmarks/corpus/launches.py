"""Launch files: what a person submits, starts or hands to a launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SENTENCE = (
    "A launch file is a shell or job script with a line that starts a program (`python x.py`, `python -m x`,\n"
    "`torchrun`, `accelerate launch`, `deepspeed`, `srun`, `llamafactory-cli`, `tune run`, `axolotl`, `trl` or\n"
    "`wandb agent`), or any other file that a study starts from: its first path."
)
SUFFIXES = {".sh", ".bash", ".slurm", ".sbatch", ".sub", ".job", ".pbs", ".lsf"}
STARTS = re.compile(
    r"""^\s*(?!\#|echo\b)[^#\n]*?
    (?:\bpython[\d.]*\s+(?:-[uOBEsW]\s+)*(?:-m\s+(?!pip\b|venv\b|ensurepip\b)[\w.]+|["'$]?[\w${}()./"'-]+\.py\b)
    |\b(?:torchrun|accelerate\s+launch|deepspeed|srun|llamafactory-cli\s+train|tune\s+run|axolotl\s+train|wandb\s+agent)\s
    |\btrl\s+(?:sft|dpo|grpo|kto|reward|rloo)\b)""",
    re.MULTILINE | re.VERBOSE,
)


def scripts(root: Path) -> Iterator[str]:
    """The shell and job scripts below a folder that start a program, by their paths with `/`."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and _is_script(path):
            text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
            if STARTS.search(text):
                yield path.relative_to(root).as_posix()


def _is_script(path: Path) -> bool:
    if path.suffix.lower() in SUFFIXES:
        return True
    if path.suffix:
        return False
    with path.open("rb") as file:
        return re.match(rb"#!\s*/\S*(?:/env\s+)?(?:ba|z|da|k)?sh\b", file.read(64)) is not None
