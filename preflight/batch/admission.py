"""Kubernetes' admission: from an AdmissionReview to the Jobs in it, and from verdicts to the answer.

A pod does not hold its job's configuration, so whoever knows it puts the Job as JSON into an annotation of the object
or of a template of its pods. Kinds of objects have their templates in different places (a Job one, a PyTorchJob one for
each role, a RayJob one for each group of workers), so every `metadata` of the object is looked at: no kind is known.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from preflight.engine.score.columns import Row

ANNOTATION = "preflight/job"
"""What CI puts on a pod, or on the template of its pods: the Job, as JSON."""
APIS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
"""Versions of a review; clusters before 1.22 send the older one, too. An answer has the version of its question."""
LONGEST_WARNING = 120
"""Letters that Kubernetes asks a warning to have at most (Dynamic Admission Control, "Response")."""
MOST = 8
"""Different Jobs of one object that are judged: a PyTorchJob has two roles, a RayJob a few groups."""
LARGEST = 100_000
"""Values of an object that are looked at; a large pod has some thousands."""
SHARE = 0.75
"""The part of the API server's time in which an answer has to be there; the rest is for its way."""
PATIENCE = 10.0
"""Seconds that the API server waits where it does not say so (timeoutSeconds' default)."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Opinion(Struct, frozen=True):
    """What is to be said of a Job; "": nothing."""

    words: str
    exceeds: bool = False


class Asked(Struct, frozen=True):
    """What a review asks: its version and uid, and the different Jobs that its object is annotated with. `whole`:
    whether all of the object was looked at."""

    api: str
    uid: str
    jobs: tuple[str, ...]
    whole: bool


def asked_by(body: object) -> Asked | None:
    """None: it is no review.

    What is there already is no question: an update that leaves a Job as it is has been judged when that came, and a
    refused one would keep controllers from their work. What is deleted or connected to has no Job that is new.
    """
    if not isinstance(body, Mapping) or body.get("apiVersion") not in APIS or body.get("kind") != "AdmissionReview":
        return None
    request = body.get("request")
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if not isinstance(request, Mapping) or not isinstance(uid, str):
        return None
    jobs: tuple[str, ...] = ()
    whole = True
    if request.get("operation") not in ("DELETE", "CONNECT"):
        stated, whole = _annotations(request.get("object"))
        known, _ = _annotations(request.get("oldObject"))
        jobs = tuple(one for one in stated if one not in known)
    return Asked(body["apiVersion"], uid, jobs[:MOST], whole)


def _annotations(found: object) -> tuple[tuple[str, ...], bool]:
    """The different annotations of an object and of all templates in it, from the outside in; whether that is all."""
    left, seen, jobs = deque([found]), 0, dict[str, None]()
    while left and seen < LARGEST:
        one = left.popleft()
        seen += 1
        if isinstance(one, Mapping):
            metadata = one.get("metadata")
            annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
            stated = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
            if isinstance(stated, str):
                jobs[stated] = None
            left.extend(value for name, value in one.items() if name not in ("metadata", "status"))
        elif isinstance(one, list):
            left.extend(one)
    return tuple(jobs), not left


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


def answer(asked: Asked, opinions: Sequence[Opinion], deny: bool) -> dict[str, object]:
    """The review with its answer. `deny`: what exceeds is refused, and not only warned of."""
    response: dict[str, object] = {"uid": asked.uid, "allowed": True}
    said = [one for one in opinions if one.words]
    exceeding = next((one for one in said if one.exceeds), None)
    if said:
        response["warnings"] = [one.words[:LONGEST_WARNING] for one in said]
    if exceeding is not None and deny:
        response |= {"allowed": False, "status": {"code": 403, "message": exceeding.words}}
    return {"apiVersion": asked.api, "kind": "AdmissionReview", "response": response}
