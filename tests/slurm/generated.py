"""Requests by the thousand from a seed: sensible ones, ones at the edge of what a cluster has, and misspelt ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What there is on a cluster to be asked for."""

    partitions: Sequence[str]
    types: Sequence[str]
    features: Sequence[str]
    cpus: int
    memory: int
    """MiB of a usual node"""
    nodes: int
    resources: Sequence[str] = ()


WORDS = {
    "even": Words(("gpu", "cpu"), ("a100",), (), 64, 256000, 4),
    "mixed": Words(
        ("batch", "gpu", "big", "debug", "all"), ("a100", "v100"), ("new", "old", "ib", "big"), 64, 515000, 8, ("nvme",)
    ),
    "linear": Words(("gpu", "cpu", "all"), ("a100",), ("new", "old"), 32, 128000, 3, ("nvme",)),
    "res": Words(("gpu", "cpu", "whole"), ("a100", "v100"), ("new", "old", "big"), 32, 128000, 4),
    "threads": Words(("gpu", "whole", "some", "short"), ("a100", "v100"), ("new", "old", "ib"), 64, 515000, 4),
    "cores": Words(("gpu", "cpu"), ("a100",), ("new", "old"), 64, 515000, 3),
    "sockets": Words(("gpu", "part"), ("a100",), ("new",), 32, 256000, 4),
}


def request(seed: int, cluster: str) -> list[str]:
    """The options of one request, the same for the same seed."""
    rng, words = random.Random(f"{cluster}-{seed}"), WORDS[cluster]
    share = rng.choice([0.3, 0.6, 1.0])  # the more options, the surer that one of them is refused
    parts = [make(rng, words) for chance, make in _PARTS if rng.random() < chance * share]
    rng.shuffle(parts)
    options = [option for part in parts for option in part]
    if rng.random() < 0.04:
        options += [":", *request(seed * 7 + 1, cluster)]
    return options


