"""Reader of Docker Compose files: the programs of the services, with the memory and the /dev/shm of each.

Source: the Compose Specification (services: command, entrypoint, shm_size, ipc, mem_limit, deploy.resources, gpus).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight.dialects.containers.reader import ContainerSpec, compose_size, environment, reading
from preflight.dialects.shell.docker_run import DEFAULT_SHM
from preflight.documents.yaml import YamlDocument, parse_yaml
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Const, Expr, Route, Value

NAME = "compose"
_READ: CacheKind[Reading] = CacheKind("a Compose file, read")

_SERVICES = re.compile(r"^services:", re.M)
_IMAGE = re.compile(r"^\s+(image|build|extends):", re.M)
_STARTS = re.compile(r"command|entrypoint")
_LIMITS = (("deploy", "resources", "limits", "memory"), ("mem_limit",))


def recognises(source: Source, project: Project) -> bool:
    """Whether a file has services, and one of them starts a program of the project."""
    text = source.text
    if not (_SERVICES.search(text) and _STARTS.search(text) and _IMAGE.search(text)):
        return False
    try:
        return bool(read(source, None, project).links)
    except DocumentError:
        return False


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the services start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    document = parse_yaml(source, "1.2")
    return reading(source, NAME, document, list(_containers(document)), project)


def _containers(document: YamlDocument) -> Iterator[ContainerSpec]:
    services = document.value(("services",)) if document.has(("services",)) else None
    if not isinstance(services, Mapping):
        return
    for name, service in services.items():
        if not isinstance(service, Mapping):
            continue
        route: Route = ("services", str(name))
        commands = tuple((*route, part) for part in ("entrypoint", "command") if service.get(part))
        if commands:
            yield ContainerSpec(
                commands,
                document.key_origin(route),
                None,
                environment(document, (*route, "environment")),
                _shm(document, route, service),
                _first(document, route, _LIMITS),
                _gpus(document, route, service),
            )


def _first(document: YamlDocument, route: Route, names: tuple[Route, ...]) -> Expr | None:
    """The size at the first route that exists. If both are given, `docker compose` uses `deploy`."""
    for name in names:
        where = (*route, *name)
        if document.has(where):
            return compose_size(document.value(where), document.origin(where))
    return None


def _shm(document: YamlDocument, route: Route, service: Mapping[str, Value]) -> Expr | None:
    if str(service.get("ipc", "private")) not in ("private", "shareable", "none", ""):
        return None
    said = _first(document, route, (("shm_size",),))
    if said is not None:
        return said
    for mount in _list(service.get("tmpfs")):
        if str(mount).partition(":")[0] == "/dev/shm":
            return None
    for mount in _list(service.get("volumes")):
        target = mount.get("target") if isinstance(mount, Mapping) else str(mount).split(":")[1:2]
        if target in ("/dev/shm", ["/dev/shm"]):
            return None  # the host's own
    return Const(DEFAULT_SHM, document.key_origin(route))


def _list(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _gpus(document: YamlDocument, route: Route, service: Mapping[str, Value]) -> Expr | None:
    """The number of GPUs: 0 if none is requested, None for all GPUs of the machine."""
    where = (*route, "deploy", "resources", "reservations", "devices")
    if service.get("gpus") is not None or service.get("runtime") == "nvidia":
        return None
    devices = document.value(where) if document.has(where) else None
    for index, device in enumerate(_list(devices)):
        if not isinstance(device, Mapping):
            continue
        count, ids = device.get("count"), device.get("device_ids")
        if isinstance(ids, tuple):
            return Const(len(ids), document.origin((*where, index, "device_ids")))
        return Const(count, document.origin((*where, index, "count"))) if isinstance(count, int) else None
    return Const(0, document.key_origin(route))
