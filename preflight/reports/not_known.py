"""What a report says of what it does not know: that no job was found, why the memory of a study is unknown, and the dry
run that would tell it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from preflight.reports.style import Look, wrap
from preflight.vocabulary.outcome import Outcome, StudyResult
from preflight.vocabulary.reading import Word
from preflight.vocabulary.study import Box, Study
from preflight.vocabulary.values import Cause, Const, Unknown, evaluate, names
from preflight.vocabulary.words import plural, why_unknown

_KINDS = {
    ".py": "Python file",
    ".ipynb": "notebook",
    ".yaml": "YAML file",
    ".yml": "YAML file",
    ".json": "JSON file",
    ".toml": "TOML file",
    ".sh": "shell script",
    ".bash": "shell script",
    ".zsh": "shell script",
    ".sbatch": "SLURM script",
    ".slurm": "SLURM script",
}
"""End of a name -> the kind of file."""
_NEXT = (
    "name the file that starts the job (preflight check train.py), or state a job by hand (preflight estimate MODEL "
    "--set train.batch_size=8); a W&B sweep, Hydra config, SLURM script, Optuna study or training program is recognised"
)


def no_job(outcome: Outcome) -> str:
    """Why no job was checked, if no training job was found and there was the time to look for one; else ""."""
    if outcome.incomplete or any(True for _ in outcome.studies()):
        return ""
    unknown, read = _looked_at(outcome)
    if read:
        them = "it" if len(read) == 1 else "them"
        what = f"{plural(len(read), 'file')} read, and nothing in {them} trains a model"
    elif unknown:
        what = f"nothing recognised in {plural(len(unknown), 'file')}"
    else:
        what = "no file has a name that preflight reads"
    return f"no job was checked: {what}"


def no_verdict(outcome: Outcome) -> str:
    """In few words that nothing was judged, so that no finding means nothing; "" where a job has a verdict."""
    results = [result for _, result in outcome.studies()]
    if any(one.unjudged is None and one.space.worst.estimates.verdict != "unknown" for one in results):
        return ""
    return f"no verdict on {plural(len(results), 'study')}" if results else "no job was checked"


def _looked_at(outcome: Outcome) -> tuple[list[str], list[str]]:
    """The files that were not recognised, and those that were read."""
    unknown = [path for report in outcome.reports for path in report.unrecognised]
    return unknown, [path for report in outcome.reports for path in report.files]


def nothing_checked(outcome: Outcome, look: Look) -> list[str]:
    """Lines as loud as a finding, if no training job was found and there was the time to look for one; else none."""
    why = no_job(outcome)
    if not why:
        return []
    unknown, read = _looked_at(outcome)
    lines = [f"{look.paint('warning', 'bold yellow')}: {look.paint(why, 'bold')}"]
    if look.detail == "line":
        return lines
    groups = [_counted(read, "that train nothing"), _counted(unknown, "that are not recognised")]
    seen = [group for group in groups if group]
    if seen:
        lines.append(wrap(f"  looked at: {'; '.join(seen)}", look.width, "    "))
    return [*lines, wrap(f"  next: {_NEXT}", look.width, "    ")]


def _counted(paths: Sequence[str], which: str) -> str:
    """ "files that train nothing: 12 Python files, 1 YAML file", the most frequent kind first; "" without files."""
    kinds = Counter(_KINDS.get(PurePosixPath(path).suffix.lower(), "other file") for path in paths)
    counted = ", ".join(plural(count, kind) for kind, count in kinds.most_common())
    return f"files {which}: {counted}" if counted else ""


def reason_of(result: StudyResult) -> str:
    """In words; "" where it is known. "train.seq_len is not known" is followed by why it is not."""
    reason = why_unknown(result.space.worst.estimates)
    cause = result.space.worst.estimates.causes.get("device")
    device = result.space.worst.estimates.device
    own = _unknown_of(result, "model.name")
    if own is None and device is not None:
        own = device.cannot_trace
    if reason and cause is None and own is not None:  # a lower bound
        return f"{reason}; {own.words}"
    if not reason or cause is None:
        return reason
    if cause.cause is Cause.model_unknown and own is not None:
        return f"model.name is not known: {own.words}" if own.cause is Cause.not_set else own.words
    if cause.cause is not Cause.not_set or len(cause.fields) != 1:
        return reason
    value = _unknown_of(result, cause.fields[0])
    return f"{reason}: {value.words}" if value is not None and value != cause else reason


def _unknown_of(result: StudyResult, name: str) -> Unknown | None:
    """Why the files do not tell a field; None if they do, or say nothing of it."""
    bound = worst_box(result).fields.get(name)
    value = evaluate(bound.expr) if bound is not None and not any(True for _ in names(bound.expr)) else None
    return value if isinstance(value, Unknown) else None


def worst_box(result: StudyResult) -> Box:
    """The box that contains the worst combination."""
    return next(one.box for one in result.space.boxes if one.worst is result.space.worst)


LONG_COMMAND = 120
"""Characters of a command that a line of a terminal or of a log shows at once."""


def dry_run_of(study: Study) -> str:
    """The command that runs the program of a study dry; "" where none is known. Values that are searched or unknown are
    dots, and a launcher that starts several processes is named with their number. A long command stands in the script
    that starts it, which a dry run reads as well."""
    link = next((one for one in reversed(study.links) if one.kind in ("program", "module")), None)
    target = link.target if link is not None else study.program or study.paths[0]
    if link is None and not target.endswith(".py"):
        return ""
    words = [_of_word(word) for word in link.words] if link is not None else []
    ranks = study.launch.ranks_per_node
    several = evaluate(ranks) if ranks is not None else None
    start = ["python"]
    if study.launch.launcher == "torchrun" and isinstance(several, int) and several > 1:
        start = ["torchrun", "--nproc_per_node", str(several)]
    module = ["-m"] if link is not None and link.kind == "module" else []
    if module and target.endswith(".py"):
        target = target.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    command = " ".join([*start, *module, shlex.quote(target), *words])
    script = study.paths[0]
    if len(command) > LONG_COMMAND and not script.endswith(".py"):
        command = shlex.quote(script)
    return f"preflight dry-run --save -- {command}"


def _of_word(word: Word) -> str:
    """A word for a shell; dots where its value is not one that is known."""
    value = word.value
    if value is None:
        return shlex.quote(word.hydra_prefix + word.prefix)
    if isinstance(value, Const) and not isinstance(value.value, Unknown):
        return shlex.quote(f"{word.hydra_prefix}{word.prefix}{value.value}")
    return f"{word.prefix}..."
