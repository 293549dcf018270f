"""AdmissionReviews as the API server of Kubernetes 1.30 sends them, for objects as their controllers' users write them.

The fields of the request are those of k8s.io/api/admission/v1, AdmissionRequest; the places of templates are those of
Kubeflow's training operator (v1), its MPI operator (v2beta1), Kubeflow's trainer (v2), KubeRay (v1), JobSet (v1alpha2)
and Volcano (v1alpha1). Kueue suspends the Jobs of a queue, and lets them go by an update.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
NOISE = {
    "kubectl.kubernetes.io/last-applied-configuration": '{"apiVersion":"batch/v1"}\n',
    "cluster.example/team": "nlp",
}


def template(annotations: Mapping[str, str]) -> dict[str, Any]:
    """A template of pods."""
    container = {
        "name": "train",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "64Gi"}, "requests": {"nvidia.com/gpu": "1"}},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    return {"metadata": {"creationTimestamp": None, "annotations": {**NOISE, **annotations}}, "spec": spec}


def objects(job: str) -> dict[str, dict[str, Any]]:
    """Kind -> an object whose template, or which itself, is annotated with a Job."""
    stated = {"preflight/job": job}
    role = {"replicas": 1, "restartPolicy": "OnFailure", "template": template({})}
    worker = {**role, "replicas": 3, "template": template(stated)}
    group = {"groupName": "gpu", "replicas": 2, "rayStartParams": {}, "template": template(stated)}
    head = {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": template({})}
    cluster = {"rayVersion": "2.34.0", "headGroupSpec": head, "workerGroupSpecs": [group]}
    inner = {"spec": {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(stated)}}
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    return {
        "Pod": {"apiVersion": "v1", **template(stated)},
        "Job": {"apiVersion": "batch/v1", "spec": {"backoffLimit": 6, "template": template(stated)}},
        "CronJob": {"apiVersion": "batch/v1", "spec": {"schedule": "0 3 * * *", "jobTemplate": inner}},
        "PyTorchJob": {
            "apiVersion": "kubeflow.org/v1",
            "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": worker}, "runPolicy": {"suspend": False}},
        },
        "TrainJob": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "metadata": {"annotations": stated},
            "spec": {"runtimeRef": runtime, "trainer": {"numNodes": 2, "image": "registry.example/train:1"}},
        },
        "MPIJob": {
            "apiVersion": "kubeflow.org/v2beta1",
            "spec": {
                "slotsPerWorker": 2,
                "runPolicy": {"cleanPodPolicy": "Running"},
                "mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template({})}, "Worker": worker},
            },
        },
        "Volcano": {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "spec": {
                "minAvailable": 3,
                "schedulerName": "volcano",
                "queue": "research",
                "plugins": {"pytorch": ["--master=master", "--worker=worker", "--port=23456"], "svc": []},
                "tasks": [
                    {"name": "master", "replicas": 1, "template": template({})},
                    {"name": "worker", "replicas": 2, "template": template(stated)},
                ],
            },
        },
        "Queued": {
            "apiVersion": "batch/v1",
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "research"}},
            "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": template(stated)},
        },
        "RayJob": {
            "apiVersion": "ray.io/v1",
            "spec": {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster},
        },
        "JobSet": {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": inner}]},
        },
    }


KINDS = {"Volcano": "Job", "Queued": "Job"}
"""What they are called in a review, where that is another object's name, too."""


def review(
    kind: str, body: dict[str, Any] | None, operation: str = "CREATE", old: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A whole review. `body` None: what is deleted has no new object. `old`: the object until now."""
    kind = KINDS.get(kind, kind)
    version = str((body or {}).get("apiVersion", "v1"))
    group, _, number = version.rpartition("/")
    named = {"group": group, "version": number, "kind": kind}
    resource = {"group": group, "version": number, "resource": kind.lower() + "s"}
    common = {"name": "train", "namespace": "research", "creationTimestamp": None}
    whole, before = [
        one and {**one, "kind": kind, "metadata": {**common, **one.get("metadata", {})}, "status": {}}
        for one in (body, old)
    ]
    request = {
        "uid": UID,
        "kind": named,
        "resource": resource,
        "requestKind": named,
        "requestResource": resource,
        "name": "train",
        "namespace": "research",
        "operation": operation,
        "userInfo": {
            "username": "system:serviceaccount:research:submit",
            "uid": "a1f0",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": whole,
        "oldObject": before,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def of(kind: str, job: object, operation: str = "CREATE") -> dict[str, Any]:
    """A review of an object with a Job."""
    return review(kind, objects(job if isinstance(job, str) else json.dumps(job))[kind], operation)
