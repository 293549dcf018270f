"""`preflight serve` over real sockets: hostile requests are answered with 4xx, and reviews are admitted."""

from __future__ import annotations

import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import reviews
from processes import HANGS

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

pytestmark = pytest.mark.integration
JOB = {"id": "a", "model": "gpt2", "train": {"batch_size": 8, "seq_len": 512}, "machine": {"gpu": "t4"}}
LARGE = {**JOB, "train": {"batch_size": 64, "seq_len": 512}}
SERVER = """
import os, socket, time, uvicorn
from preflight.batch.server import Limits, config
from preflight.batch.service import Service
from preflight.engine.score.scorer import Scorer
class Slow(Scorer):
    def score(self, rows):
        while not os.path.exists({path!r}):
            time.sleep(0.01)
        return super().score(rows)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(config(Service({service}).app(), Limits({limits}))).run([listening])
"""
PATIENT = "seconds=30"


def served(service: str = PATIENT, limits: str = "", path: str = "") -> Iterator[int]:
    """A service's port. `path`: a file that a judge who is slow waits for."""
    command = [sys.executable, "-c", SERVER.format(service=service, limits=limits, path=path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    yield from served()


@pytest.fixture(scope="module")
def denying() -> Iterator[int]:
    yield from served(f"{PATIENT}, deny=True")


@pytest.fixture(scope="module")
def strict() -> Iterator[int]:
    yield from served("seconds=30, body_seconds=0.3", "connections=4, head=0.3")


def asked(port: int, path: str, body: object = None, method: str = "POST") -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)) as connection:
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body).encode())
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else text


def test_a_job_in_a_verdict_out(port: int) -> None:
    status, row = asked(port, "/v1/verdict", JOB)
    assert (status, row["verdict"], row["id"]) == (200, "fits", "a")
    assert asked(port, "/v1/verdict", LARGE)[1]["verdict"] == "exceeds"


def hostile() -> list[bytes]:
    pick, good = random.Random(0), json.dumps(JOB).encode()
    bodies = [
        b"",
        b"null",
        b"[]",
        b"{}x",
        b"1e999",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff\xfe",
        good[:-1],
        b'"' * 9,
    ]
    bodies += [json.dumps({**JOB, "model": {"path": path}}).encode() for path in ("/etc/passwd", "..", "\x00")]
    bodies += [json.dumps({**JOB, "model": {"law": "/proc/self/environ"}}).encode()]
    bodies += [
        json.dumps({**JOB, "train": {"batch_size": bad}}).encode()
        for bad in (0, -1, "x", [], {}, 10**400, float("nan"))
    ]
    for _ in range(200):
        body = bytearray(good)
        body[pick.randrange(len(body))] = pick.randrange(256)
        bodies.append(bytes(body))
    return bodies


