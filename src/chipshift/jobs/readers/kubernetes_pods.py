"""The pods of a Kubernetes job: how many there are, and the accelerators that each asks for.

Every kind nests its pods alike: what multiplies them (``replicas``, ``parallelism``,
``numOfHosts``, ``numNodes``) stands above the list of containers, so one walk down the tree counts
a Job, JobSet, PyTorchJob, MPIJob, RayJob, Volcano Job or TrainJob, and each inside another.

Sources: Kubernetes, "Jobs" (parallelism is 1 unless given); JobSet, "Concepts"; Kubeflow, "TrainJob
API" and "PyTorchJob"; KubeRay, "RayCluster configuration" (replicas × numOfHosts); Volcano, "Job";
Google Cloud, "Plan TPUs in GKE" (google.com/tpu counts chips), 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chipshift.jobs.settings import as_integer

DEVICES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "aws.amazon.com/neuron")
TPU = "google.com/tpu"
SLICES = ("replicas",)
HOSTS = ("parallelism", "numOfHosts", "numNodes")
DEEPEST = 40
_VARIABLE = re.compile(r"\$|\{\{|[<>]")
"""A shell's or template's variable, or a place to fill in by hand (``<NODES>``)."""


@dataclass(frozen=True)
class Pods:
    """Pods that are alike.

    Attributes:
        path: dotted, of the table that holds their containers.
        role: the name of the role above it, in lower case: ``launcher``, ``master`` ...
        slices: jobs of them, by what is called replicas; ``hosts``: pods of each.
        each: accelerators a pod, over its containers; 0 where it asks for none.
        resource: the resource's name, or "".
        unset: counts that hold a variable, such as ``replicas: $NODES``: the key and its text.
        wrong: counts that are none, such as ``nvidia.com/gpu: eight``: the key's dotted path and
            what stands there.
    """

    path: str
    role: str
    slices: int
    hosts: int
    each: int
    resource: str
    unset: tuple[tuple[str, str], ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> int:
        return self.slices * self.hosts


def pods_of(tree: Any) -> list[Pods]:
    """Every kind of pod of one document, in its order."""
    return list(_walk(tree, Pods("", "", 1, 1, 0, ""), 0))


def trainers(found: list[Pods]) -> list[Pods]:
    """The pods that train: those with accelerators, or all where none asks for one.

    An MPIJob's launcher starts its workers and does not train.
    """
    working = [pods for pods in found if pods.role != "launcher"] or found
    return [pods for pods in working if pods.each] or working


def _walk(tree: Any, above: Pods, depth: int) -> Iterator[Pods]:
    if depth > DEEPEST:
        return
    if isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from _walk(value, _below(above, str(at), value), depth + 1)
    elif isinstance(tree, dict):
        here = _multiplied(above, tree)
        if isinstance(tree.get("containers"), list):
            yield _asked(here, [one for one in tree["containers"] if isinstance(one, dict)])
        elif isinstance(tree.get("resourcesPerNode"), dict) or "numNodes" in tree:
            yield _asked(here, [{"resources": tree.get("resourcesPerNode")}])
        for key, value in tree.items():
            if key != "initContainers":
                yield from _walk(value, _below(here, str(key), value), depth + 1)


def _below(above: Pods, key: str, value: Any) -> Pods:
    """The same multipliers one step down; a table of a role gives its name."""
    role = above.role
    if isinstance(value, dict) and ("template" in value or "replicas" in value):
        role = str(value.get("replicaType") or value.get("name") or key).lower()
    path = f"{above.path}.{key}" if above.path else key
    return replace(above, path=path, role=role)


def _multiplied(above: Pods, table: Mapping[str, Any]) -> Pods:
    slices, hosts, unset, bad = above.slices, above.hosts, list(above.unset), list(above.wrong)
    for key in (*SLICES, *HOSTS):
        value = table.get(key)
        count = as_integer(value)
        if count is None:
            if isinstance(value, str) and _VARIABLE.search(value):
                unset.append((key, value))
            elif isinstance(value, str):
                bad.append((f"{above.path}.{key}", value))
            continue
        if key in SLICES:
            slices *= max(0, count)
        else:
            hosts *= max(0, count)
    return replace(above, slices=slices, hosts=hosts, unset=tuple(unset), wrong=tuple(bad))


def _asked(here: Pods, containers: list[dict[str, Any]]) -> Pods:
    """The accelerators of a pod's containers together; limits, else requests."""
    total, resource, unset, bad = 0, "", list(here.unset), list(here.wrong)
    for at, container in enumerate(containers):
        resources = container.get("resources")
        table = resources if isinstance(resources, dict) else {}
        for name in DEVICES:
            kind = next(
                (k for k in ("limits", "requests") if isinstance(t := table.get(k), dict)
                 and name in t), ""
            )  # fmt: skip
            value = table[kind][name] if kind else None
            count = as_integer(value)
            if isinstance(value, str) and _VARIABLE.search(value):
                unset.append((name, value))
            elif value is not None and (count is None or count < 0):
                bad.append((f"{here.path}.containers.{at}.resources.{kind}.{name}", str(value)))
            if count and (not resource or resource == name):
                total, resource = total + max(0, count), name
    return replace(here, each=total, resource=resource, unset=tuple(unset), wrong=tuple(bad))
