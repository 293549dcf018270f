"""Kubernetes' admission: from an AdmissionReview to the Jobs in it, and from verdicts to the answer.

A pod does not hold its job's configuration, so whoever knows it puts the Job as JSON into an annotation of the object
or of a template of its pods. Kinds of objects have their templates in different places (a Job one, a PyTorchJob one for
each role, a RayJob one for each group of workers), so every `metadata` of the object is looked at: no kind is known.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from preflight.engine.score.columns import Row

ANNOTATION = "preflight/job"
"""What CI puts on a pod, or on the template of its pods: the Job, as JSON."""
API = "admission.k8s.io/v1"
LONGEST_WARNING = 120
"""Letters that Kubernetes asks a warning to have at most (Dynamic Admission Control, "Response")."""
MOST = 8
"""Different Jobs of one object that are judged: a PyTorchJob has two roles, a RayJob a few groups."""
SHARE = 0.75
"""The part of the API server's time in which an answer has to be there; the rest is for its way."""
PATIENCE = 10.0
"""Seconds that the API server waits where it does not say so (timeoutSeconds' default)."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Opinion:
    """What is to be said of a Job; "": nothing."""

    words: str
    exceeds: bool = False


def asked_by(body: object) -> tuple[str, tuple[str, ...]] | None:
    """The uid of a review and the different Jobs that its object is annotated with; None: it is no review."""
    if not isinstance(body, Mapping) or body.get("apiVersion") != API or body.get("kind") != "AdmissionReview":
        return None
    request = body.get("request")
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if not isinstance(request, Mapping) or not isinstance(uid, str):
        return None
    return uid, tuple(dict.fromkeys(_annotations(request.get("object"))))[:MOST]


def _annotations(found: object) -> Iterator[str]:
    """The annotations of an object and of all templates in it, from the outside in."""
    left = deque([found])
    while left:
        one = left.popleft()
        if isinstance(one, Mapping):
            metadata = one.get("metadata")
            annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
            stated = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
            if isinstance(stated, str):
                yield stated
            left.extend(value for name, value in one.items() if name not in ("metadata", "status"))
        elif isinstance(one, list):
            left.extend(one)


def seconds_of(text: str | None) -> float:
    """The time that the API server gives, which it appends to the address as ?timeout=2s."""
    match = _DURATION.fullmatch(text or "")
    return float(match[1]) * _SECONDS[match[2]] if match else PATIENCE


def opinion(row: Row) -> Opinion:
    """What a verdict says to who submits the job."""
    if row["error"] is not None:
        return not_judged(str(row["error"]))
    if row["verdict"] not in ("exceeds", "at-risk"):
        return Opinion("")
    need = row["process_expected"] or row["requested"]
    side = "GPU"
    if row["device_verdict"] != row["verdict"]:
        need, side = row["host_expected"], "node"
    words = "exceeds" if row["verdict"] == "exceeds" else "may exceed"
    return Opinion(
        f"preflight: the job {words} the memory of its {side}: {int(need or 0) / 2**30:.1f} GiB", words == "exceeds"
    )


def not_judged(words: str) -> Opinion:
    return Opinion(f"preflight: {ANNOTATION} was not judged: {words}")


def answer(uid: str, opinions: Sequence[Opinion], deny: bool) -> dict[str, object]:
    """The review with its answer. `deny`: what exceeds is refused, and not only warned of."""
    response: dict[str, object] = {"uid": uid, "allowed": True}
    said = [one for one in opinions if one.words]
    exceeding = next((one for one in said if one.exceeds), None)
    if said:
        response["warnings"] = [one.words[:LONGEST_WARNING] for one in said]
    if exceeding is not None and deny:
        response |= {"allowed": False, "status": {"code": 403, "message": exceeding.words}}
    return {"apiVersion": API, "kind": "AdmissionReview", "response": response}