def test_hostile_bodies_are_the_sender_s_mistake(port: int) -> None:
    for body in hostile():
        status, found = asked(port, "/v1/verdict", body)
        assert 400 <= status < 500 or (status == 200 and found["verdict"]), (status, body[:200], found)
        assert asked(port, "/v1/admission", body)[0] == 400
    assert asked(port, "/v1/verdict", b" " * (300 << 10))[0] == 413
    assert asked(port, "/v1/verdict", method="GET")[0] == 405
    assert asked(port, "/v1/other", JOB)[0] == 404
    assert asked(port, "/healthz", method="GET") == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "raw", [b"\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/verdict HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
def test_what_is_no_http(port: int, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS) as connection:
        connection.sendall(raw)
        assert re.match(rb"HTTP/1.1 4\d\d", connection.recv(200))


KINDS = sorted(reviews.objects(""))


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_is_admitted_with_a_warning(port: int, kind: str) -> None:
    status, answer = asked(port, "/v1/admission?timeout=30s", reviews.of(kind, LARGE))
    response = answer["response"]
    assert (status, answer["kind"], answer["apiVersion"]) == (200, "AdmissionReview", "admission.k8s.io/v1")
    assert (response["uid"], response["allowed"]) == (reviews.UID, True)
    (warning,) = response["warnings"]
    assert "exceeds" in warning
    assert len(warning) <= 120
    quiet = asked(port, "/v1/admission?timeout=30s", reviews.of(kind, JOB))[1]["response"]
    assert quiet == {"uid": reviews.UID, "allowed": True}


def test_roles_with_different_jobs_are_each_judged(port: int) -> None:
    whole = reviews.objects(json.dumps(LARGE))["PyTorchJob"]
    whole["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = reviews.template({"preflight/job": "{"})
    response = asked(port, "/v1/admission?timeout=30s", reviews.review("PyTorchJob", whole))[1]["response"]
    assert response["allowed"]
    first, second = response["warnings"]
    assert "not judged" in first
    assert "exceeds" in second


@pytest.mark.parametrize("stated", ["{", "[]", json.dumps({"model": {"path": "/etc"}}), "9" * 5000])
def test_what_cannot_be_judged_is_admitted(denying: int, stated: str) -> None:
    response = asked(denying, "/v1/admission?timeout=30s", reviews.of("Pod", stated))[1]["response"]
    assert response["allowed"]
    assert "not judged" in response["warnings"][0]


@pytest.mark.parametrize(
    "body", [None, {"apiVersion": "v1", "spec": None}, {"apiVersion": "v1", "metadata": {"annotations": None}}]
)
def test_an_object_without_a_job_is_admitted(denying: int, body: dict[str, Any] | None) -> None:
    found = asked(denying, "/v1/admission?timeout=30s", reviews.review("Pod", body, "UPDATE"))[1]
    assert found["response"] == {"uid": reviews.UID, "allowed": True}


def test_no_time_is_no_verdict(denying: int) -> None:
    """The answer is on its way before the API server gives up, and admits."""
    heavy = {**JOB, "train": {"batch_size": 3, "seq_len": 77, "optimizer": "adafactor"}}
    response = asked(denying, "/v1/admission?timeout=0s", reviews.of("Pod", heavy))[1]["response"]
    assert response["allowed"]
    assert "not judged" in response["warnings"][0]


def test_a_judge_who_does_not_come_back(tmp_path: Path) -> None:
    """The answer does not wait for the verdict: that comes when the file is there, which is after the answers."""
    for port in served("seconds=0.4, deny=True, judge=Slow()", path=str(tmp_path / "go")):
        for path in ("/v1/admission?timeout=2s", "/v1/admission?timeout=1s", "/v1/admission"):
            response = asked(port, path, reviews.of("Pod", LARGE))[1]["response"]
            assert response["allowed"]
            assert "no verdict within" in response["warnings"][0]
        assert asked(port, "/v1/verdict", LARGE)[0] == 503
        (tmp_path / "go").touch()
        assert any(asked(port, "/v1/verdict", LARGE)[0] == 200 for _ in range(100))
        assert not asked(port, "/v1/admission?timeout=2s", reviews.of("Pod", LARGE))[1]["response"]["allowed"]


@pytest.mark.parametrize("kind", ["Job", "Queued", "RayJob"])
def test_what_is_there_already_is_not_asked_again(denying: int, kind: str) -> None:
    """An object that was admitted before can be changed and deleted: a queue resumes it, a controller removes its
    finalizer. Only a Job that is new in it is judged."""
    here, small = reviews.objects(json.dumps(LARGE))[kind], reviews.objects(json.dumps(JOB))[kind]
    resumed = {**here, "spec": {**here["spec"], "suspend": False}}
    path = "/v1/admission?timeout=30s"
    quiet = {"uid": reviews.UID, "allowed": True}
    for body in (
        reviews.review(kind, resumed, "UPDATE", here),
        reviews.review(kind, None, "DELETE", here),
        reviews.review(kind, here, "CONNECT"),
        reviews.review(kind, small, "UPDATE", here),
    ):
        assert asked(denying, path, body)[1]["response"] == quiet
    assert not asked(denying, path, reviews.review(kind, here, "UPDATE", small))[1]["response"]["allowed"]


@pytest.mark.parametrize("api", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
@pytest.mark.parametrize("dry", [False, True])
def test_an_answer_has_the_version_of_its_question(denying: int, api: str, dry: bool) -> None:
    body = {**reviews.of("Pod", LARGE), "apiVersion": api}
    body["request"]["dryRun"] = dry  # which asks for no side effects; there are none
    status, answer = asked(denying, "/v1/admission?timeout=30s", body)
    assert (status, answer["apiVersion"], answer["response"]["allowed"]) == (200, api, False)
    assert asked(denying, "/v1/admission", {**body, "apiVersion": "admission.k8s.io/v2"})[0] == 400


def test_large_objects(denying: int) -> None:
    """As large as the API server's may be: judged as far as it is looked at, which is said; a larger one is refused."""
    path = "/v1/admission?timeout=30s"
    whole = reviews.objects(json.dumps(LARGE))["Job"]
    held = {**whole, "metadata": {"managedFields": [{"fieldsV1": {f"f:{n}": {} for n in range(60_000)}}]}}
    assert not asked(denying, path, reviews.review("Job", held))[1]["response"]["allowed"]
    many = {"apiVersion": "v1", "spec": {"containers": [[]] * 200_000, "template": whole["spec"]["template"]}}
    response = asked(denying, path, reviews.review("Pod", many))[1]["response"]
    assert "exceeds" in response["warnings"][0]
    assert "too large" in response["warnings"][-1]
    huge = {"apiVersion": "v1", "spec": {"data": "x" * (5 << 20)}}
    assert asked(denying, path, reviews.review("Pod", huge))[0] == 413


def test_only_what_exceeds_is_denied(denying: int) -> None:
    response = asked(denying, "/v1/admission?timeout=30s", reviews.of("RayJob", LARGE))[1]["response"]
    assert not response["allowed"]
    assert "exceeds" in response["status"]["message"]
    assert asked(denying, "/v1/admission?timeout=30s", reviews.of("RayJob", JOB))[1]["response"]["allowed"]


HEAD = b"POST /v1/verdict HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("begun", [b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"])
def test_a_body_that_does_not_come(strict: int, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", strict), timeout=HANGS) as connection:
        connection.sendall(HEAD + begun)
        assert connection.recv(200).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("begun", [b"", HEAD, b"P"])
def test_a_head_that_does_not_come(strict: int, begun: bytes) -> None:
    """The connection is closed, and does not take the place of another for ever."""
    with socket.create_connection(("127.0.0.1", strict), timeout=HANGS) as connection:
        connection.sendall(begun)
        assert connection.recv(200) == b""


def test_a_head_without_end(strict: int) -> None:
    with socket.create_connection(("127.0.0.1", strict), timeout=HANGS) as connection:
        connection.sendall(HEAD + b"X: " + b"x" * (64 << 10))
        assert re.match(rb"HTTP/1.1 4\d\d", connection.recv(200))


def test_more_connections_than_there_is_room_for(strict: int) -> None:
    """Those that are too many hear so; when the others are gone there is room again."""
    with ExitStack() as stack:
        open_ones = []
        for _ in range(8):  # one after the other: uvicorn counts the connections that are open when a request comes
            one = stack.enter_context(socket.create_connection(("127.0.0.1", strict), timeout=HANGS))
            one.sendall(HEAD + b"Content-Length: 2\r\n\r\n")
            time.sleep(0.05)
            open_ones.append(one)
        answers = [one.recv(200) for one in open_ones]
    assert {answer[9:12] for answer in answers} == {b"408", b"503"}
    assert asked(strict, "/healthz", method="GET")[0] == 200


def test_more_requests_than_may_wait() -> None:
    for port in served("seconds=30, waiting=0"):
        assert asked(port, "/v1/verdict", JOB)[0] == 429
        assert asked(port, "/healthz", method="GET")[0] == 200


def test_the_contract_and_the_metrics(port: int) -> None:
    asked(port, "/v1/verdict", JOB)
    found = asked(port, "/openapi.json", method="GET")[1]
    assert "train" in found["components"]["schemas"]["Job"]["properties"]
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)))
    assert references <= set(found["components"]["schemas"])
    assert 'preflight_verdicts_total{verdict="fits"}' in asked(port, "/metrics", method="GET")[1]
