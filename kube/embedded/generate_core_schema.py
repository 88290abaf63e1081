#!/usr/bin/env python3
"""Writes core_schema.cc from the OpenAPI document of a Kubernetes release.

Usage: generate_core_schema.py api/openapi-spec/swagger.json v1.34.2 > core_schema.cc
The document is in the Go module k8s.io/kubernetes. Only names, types and merge keys are taken.
"""
import json
import sys
import textwrap

CORE = "io.k8s.api.core.v1."
ROOTS = [CORE + kind for kind in (
    "Binding", "ConfigMap", "Event", "Namespace", "Node", "PersistentVolume",
    "PersistentVolumeClaim", "Pod", "Service")] + [
    "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    "io.k8s.api.apps.v1.DaemonSet",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.scheduling.v1.PriorityClass",
    "io.k8s.api.storage.v1.CSIDriver",
    "io.k8s.api.storage.v1.CSINode",
    "io.k8s.api.storage.v1.CSIStorageCapacity",
    "io.k8s.api.storage.v1.StorageClass",
    "io.k8s.api.storage.v1.VolumeAttachment",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
]
LEAVES = {"Quantity": "q", "Time": "t", "MicroTime": "T", "IntOrString": "x"}
# Fields of later releases that Muster names, by type.
LATER = {
    "CSIDriverSpec": {"preventPodSchedulingIfMissing": "b"},
    "NodeStatus": {"declaredFeatures": "*s"},
    "PodSpec": {"schedulingGroup": "PodSchedulingGroup"},
    "PodSchedulingGroup": {"podGroupName": "s"},
}
# Free-form, or recursive: not looked into.
OPAQUE = {"FieldsV1", "JSON", "JSONSchemaProps", "RawExtension"}
# Of keys of lists; the document has no defaults.
KEY_DEFAULTS = {"protocol": "=TCP"}
definitions = {}  # the document's types by their full names


def short(reference):
    return reference.split("/")[-1].split(".")[-1]


def merging(field):
    """How a list merges: in a strategic patch, and in server-side apply where that differs."""
    merge, usual = "", ""
    if "merge" in field.get("x-kubernetes-patch-strategy", ""):
        key = field.get("x-kubernetes-patch-merge-key", "")
        merge, usual = "@" + key, key or "*"
    apply = {"set": "*", "map": ""}.get(field.get("x-kubernetes-list-type"))
    if apply == "":
        apply = ",".join(key + KEY_DEFAULTS.get(key, "")
                         for key in field["x-kubernetes-list-map-keys"])
    apply = apply or ""
    return merge if apply == usual else f"{merge}~{apply}"


def type_of(field, queue):
    if "$ref" in field:
        name = short(field["$ref"])
        if name in LEAVES:
            return LEAVES[name]
        if name in OPAQUE:
            return "?"
        queue.append(field["$ref"].split("/")[-1])
        return name
    kind = field.get("type")
    if kind == "string":
        return "y" if field.get("format") == "byte" else "s"
    if kind == "integer":
        return {"int32": "i", "int64": "l"}[field["format"]]
    if kind == "number":
        return "n"
    if kind == "boolean":
        return "b"
    if kind == "array":
        return "*" + type_of(field["items"], queue) + merging(field)
    if kind == "object" and "additionalProperties" in field:
        atomic = "!" if field.get("x-kubernetes-map-type") == "atomic" else ""
        return atomic + "%" + type_of(field["additionalProperties"], queue)
    return "?"


def main():
    definitions.update(json.load(open(sys.argv[1]))["definitions"])
    queue, lines, seen = list(ROOTS), {}, set()
    while queue:
        full = queue.pop(0)
        if full in seen:
            continue
        seen.add(full)
        fields = definitions[full].get("properties", {})
        types = {name: type_of(field, queue) for name, field in fields.items()}
        types.update(LATER.get(short(full), {}))
        body = " ".join(f"{name}:{of}" for name, of in sorted(types.items()))
        if definitions[full].get("x-kubernetes-map-type") == "atomic":
            body = "! " + body
        # Types of the same short name in two groups have the same shape in these kinds.
        lines.setdefault(short(full), body)
    for name, fields in LATER.items():
        lines.setdefault(name, " ".join(f"{field}:{of}" for field, of in sorted(fields.items())))
    out = []
    for name, body in sorted(lines.items()):
        out += textwrap.wrap(f"{name} {body}", 98, subsequent_indent="  ", break_long_words=False)
    template = open(sys.path[0] + "/core_schema.cc.in").read()
    sys.stdout.write(template.replace("@VERSION@", sys.argv[2]).replace(
        "@TYPES@", "\n".join(out)))


if __name__ == "__main__":
    main()
