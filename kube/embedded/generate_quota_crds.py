#!/usr/bin/env python3
"""Writes quota_crds.cc from the definitions of Kueue's objects in deploy/.

Usage: generate_quota_crds.py ../../deploy/crds/kueue/kueue.x-k8s.io_*.yaml > quota_crds.cc
Only the stored version is taken, and only what this server enforces.
"""
import json
import sys
import textwrap

import yaml

NOT_ENFORCED = {"anyOf", "description", "maxProperties", "pattern", "x-kubernetes-validations"}
HEAD = """// Made by generate_quota_crds.py from deploy/crds/kueue.
#include "kube/embedded/quota_crds.h"

namespace muster::kube::embedded {

const std::vector<std::string>& QuotaCrds() {
  static const auto* const kCrds = new std::vector<std::string>{
"""
TAIL = """  };
  return *kCrds;
}

}  // namespace muster::kube::embedded
"""


def schema(node):
    """A schema without what isn't enforced; names of properties are never dropped."""
    out = {}
    for key, value in node.items():
        if key in NOT_ENFORCED:
            continue
        if key == "properties":
            value = {name: schema(field) for name, field in value.items()}
        elif key in ("items", "additionalProperties"):
            value = schema(value)
        out[key] = value
    return out


def definition(crd):
    spec = crd["spec"]
    stored = next(version for version in spec["versions"] if version["storage"])
    version = {"name": stored["name"], "served": True, "storage": True}
    for part in ("subresources", "selectableFields"):
        if part in stored:
            version[part] = stored[part]
    columns = [{key: value for key, value in column.items() if key != "description"}
               for column in stored.get("additionalPrinterColumns", [])]
    if columns:
        version["additionalPrinterColumns"] = columns
    version["schema"] = {"openAPIV3Schema": schema(stored["schema"]["openAPIV3Schema"])}
    names = {key: value for key, value in spec["names"].items() if key != "listKind"}
    return {"metadata": {"name": crd["metadata"]["name"]},
            "spec": {"group": spec["group"], "scope": spec["scope"], "names": names,
                     "versions": [version]}}


def main():
    out = []
    for file in sys.argv[1:]:
        text = json.dumps(definition(yaml.safe_load(open(file))), separators=(", ", ":"))
        lines = textwrap.wrap(text, 98, break_long_words=False, break_on_hyphens=False)
        out.append('      R"(' + "\n".join(lines) + ')",\n')
    sys.stdout.write(HEAD + "".join(out) + TAIL)


if __name__ == "__main__":
    main()
