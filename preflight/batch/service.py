"""The HTTP service: a Job in, a verdict out, and a handler for Kubernetes' admission of pods.

It is stateless but for verdicts and laws that come again. What the bound of a known kind of jobs decides is answered at
once. The rest goes to one thread, since Python computes on one core; more cores are more processes. No request makes it
read a file or a network, trace or run code: that is the scorer's promise.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from preflight.batch import admission
from preflight.engine.score.columns import COLUMNS, VERSION, Row, job_schema
from preflight.engine.score.scorer import Scorer
from preflight.engine.score.tables import parsed

MOST_BYTES = 256 << 10
"""A Job takes a few hundred, with a whole configuration of a model a few thousand."""
MOST_OF_REVIEW = 4 << 20
"""An AdmissionReview takes some tens of thousands. etcd keeps objects of 1.5 MiB, and an update has two of them."""


class Refused(Exception):
    """A request that gets no verdict: an HTTP status and why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class Service(Struct):
    """`seconds`: how long a request waits for its verdict; `waiting`: requests that wait at a time; `deny`: whether the
    admission of a job that exceeds is refused, and not only warned of."""

    seconds: float = 2.0
    body_seconds: float = 5.0
    """How long the body of a request may take to come."""
    waiting: int = 64
    deny: bool = False
    judge: Scorer = field(default_factory=Scorer)
    counts: Counter[str] = field(default_factory=Counter)
    _now: int = 0
    _busy: float = 0.0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "judge"))

    def app(self) -> Starlette:
        """The application, for any ASGI server."""
        return Starlette(
            routes=[
                Route("/v1/verdict", partial(self._answered, self._verdict, MOST_BYTES), methods=["POST"]),
                Route("/v1/admission", partial(self._answered, self._admission, MOST_OF_REVIEW), methods=["POST"]),
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
            ]
        )

    def warm(self, rows: Iterable[object]) -> None:
        """Judges Jobs like those to come, so that their laws are there when the first request is."""
        self.judge.score(rows)

    async def _answered(
        self, handler: Callable[[object, Request], Awaitable[Response]], most: int, request: Request
    ) -> Response:
        """The answer of a handler to the JSON of a request, of so many bytes at most."""
        try:
            body = await asyncio.wait_for(_body(request, most), self.body_seconds)
            answer = await handler(body, request)
        except asyncio.TimeoutError:
            answer = JSONResponse({"error": f"the body did not come within {self.body_seconds:g} s"}, 408)
        except Refused as error:
            answer = JSONResponse({"error": error.words}, error.status)
        except ClientDisconnect:
            answer = Response(status_code=400)
        self.counts[f'preflight_requests_total{{path="{request.url.path}",status="{answer.status_code}"}}'] += 1
        return answer

    async def _scored(self, job: object, seconds: float) -> Row:
        """The verdict on one Job within a time. Raises Refused."""
        start = time.perf_counter()
        row = self.judge.at_once(job)
        if row is not None:
            return self._noted(row, start)
        if self._now >= self.waiting:
            raise Refused(429, "too many requests wait")
        self._now += 1
        work = self._thread.submit(self._judged, job)
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._left) if not loop.is_closed() else None)
        return await self._in_time(work, seconds)

    async def _in_time(self, work: Future[Row], seconds: float) -> Row:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), seconds)
        except asyncio.TimeoutError as error:
            raise Refused(503, f"no verdict within {seconds:g} s") from error

    def _left(self) -> None:
        self._now -= 1

    def _judged(self, job: object) -> Row:
        start = time.perf_counter()
        (row,) = self.judge.score([job])
        return self._noted(row, start)

    def _noted(self, row: Row, start: float) -> Row:
        self._busy += time.perf_counter() - start
        self.counts[f'preflight_verdicts_total{{verdict="{row["verdict"] or "error"}"}}'] += 1
        return row

    async def _verdict(self, body: object, request: Request) -> Response:
        row = await self._scored(body, self.seconds)
        if row["error"] is None:
            return JSONResponse(row)
        return JSONResponse(row, 500 if row["cause"] == "internal" else 422)

    async def _admission(self, body: object, request: Request) -> Response:
        """Warns of a job that does not fit. What cannot be judged is admitted: memory is not a reason to stop work."""
        asked = admission.asked_by(body)
        if asked is None:
            raise Refused(400, f"no AdmissionReview of {' or '.join(admission.APIS)} with a request.uid")
        budget = admission.SHARE * min(self.seconds, admission.seconds_of(request.query_params.get("timeout")))
        ends = asyncio.get_running_loop().time() + budget
        opinions = [await self._opinion(job, ends) for job in asked.jobs]
        if not asked.whole:
            opinions.append(admission.not_judged("the object is too large to look at all of it"))
        return JSONResponse(admission.answer(asked, opinions, self.deny))

    async def _opinion(self, stated: str, ends: float) -> admission.Opinion:
        """What to say of the Job of an annotation."""
        try:
            job = _json(stated.encode("utf-8", "replace"))
            return admission.opinion(await self._scored(job, max(0.0, ends - asyncio.get_running_loop().time())))
        except Refused as error:
            return admission.not_judged(error.words)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _metrics(self, request: Request) -> Response:
        lines = [f"{name} {count}" for name, count in sorted(self.counts.items())]
        lines += [f"preflight_waiting {self._now}", f"preflight_replays_total {self.judge.replays}"]
        lines.append(f"preflight_judging_seconds_total {self._busy:.6f}")
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(openapi())


def openapi() -> dict[str, Any]:
    """The contract of the service, made of the Job's schema and the columns."""
    job = job_schema("#/components/schemas/")
    parts = job.pop("$defs", {})
    types = {str: "string", int: "integer"}
    columns = {name: {"type": [types[kind], "null"], "description": text} for name, (kind, text) in COLUMNS.items()}
    schemas = {**parts, "Job": job, "Verdict": {"type": "object", "properties": columns}}

    def of(name: str) -> dict[str, object]:
        return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}

    refused = {str(code): {"description": text} for code, text in ((400, "no JSON"), (413, "too large"), (429, "busy"))}
    answers = {
        "200": {"description": "the verdict", **of("Verdict")},
        "422": {"description": "no Job", **of("Verdict")},
    }
    verdict = {"requestBody": {"required": True, **of("Job")}, "responses": {**answers, **refused}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "preflight", "version": str(VERSION)},
        "paths": {"/v1/verdict": {"post": verdict}},
        "components": {"schemas": schemas},
    }


async def _body(request: Request, most: int) -> object:
    """The JSON of a request, of so many bytes at most. Raises Refused."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise Refused(413, f"the body is larger than {most >> 10} KiB")
    return _json(bytes(found))


def _json(text: bytes) -> object:
    try:
        return parsed(text)
    except ValueError as error:
        raise Refused(400, "the body is no JSON") from error
