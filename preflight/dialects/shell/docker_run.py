"""`docker run` and `podman run` in a job script: the command inside, and the resources of the container.

The resources are part of the launch's environment, under names that no real variable has. Sources: docker-run(1) and
podman-run(1). A container has a /dev/shm of 64 MiB by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from preflight.dialects.shell.values import word_text
from preflight.vocabulary.notation import scaled
from preflight.vocabulary.reading import GPUS, MEMORY, SHM, Launch, Word
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, Value, evaluate, unknown

ENGINES = ("docker", "podman", "nvidia-docker")

DEFAULT_SHM = 64 * 2**20

_SWITCHES = frozenset(
    re.findall(
        r"\S+",
        "--detach --disable-content-trust --help --init --interactive --no-healthcheck --oom-kill-disable --privileged "
        "--publish-all --quiet --read-only --rm --sig-proxy --tty --use-api-socket --no-hosts --replace --rmi "
        "--rootfs --env-host --http-proxy --no-hostname",
    )
)
_SHORT_SWITCHES = re.compile(r"-[ditPq]+")
_UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


def is_run(name: str, words: Sequence[Word]) -> bool:
    """Whether a command starts a container; `words` are the words behind the engine's name."""
    return name in ENGINES and _verb(words) is not None


def _verb(words: Sequence[Word]) -> int | None:
    """The index of `run` (also in `container run`); None if it is another command of the engine."""
    texts = [word_text(word) for word in words[:2]]
    if texts[:1] == ["run"]:
        return 0
    return 1 if texts == ["container", "run"] else None


def peel(words: Sequence[Word], launch: Launch) -> tuple[tuple[Word, ...], Launch]:
    """The command inside the container, and the launch with the resources of the container."""
    verb = _verb(words) or 0
    options, rest = _options(list(words[verb + 1 :]))
    given = {SHM: _shm(options, words[verb]), GPUS: _gpus(options), **_memory(options)}
    inside = {name: expr for name, expr in given.items() if expr is not None}
    return tuple(rest[1:]), replace(launch, environment={**launch.environment, **inside})


def _options(words: list[Word]) -> tuple[dict[str, Expr], list[Word]]:
    found: dict[str, Expr] = {}
    while words and words[0].prefix.startswith("-"):
        word, words = words[0], words[1:]
        name = word.prefix.rstrip("=")
        if word.value is not None:
            found[name] = word.value
        elif name not in _SWITCHES and not _SHORT_SWITCHES.fullmatch(name) and words:
            value, words = words[0], words[1:]
            found[name] = value.value if value.value is not None else Const(value.prefix, value.origin)
    return found, words


def _shm(options: Mapping[str, Expr], verb: Word) -> Expr | None:
    """The size of /dev/shm; None if the container shares the /dev/shm of the host or of another container."""
    sharing = options.get("--ipc")
    if sharing is not None and evaluate(sharing) not in ("private", "shareable", "none", ""):
        return None
    said = options.get("--shm-size")
    return Const(DEFAULT_SHM, verb.origin) if said is None else _size(said)


def _memory(options: Mapping[str, Expr]) -> dict[str, Expr]:
    said = options.get("--memory", options.get("-m"))
    return {} if said is None else {MEMORY: _size(said)}


def _gpus(options: Mapping[str, Expr]) -> Expr | None:
    """The number of GPUs by `--gpus`: unknown for `all` and device lists, None without the option."""
    said = options.get("--gpus")
    if said is None:
        return None
    text = str(evaluate(said)).strip()
    return (
        Const(int(text), getattr(said, "origin", None))
        if text.isdecimal()
        else unknown("all GPUs of the machine", cause=Cause.run_time)
    )


def size_in_bytes(value: Value) -> int | None:
    """Bytes of a size for Docker and Compose: "8g", "512mb", 1073741824. Units are powers of 1024."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*([a-z]*)", str(value).strip().lower())
    unit = None if found is None else _UNITS.get(found[2])
    return None if found is None or unit is None else scaled(float(found[1]), unit)


def _size(said: Expr) -> Expr:
    value = evaluate(said)
    size = None if isinstance(value, Unknown) else size_in_bytes(value)
    origin = said.origin if isinstance(said, Const) else None
    if size is None:
        return unknown("this size of the container is unknown", origin, Cause.run_time)
    return Const(size, origin)
