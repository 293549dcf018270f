"""Reader of Kubernetes objects: the programs of containers in pods, with their memory limit and their /dev/shm.

Every object with a pod in it is read: Pod, Job, CronJob, Deployment, Kubeflow's PyTorchJob, Volcano's Job,
Argo's Workflow. Sources: the
Kubernetes API reference (PodSpec, Container, EmptyDirVolumeSource); containerd gives a container a /dev/shm of 64 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice, product

from msgspec.structs import replace

from preflight.dialects.containers.argo import Templates, is_argo
from preflight.dialects.containers.reader import ContainerSpec, environment, quantity, reading
from preflight.dialects.shell.docker_run import DEFAULT_SHM
from preflight.documents.yaml import YamlDocument, parse_yaml
from preflight.vocabulary.budgets import MANIFEST_OBJECTS
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import TORCHRUN_RANKS, Call, Reading, Unread
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Cause, Const, Expr, Origin, Route, Span, Unknown, Value, evaluate

NAME = "kubernetes"
_READ: CacheKind[Reading] = CacheKind("Kubernetes objects, read")

_OBJECT = re.compile(r"^apiVersion:", re.M)
_POD = re.compile(r"^\s*(- )?\"?(containers|container|script)\"?:", re.M)
_SEPARATOR = re.compile(r"^---(?=\s|$)[^\n]*\n?", re.M)
_TEMPLATE = re.compile(r"\{\{(?!=?\s*(?:inputs|workflow|item|tasks|steps|outputs|pod)\b).*?\}\}", re.S)
"""What stands in a Helm template. Argo's own variables stand in a Workflow."""
_ACCELERATORS = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.product", "gpu.nvidia.com/class",
                 "k8s.amazonaws.com/accelerator", "accelerator")  # fmt: skip
"""Labels of nodes that name their GPU: of GKE, of NVIDIA's feature discovery, of CoreWeave and of EKS."""
_NODE_KINDS = ("PyTorchJob", "MPIJob", "TFJob", "XGBoostJob")
"""Kinds whose replicas are the processes of one training run."""


def recognises(source: Source, project: Project) -> bool:
    """Whether an object has containers, and one starts a program of the project. A Helm template is not an object."""
    if not _OBJECT.search(source.text) or not _POD.search(source.text) or _TEMPLATE.search(source.text):
        return False
    try:
        found = read(source, None, project)
        return bool(found.links) or found.unread is not None
    except DocumentError:
        return False


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """Links to the programs that the containers start. Raises DocumentError."""
    return project.remembered.get(_READ, lambda: _read(source, project), source.path)


def _read(source: Source, project: Project) -> Reading:
    parts = [reading(source, NAME, document, list(_containers(document)), project) for document in _documents(source)]
    links = tuple(link for part in parts for link in part.links)
    unread = next((part.unread for part in parts if part.unread is not None), None) or _rest(source)
    started = [part for part in parts if part.links]
    named = {evaluate(one.expr): one for part in started for one in part.bindings}
    gpu = tuple(named.values()) if len(named) == 1 and all(part.bindings for part in started) else ()
    return Reading(source.path, NAME, bindings=gpu, links=links, trains=False, unread=unread)


def _rest(source: Source) -> Unread | None:
    """What stands behind the last object that is read."""
    ends = [match.end() for match in islice(_SEPARATOR.finditer(source.text), MANIFEST_OBJECTS)]
    if len(ends) < MANIFEST_OBJECTS or not _POD.search(source.text, ends[-1]):
        return None
    return Unread.beyond(MANIFEST_OBJECTS, Origin(source.path, Span(ends[-1], ends[-1])))


def _documents(source: Source) -> Iterator[YamlDocument]:
    """Each object of a file, parsed with blanks in place of the other objects, so that positions stay correct."""
    cuts = [0, *(match.end() for match in _SEPARATOR.finditer(source.text))]
    starts = [match.start() for match in _SEPARATOR.finditer(source.text)]
    for start, end in list(zip(cuts, [*starts, len(source.text)], strict=True))[:MANIFEST_OBJECTS]:
        text = source.text[start:end]
        if _POD.search(text):
            before = re.sub(r"[^\n]", " ", source.text[:start])
            yield parse_yaml(replace(source, text=before + text), "1.2")


def _containers(document: YamlDocument) -> Iterator[ContainerSpec]:
    templates = Templates(document) if is_argo(document) else None
    for route, nodes in _pods(document, document.value(), (), _kind(document)):
        pod = document.value(route)
        if not isinstance(pod, Mapping):
            continue
        gpu = _gpu_name(document, (*route, "nodeSelector"))
        started = templates.values(route) if templates is not None else [{}]
        for (where, one), values in product(_of_pod(route, pod), started):
            parts = ("command", "args", "source") if where[-1] == "script" else ("command", "args")
            commands = tuple((*where, part) for part in parts if _said(one, part))
            commands = commands[-1:] if where[-1] == "script" else commands
            if isinstance(one, Mapping) and commands:
                limits = (*where, "resources", "limits")
                gpus = _gpus(document, limits)
                yield ContainerSpec(
                    tuple(commands),
                    document.key_origin(where),
                    None,
                    {**_ranks(document, gpus), **environment(document, (*where, "env"))},
                    _shm(document, route, pod, one, where),
                    _at(document, (*limits, "memory")),
                    gpus,
                    nodes,
                    gpu,
                    values,
                )


