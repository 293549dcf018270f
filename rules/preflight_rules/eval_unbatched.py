from __future__ import annotations

from collections.abc import Iterator

from preflight.api import (
    Case,
    Change,
    Confidence,
    Example,
    Finding,
    Proposal,
    Rule,
    Safety,
    Severity,
    device_of,
    gib,
    largest,
    with_fields,
)
from preflight_rules.shared import remedies
from preflight_rules.shared.programs import LOOP

UNBATCHED = (
    LOOP.replace("default=64", "default=8")
    + """
model.eval()
with torch.no_grad():
    encoded = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt").to("cuda")
    logits = model(**encoded).logits
"""
).replace("import texts", "import rows, texts")
BATCHES = """torch.cat([
        model(**{key: value[start : start + 256] for key, value in encoded.items()}).logits
        for start in range(0, len(encoded["input_ids"]), 256)
    ])
"""
MOST_AT_ONCE = 256
"""Samples of one batch of the fix: more at once is hardly faster."""
MOST_SAMPLES = 21
"""How many powers of two are tried: up to a million samples, as many as a whole data set has."""


class EvalUnbatched(Rule):
    """A forward or generate call takes the whole evaluation set as one batch.

    The memory then grows with the size of the data set instead of the batch size. The program works with a sample of
    the data and runs out of memory with all of it, after the first epoch. The message has the number of samples and the
    bytes if they are known.

    There is a finding if the number of samples is unknown, or if so many do not fit. A batch of a loader, some prompts
    that are written in the program, and a list of a known length that fits are left alone.

    The fix evaluates in batches where the shape is plain: texts that were tokenised to tensors go through a model for
    sequence classification, in evaluation mode and without gradients, and only the logits are used. It is unsafe,
    because it rewrites a call; the results are the same. A call of `generate` is rewritten too, if nothing is sampled
    and its rows are only decoded without special tokens. Other programs have to be changed: loop over the samples in
    batches, and concatenate the results on the host. Or evaluate fewer: a fixed part of the samples says as much of the
    progress, and the figure is then that of the part.
    """

    name = "eval-unbatched"
    summary = "The whole evaluation set is evaluated as one batch"
    tags = ("gpu-memory", "evaluation")
    examples = (
        Example(
            "All validation texts in one forward call",
            {"train.py": UNBATCHED},
            fixed={"train.py": UNBATCHED.replace("model(**encoded).logits\n", BATCHES)},
            unsafe=True,
            says=("as one batch",),
            options={"gpu": "T4"},
        ),
        Example("A loop over a loader", {"train.py": LOOP.replace("64", "8")}, finds=0, options={"gpu": "T4"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        if case.fact("eval_unbatched") is not True:
            return
        device = device_of(case)
        samples = case.fact("eval_samples") or case.job.validation.samples or case.job.validation.batch_size
        if isinstance(samples, int) and (device is None or device.capacity is None):
            return  # so many samples may well fit
        number = f"all {samples:,} samples" if isinstance(samples, int) else "all samples (their number is unknown)"
        need = None if device is None else max((device.phases.get(p, 0) for p in remedies.EVALUATION), default=0)
        if device is not None and need and isinstance(samples, int) and device.capacity is not None:
            if device.fitting:
                return
            severity = Severity.error if need > device.capacity else Severity.warning
            takes = f", which takes {gib(need)} of {gib(device.capacity)}"
        else:
            severity, takes = Severity.warning, _samples_that_fit(case)
        proposal = Proposal(
            f"evaluate in batches of {(size := _size(case))}",
            (Change("validation.batch_size", size),),
            Safety.unsafe,
            "it rewrites a call of the program",
        )
        yield self.finding(
            f"the evaluation runs {number} through the model as one batch{takes}{remedies.unsaved(case)}",
            case.study.facts["eval_unbatched"].origin,
            severity,
            Confidence.high if severity is Severity.error else Confidence.medium,
            settings=("validation.batch_size", "validation.samples"),
            label="the whole evaluation set at once",
            help=(
                "evaluate in batches (of 256, for example) and concatenate the results on the host: they are the same",
                *_cap(case),
            ),
            proposals=(proposal,),
        )


def _cap(case: Case) -> Iterator[str]:
    """The alternative that is no fix: it changes the figure that the evaluation reports."""
    most = _fitting(case)
    if most is not None and most < 2 ** (MOST_SAMPLES - 1):
        yield f"or evaluate a fixed part of the samples, {most:,} at most: another figure than that of all of them"


def _size(case: Case) -> int:
    """Samples of one batch: as many as fit, and at most MOST_AT_ONCE; those of the training where that is not known."""
    found = _fitting(case) or case.job.train.batch_size or 1
    return min(found, MOST_AT_ONCE)


def _fitting(case: Case) -> int | None:
    """The largest power of two of samples that fits at once; None if it is unknown, or if nothing fits."""
    if case.estimates.device is None or case.estimates.device.capacity is None:
        return None

    def good(samples: int) -> bool:
        device = case.estimate(with_fields(case.job, {"validation.batch_size": samples})).device
        return device is not None and device.fitting

    return largest([2**n for n in range(MOST_SAMPLES)], good)


def _samples_that_fit(case: Case) -> str:
    """The same as text; empty if it is unknown."""
    found = _fitting(case)
    if found is None or found == 2 ** (MOST_SAMPLES - 1):  # nothing fits, or nothing here grows with the samples
        return ""
    return f": {found:,} of them fit, {2 * found:,} do not"
