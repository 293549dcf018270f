"""What `preflight serve` bears: `python benchmarks/batch/serve.py [--rate N] [--seconds N] [--hostile N]`.

Starts a service, sends it distinct Jobs of twenty families at a rate that does not wait for answers, and says how long
answers took from the moment that a request was due. Then hostile bodies, as fast as it answers. The processor's seconds
and the memory of the service are Linux's (/proc). Load and service share this machine: what the clock says, it says of
both, and of whatever else runs there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from run import decided, jobs

CONNECTIONS = 16
PAGE, TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self.port, self.streams = port, None
        self.answer = b""

    async def post(self, path: str, body: bytes) -> int:
        """The status of an answer; its body is `answer`."""
        for attempt in (1, 2):
            if self.streams is None:
                self.streams = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.streams
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            try:
                writer.write(head + body)
                status = await reader.readline()
                size, closes = 0, False
                while (line := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = line.lower().partition(b":")
                    size = int(value) if name == b"content-length" else size
                    closes = closes or (name == b"connection" and b"close" in value)
                if not status:
                    raise ConnectionError
                self.answer = await reader.readexactly(size)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if attempt == 2:
                    return 0
                continue
            if closes:
                self.close()
            return int(status.split()[1])
        return 0

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


def usage(process: int) -> tuple[float, int]:
    """The processor's seconds and MiB of a process."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK, int(fields[21]) * PAGE >> 20


async def load(port: int, bodies: list[bytes], rate: float, process: int) -> None:
    free: asyncio.Queue[Client] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Client(port))
    took: list[float] = []
    statuses: Counter[int] = Counter()
    begun = time.perf_counter()

    async def ask(body: bytes, due: float) -> None:
        client = await free.get()
        try:
            statuses[await client.post("/v1/verdict", body)] += 1
        finally:
            free.put_nowait(client)
        took.append(time.perf_counter() - due)

    tasks: set[asyncio.Task[None]] = set()
    before, parts = usage(process), 5
    for number, body in enumerate(bodies):
        due = begun + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask(body, due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if (number + 1) % max(len(bodies) // parts, 1) == 0:
            print(f"  {number + 1:,} requests sent: the service has {usage(process)[1]:,} MiB", flush=True)
    await asyncio.gather(*tasks)
    seconds, after = time.perf_counter() - begun, usage(process)
    took.sort()
    places = {name: took[min(int(share * len(took)), len(took) - 1)] for name, share in PLACES.items()}
    print(f"{len(bodies):,} Jobs: {len(bodies) / seconds:,.0f} a second; answers {dict(statuses)}")
    print("milliseconds to the answer: " + ", ".join(f"{name} {1000 * value:,.1f}" for name, value in places.items()))
    busy = after[0] - before[0]
    print(f"the service: {1000 * busy / len(bodies):.2f} ms of the processor for each, {before[1]} to {after[1]} MiB")


PLACES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "most": 1.0}


def hostile(seed: int) -> Iterator[bytes]:
    """Bodies that are no Job, or nearly none: half are mutations of one."""
    pick = random.Random(seed)
    good = json.dumps(next(jobs(1, seed))).encode()
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        10**400,
        1e308,
        "",
        "\x00",
        "../../etc/passwd",
        [],
        {},
        [[]],
        {"a": {}},
        "x" * 9000,
    ]
    odd += ["${jndi:ldap://x}", "__import__('os').system('x')", "\ud800", {"$ref": "#"}, "é" * 300, float("inf")]
    groups = ("model", "task", "train", "machine", "data", "parallel", "validation", "software")
    names = (
        "path",
        "law",
        "config",
        "kwargs",
        "name",
        "target",
        "batch_size",
        "seq_len",
        "gpu",
        "peft",
        "quantization",
    )
    while True:
        kind = pick.randrange(6)
        if kind == 0:
            yield bytes(pick.randrange(256) for _ in range(pick.randrange(300)))
        elif kind == 1:
            yield pick.choice([b"[", b'{"a":', b'{"train":{"peft":'] * 3 + [b" ", b'"', b"9"]) * pick.randrange(
                1, 40_000
            )
        elif kind == 2:
            yield json.dumps({pick.choice(groups): pick.choice(odd)}).encode()
        elif kind == 3:
            yield json.dumps({**json.loads(good), pick.choice(groups): {pick.choice(names): pick.choice(odd)}}).encode()
        else:
            body = bytearray(good)
            for _ in range(pick.randrange(1, 6)):
                body[pick.randrange(len(body))] = pick.randrange(256)
            yield bytes(body[: pick.randrange(1, len(body) + 1)] if kind == 4 else body)


async def attack(port: int, count: int, process: int) -> None:
    """Sends hostile bodies. An answer that is neither a 4xx nor a verdict is told."""
    stream, statuses, wrong = hostile(1), Counter[int](), []
    before = usage(process)

    async def some(client: Client) -> None:
        for body in stream_of(stream, left):
            path = "/v1/admission" if left[0] % 3 == 0 else "/v1/verdict"
            status = await client.post(path, body)
            statuses[status] += 1
            verdict = status == 200 and (b'"allowed"' in client.answer or json.loads(client.answer).get("verdict"))
            if not verdict and not 400 <= status < 500:
                wrong.append((path, status, body[:200], client.answer[:200]))

    left = [count]
    await asyncio.gather(*(some(Client(port)) for _ in range(CONNECTIONS)))
    after = usage(process)
    print(f"{count:,} hostile bodies: answers {dict(sorted(statuses.items()))}; {before[1]} to {after[1]} MiB")
    print(f"neither a 4xx nor a verdict: {len(wrong)}")
    for one in wrong[:5]:
        print("  ", *one)


def stream_of(stream: Iterator[bytes], left: list[int]) -> Iterator[bytes]:
    while left[0] > 0:
        left[0] -= 1
        yield next(stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hostile", type=int, default=20_000, help="hostile bodies")
    parser.add_argument("--port", type=int, default=8751)
    parser.add_argument("--warm", type=int, default=4_000, help="other Jobs that the service judges before the first")
    options = parser.parse_args()
    bodies = decided(int(options.rate * options.seconds))
    command = [sys.executable, "-m", "preflight", "serve", "--port", str(options.port)]
    with tempfile.TemporaryDirectory() as folder:
        if options.warm:
            source = Path(folder, "jobs.jsonl")
            source.write_bytes(b"\n".join(decided(options.warm, seed=8)))
            command += ["--warm", str(source)]
        with subprocess.Popen(command) as service:
            try:
                asyncio.run(waited(options.port))
                if bodies:
                    asyncio.run(load(options.port, bodies, options.rate, service.pid))
                if options.hostile:
                    asyncio.run(attack(options.port, options.hostile, service.pid))
            finally:
                service.send_signal(signal.SIGTERM)


async def waited(port: int) -> None:
    """Until the service answers."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise SystemExit("the service does not answer")


if __name__ == "__main__":
    main()