def _of_pod(route: Route, pod: Mapping[str, Value]) -> Iterator[tuple[Route, Value]]:
    """The containers of a pod: a list, or the one of a template of Argo's (a program, or a script)."""
    containers = pod.get("containers")
    if isinstance(containers, tuple):
        yield from (((*route, "containers", index), one) for index, one in enumerate(containers))
    for name in ("container", "script"):
        if isinstance(pod.get(name), Mapping):
            yield (*route, name), pod[name]


def _gpu_name(document: YamlDocument, route: Route) -> Expr | None:
    """The GPU of the nodes that a pod may run on, by a label that names it."""
    selector = document.value(route) if document.has(route) else None
    for label in _ACCELERATORS if isinstance(selector, Mapping) else ():
        name = selector.get(label) if isinstance(selector, Mapping) else None
        if isinstance(name, str) and "{{" not in name:
            return Const(name, replace(document.origin((*route, label)), editable=False))
    return None


def _kind(document: YamlDocument) -> str:
    return str(document.value(("kind",))) if document.has(("kind",)) else ""


def _said(one: Value, part: str) -> bool:
    return isinstance(one, Mapping) and bool(one.get(part))


def _pods(document: YamlDocument, value: Value, route: Route, kind: str) -> Iterator[tuple[Route, Expr | None]]:
    """Every mapping with containers, and the number of nodes of its run."""
    argo = is_argo(document)
    if isinstance(value, Mapping):
        if isinstance(value.get("containers"), tuple) or (argo and set(value) & {"container", "script"}):
            yield route, _nodes(document, kind)
            return
        for name, inner in value.items():
            yield from _pods(document, inner, (*route, str(name)), kind)
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _pods(document, inner, (*route, index), kind)


def _nodes(document: YamlDocument, kind: str) -> Expr | None:
    """The sum of the replicas of one run."""
    if kind not in _NODE_KINDS:
        return None
    total, origin = 0, None
    for route in document.routes():
        if route[-1] == "replicas" and len(route) > 1 and str(route[-3:-2]).find("eplicaSpecs") >= 0:
            value = document.value(route)
            total += value if isinstance(value, int) else 0
            origin = document.origin(route)
    return None if origin is None or total < 1 else Const(total, replace(origin, editable=False))


def _ranks(document: YamlDocument, gpus: Expr | None) -> Mapping[str, Expr]:
    """The variable in which Kubeflow's training operator tells torchrun the processes of a pod. Where the object does
    not say how many, releases differ: as many as the pod has GPUs (1.7, SetDefaultNprocPerNode), or one."""
    if _kind(document) != "PyTorchJob":
        return {}
    for route in (("spec", "nprocPerNode"), ("spec", "elasticPolicy", "nProcPerNode")):
        if document.has(route) and document.value(route) is not None:
            said, origin = document.value(route), replace(document.origin(route), editable=False)
            asks = said in ("auto", "gpu") and gpus is not None
            return {TORCHRUN_RANKS: gpus if asks and gpus is not None else Const(str(said), origin)}
    if gpus is None or evaluate(gpus) == 1:
        return {}
    why = "nprocPerNode is not set: the release of the training operator decides how many processes torchrun starts"
    return {TORCHRUN_RANKS: Const(Unknown(why, Cause.not_set), gpus.origin)}


def _at(document: YamlDocument, route: Route) -> Expr | None:
    return quantity(document.value(route), document.origin(route)) if document.has(route) else None


def _gpus(document: YamlDocument, limits: Route) -> Expr | None:
    """The number of GPUs: nvidia.com/gpu, another vendor's, or slices (each counts as one); 0 if none is requested."""
    asked = document.value(limits) if document.has(limits) else None
    if not isinstance(asked, Mapping):
        return None
    for name, value in asked.items():
        if re.search(r"/(gpu|mig-|tesla|vgpu)", str(name)):
            return Const(value, document.origin((*limits, str(name)))) if isinstance(value, int) else None
    return Const(0, document.key_origin(limits))


def _shm(
    document: YamlDocument, pod_route: Route, pod: Mapping[str, Value], one: Mapping[str, Value], route: Route
) -> Expr | None:
    """The size of /dev/shm: the limit of an emptyDir that is mounted there, or 64 MiB by the container runtime."""
    if pod.get("hostIPC") is True:
        return None
    mounts, volumes = one.get("volumeMounts"), pod.get("volumes")
    for mount in mounts if isinstance(mounts, tuple) else ():
        if not isinstance(mount, Mapping) or str(mount.get("mountPath")).rstrip("/") != "/dev/shm":
            continue
        for index, volume in enumerate(volumes if isinstance(volumes, tuple) else ()):
            if isinstance(volume, Mapping) and volume.get("name") == mount.get("name"):
                return _at(document, (*pod_route, "volumes", index, "emptyDir", "sizeLimit"))
        return None
    return Const(DEFAULT_SHM, document.key_origin(route))
