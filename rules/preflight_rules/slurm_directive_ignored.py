from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from preflight.api import Case, Edit, Example, Finding, Proposal, Rule, Safety, Source, Span
from preflight_rules.shared.programs import TRAIN

LATE = """
#!/bin/bash
#SBATCH --gres=gpu:1
set -e
#SBATCH --mem=64G
srun python train.py
"""
EARLY = """
#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --mem=64G
set -e
srun python train.py
"""


class SlurmDirectiveIgnored(Rule):
    """A line looks like a directive, but sbatch does not read it.

    sbatch reads directives up to the first line that is neither blank nor a comment: `set -e` on line 2 ends them. A
    directive starts at the beginning of the line with exactly `#SBATCH`; `# SBATCH`, `##SBATCH` and indented lines are
    comments. `##SBATCH` is the usual way to switch a directive off, so it is reported only if the script states the
    option nowhere else. sbatch refuses a script with DOS line breaks.

    Such a job runs with the defaults of the cluster, and no message says so.

    The fix repairs the marker, or moves the line up to the other directives. It is unsafe, because the job then gets
    other resources than before. The repair of line breaks is safe.
    """

    name = "slurm-directive-ignored"
    summary = "A line looks like a directive, but sbatch does not read it"
    tags = ("slurm",)
    examples = (
        Example(
            "A directive behind the first command",
            {"train.sbatch": LATE, "train.py": TRAIN},
            fixed={"train.sbatch": EARLY},
            unsafe=True,
            says=("after the first command (line 3)",),
        ),
        Example(
            "A blank in the marker",
            {"train.sbatch": EARLY.replace("#SBATCH --mem", "# SBATCH --mem"), "train.py": TRAIN},
            fixed={"train.sbatch": EARLY},
            unsafe=True,
        ),
        Example("All directives at the top", {"train.sbatch": EARLY, "train.py": TRAIN}, finds=0),
        Example(
            "A directive that is switched off, and given again",
            {
                "train.sbatch": EARLY.replace("#SBATCH --mem=64G", "##SBATCH --mem=32G\n#SBATCH --mem=64G"),
                "train.py": TRAIN,
            },
            finds=0,
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        kinds = {problem.origin: problem.kind for problem in case.study.problems if problem.rule == self.name}
        for finding in self.from_problems(case):
            kind = kinds[finding.origin] if finding.origin is not None else ""
            moved = self._moved(case, finding, kind) if not finding.proposals else ()
            proposals = finding.proposals or moved
            yield _with(finding, proposals)

    def _moved(self, case: Case, finding: Finding, kind: str) -> tuple[Proposal, ...]:
        origin, request = finding.origin, case.study.request
        if origin is None:
            return ()
        source = case.project.source(origin.path)
        if kind == "line-breaks":
            return (_unix(source),)
        if request is None or request.insert_at is None or kind != "after-command":
            return ()
        if request.insert_at.path != origin.path:
            return ()
        start, end = _line(source, origin.span.start)
        text = source.text[start:end]
        edits = (
            Edit(origin.path, request.insert_at.span, text if text.endswith("\n") else text + "\n"),
            Edit(origin.path, type(origin.span)(start, end), ""),
        )
        reason = "the job then gets what the directive asks for"
        return (Proposal("move the directive up, where sbatch reads it", edits=edits, reason=reason),)


def _unix(source: Source) -> Proposal:
    """UNIX line breaks in the whole script. Safe: sbatch refuses the script as it is."""
    text, edits, at = source.text, [], source.text.find("\r\n")
    while at >= 0:
        edits.append(Edit(source.path, Span(at, at + 1), ""))
        at = text.find("\r\n", at + 2)
    return Proposal("UNIX line breaks", edits=tuple(edits), safety=Safety.safe)


def _line(source: Source, offset: int) -> tuple[int, int]:
    """Start and end of the line that an offset is in, its line break included."""
    number, _ = source.line_column(offset)
    start = source.offset(number, 1)
    end = source.text.find("\n", start)
    return start, len(source.text) if end < 0 else end + 1


def _with(finding: Finding, proposals: tuple[Proposal, ...]) -> Finding:
    safe = tuple(
        replace(one, reason=one.reason or "the job then gets what the directive asks for") for one in proposals
    )
    return replace(finding, proposals=safe)