def _memory_text(rng: random.Random, top: int) -> str:
    size = rng.choice([0, 1, 512, 1000, 4000, 16000, top // 4, top // 2, top - 1000, top, top + 1, top * 2])
    kind = rng.random()
    if kind < 0.55:
        return str(size) + rng.choice(["", "", "M", "MB", "m"])
    if kind < 0.8:
        return f"{max(size // 1024, 1)}{rng.choice(['G', 'g', 'GB', 'Gb'])}"
    if kind < 0.85:
        return f"{size * 1024}{rng.choice(['K', 'KB'])}"
    wrong = ["1.5G", "64GiB", "16Gi", "0.5T", "-1", "", "lots", "200 G", "1e3", "5P", "50%", "1T", "G", "+4G", " 8G"]
    return rng.choice(wrong)


def _memory(rng: random.Random, words: Words) -> list[str]:
    kind = rng.random()
    each = max(words.memory // words.cpus, 1)
    if kind < 0.5:
        return [f"--mem={_memory_text(rng, words.memory)}"]
    if kind < 0.8:
        return [f"--mem-per-cpu={_memory_text(rng, each)}"]
    if kind < 0.97:
        return [f"--mem-per-gpu={_memory_text(rng, words.memory // 4)}"]
    return [f"--mem={_memory_text(rng, words.memory)}", f"--mem-per-cpu={_memory_text(rng, each)}"]


def _nodes(rng: random.Random, words: Words) -> list[str]:
    count = rng.choice([1, 1, 1, 2, 2, 3, 4, words.nodes, words.nodes + 1, 0])
    text = str(count)
    if rng.random() < 0.15:
        text = f"{max(count, 1)}-{count + rng.choice([0, 1, 2])}"
    if rng.random() < 0.03:
        text = rng.choice(["two", "1k", "-1", "3-2", "1-", "2 "])
    return [rng.choice([f"-N{text}", f"--nodes={text}"])]


def _tasks(rng: random.Random, words: Words) -> list[str]:
    found = []
    kind = rng.random()
    if kind < 0.6:
        count = rng.choice([1, 2, 4, 8, 16, words.cpus, words.cpus * words.nodes, words.cpus * words.nodes + 1])
        if rng.random() < 0.03:
            count = rng.choice([0, -1, "1k", "four", "2.0"])  # type: ignore[list-item]
        found.append(rng.choice([f"-n{count}", f"--ntasks={count}"]))
    if kind > 0.45:
        found.append(f"--ntasks-per-node={rng.choice([1, 2, 4, 4, 8, 16, words.cpus, words.cpus + 1])}")
    return found


def _cpus(rng: random.Random, words: Words) -> list[str]:
    count: object = rng.choice([1, 2, 3, 4, 8, 16, 17, 32, words.cpus, words.cpus + 1])
    if rng.random() < 0.03:
        count = rng.choice(["0", "all", "8G", ""])
    return [rng.choice([f"-c{count}" if count != "" else "--cpus-per-task=", f"--cpus-per-task={count}"])]


def _type(rng: random.Random, words: Words) -> str:
    kind = rng.random()
    if kind < 0.6:
        return ""
    if kind < 0.9:
        return f"{rng.choice(list(words.types))}:"
    return rng.choice([f"{words.types[0].upper()}:", "h100:", "gpu:", ":"])


def _gpus(rng: random.Random, words: Words) -> list[str]:
    count: object = rng.choice([1, 1, 2, 2, 3, 4, 4, 5, 8, 16, 17])
    if rng.random() < 0.04:
        count = rng.choice(["0", "two", "-1", "", "1k"])
    kind = rng.random()
    typed = f"{_type(rng, words)}{count}"
    if kind < 0.4:
        text = rng.choice([f"gpu:{typed}", "gpu", f"gpu:{rng.choice(list(words.types))}"]) if count != "" else "gpu:"
        return [f"--gres={text}"]
    if kind < 0.6:
        return [rng.choice([f"--gpus={typed}", f"-G{count}" if count != "" else "--gpus="])]
    if kind < 0.75:
        return [f"--gpus-per-node={typed}"]
    if kind < 0.92:
        return [f"--gpus-per-task={typed}"]
    if kind < 0.95:
        return [f"--gpus-per-socket={count}", f"--sockets-per-node={rng.choice([1, 2, 4])}"]
    return [f"--gpus={typed}", f"--gpus-per-node={rng.choice([1, 2, 4])}"]


def _gres(rng: random.Random, words: Words) -> list[str]:
    names = ["fpga:1", "nvme:1", "nvme", "gpu:2,nvme:1", "nvme:2", "none", "GPU:1", "gres:gpu:1", "gpu:1,gpu:1",
             "gpu=1", "gpu:1:2:3", "gres/gpu:1", "", "craynetwork:0", "gpu:0"]  # fmt: skip
    both = f"gpu:{words.types[0]}:1,gpu:{words.types[-1]}:1"
    return [f"--gres={rng.choice([*names, both])}"]


def _per_gpu(rng: random.Random, words: Words) -> list[str]:
    if rng.random() < 0.6:
        return [f"--cpus-per-gpu={rng.choice([1, 2, 4, 8, 16, 17])}"]
    return [f"--ntasks-per-gpu={rng.choice([1, 1, 2, 4])}"]


def _partition(rng: random.Random, words: Words) -> list[str]:
    kind = rng.random()
    name = rng.choice(list(words.partitions))
    if kind < 0.8:
        return ["-p", name]
    if kind < 0.92:
        return [f"--partition={name},{rng.choice(list(words.partitions))}"]
    return ["-p", rng.choice(["nope", name.upper(), f"{name},nope", "", f"{name},"])]


def _constraint(rng: random.Random, words: Words) -> list[str]:
    names = [*words.features, "none"]
    one, other = rng.choice(names), rng.choice(names)
    shapes = ["{a}", "{a}", "{a}&{b}", "{a}|{b}", "{a},{b}", "[{a}|{b}]", "({a}|{b})", "({a}&{b})|{a}", "{a}*2",
              "[{a}*1&{b}*1]", "{a}&", "[{a}", "({a})", "{a}&({b}|{a})", "nofeature", "{A}"]  # fmt: skip
    return [f"--constraint={rng.choice(shapes).format(a=one, b=other, A=one.upper())}"]


def _time(rng: random.Random, words: Words) -> list[str]:
    good = ["10", "30:00", "1:00:00", "4:00:01", "12:00:00", "1-0", "1-00:00:00", "2-00:00:00", "2-0:1", "7-0", "0",
            "UNLIMITED", "infinite", "-1"]  # fmt: skip
    wrong = ["1h", "two", "1-2-3", "1:2:3:4", "", "1d", "12:", "1-", "1.5", ":30"]
    return [rng.choice(["-t", "--time="]) + rng.choice(good if rng.random() < 0.8 else wrong)]


def _layout(rng: random.Random, words: Words) -> list[str]:
    shapes = ["--threads-per-core=1", "--threads-per-core=2", "--sockets-per-node=2", "--cores-per-socket=8",
              "--ntasks-per-core=1", "--ntasks-per-socket=2", "--mincpus=20", "--sockets-per-node=4",
              "--cores-per-socket=17", "--ntasks-per-socket=16"]  # fmt: skip
    return [rng.choice(shapes)]


def _other(rng: random.Random, words: Words) -> list[str]:
    words_of = (
        "--mail-type=END,FAIL", "--mail-type=never", "--signal=B:USR1@120", "--signal=SIGNOPE", "-m cyclic:block",
        "--distribution=plane=2", "-mblocky", "--hint=nomultithread", "--hint=compute_bound", "--hint=fast",
        "--open-mode=append", "--open-mode=new", "--gres-flags=enforce-binding", "--gres-flags=x",
    )  # fmt: skip
    if rng.random() < 0.4:
        return rng.choice(words_of).split(" ")
    return [rng.choice(["--exclusive", "--exclusive", "--exclusive=user", "--exclusive=mine", "-O", "--contiguous",
                        "--requeue", "-A nobody", "--qos=nope", "--job-name=x", "--oversubscribe"])]  # fmt: skip


def _array(rng: random.Random, words: Words) -> list[str]:
    return [
        f"--array={rng.choice(['0-15', '1,3,7', '0-100:10%4', '5-1', '0-500', '0-501', '0-1001', 'a', '[1-4]', '1-'])}"
    ]


def _named(rng: random.Random, words: Words) -> list[str]:
    name = rng.choice([*words.partitions, "a1", "gpu1", "v[01-02]", "c[1-2]", "m1", "nope7"])
    return [f"{rng.choice(['--nodelist', '--exclude'])}={name}"]


def _bound(rng: random.Random, words: Words) -> list[str]:
    """Options that say when, with what else and by whom."""
    when = ("now", "now+1hour", "16:00", "tomorrow", "2030-01-20T12:34:00", "noon", "fika", "teatime", "midnight",
            "now+90", "now+2days", "010130", "2030-02-30", "25:00", "nonsense", "+1", "12/31/30", "1:00pm", "uptime-1",
            "today", "9.00", "2030-01-20T12", "now+x", "Jan 1", "3")  # fmt: skip
    sure = ("2037-01-20T12:34:00", "nonsense", "+1")  # others are refused at some times of the day
    shapes = (
        f"--begin={rng.choice(when)}", f"--begin={rng.choice(when)}", f"--begin={rng.choice(when)}",
        f"--deadline={rng.choice(sure)}",
        "--dependency=singleton", "--dependency=afterok:999999", "--dependency=afterok", "--dependency=nothing:1",
        "--dependency=afterany:999998:999997,after:999996", "--dependency=afterok:1?singleton", "--dependency=afterok:",
        "--licenses=matlab", "--licenses=ansys:2", "--licenses=ansys:9", "--licenses=:",
        "--account=nobody", "--qos=nope", "--exclusive=user", "--exclusive", "--signal=USR1@60", "--signal=B:TERM",
        "--nice=10", "--nice=x", "--comment=a b", "--wckey=x", "--spread-job", "--use-min-nodes", "-k", "--hold",
        "--tmp=1", "--tmp=10G", "--tmp=x", "--prefer=" + rng.choice([*words.features, "nofeature"]),
        "-B 1:1:1", "-B 2:4", "-B 9:9:9", "-B 1-2:*:*", "--extra-node-info=x", "--contiguous", "--switches=1",
        "--switches=1@10", "--core-spec=1", "--thread-spec=2", "--priority=5", "--get-user-env", "--time-min=5",
        "--time-min=9-0", "--profile=all", "--profile=none", "--mem-bind=local", "--mem-bind=x", "--chdir=/tmp",
    )  # fmt: skip
    found = rng.choice(shapes)
    return found.split(" ", 1) if found.startswith("-B") else [found]


def _twice(rng: random.Random, words: Words) -> list[str]:
    return rng.choice([_memory, _nodes, _tasks, _cpus])(rng, words)


Part = Callable[[random.Random, Words], list[str]]
_PARTS: list[tuple[float, Part]] = [
    (0.6, _memory), (0.45, _nodes), (0.5, _tasks), (0.45, _cpus), (0.55, _gpus), (0.05, _gres), (0.12, _per_gpu),
    (0.6, _partition), (0.12, _constraint), (0.2, _time), (0.06, _layout), (0.12, _other), (0.05, _array),
    (0.03, _named), (0.04, _twice), (0.12, _bound),
]  # fmt: skip
