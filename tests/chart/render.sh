#!/usr/bin/env bash
# Writes the manifests of deploy/ that are made of the chart: what `helm template` says of its default
# values, file by file.
#
#   render.sh [FOLDER]   into FOLDER, by default deploy/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
chart=$PWD/../../deploy/chart
into=$(realpath "${1:-../../deploy}")
helm=$(./build.sh | tail -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The Kubernetes whose kube-scheduler the manifests name.
kubernetes=1.34.2

template() { "$helm" template muster "$chart" --namespace=muster-system --kube-version="$kubernetes" "$@"; }

# added TEMPLATE FILE SETTING: what it says with that setting.
added() {
  mkdir -p "$(dirname "$work/$2")"
  template --set="$3" --show-only="templates/$1" >"$work/$2"
}

template --output-dir="$work" >/dev/null
added policies/gpu-queues.yaml gpu-queues/policy.yaml policies.gpuQueues.enabled=true
added withdraw-nodes.yaml withdraw-nodes/rbac.yaml config.engine.withdrawNodes=true
added standalone.yaml standalone/rbac.yaml mode=standalone
added kueue-fallback.yaml kueue-fallback/rbac.yaml config.engine.kueueFallback=true

# copy FROM... TO
copy() { install -D -m 644 -t "$into/${*: -1}" "${@:1:$#-1}"; }
copy "$work"/muster/templates/*.yaml base
copy "$work"/muster/templates/policies/*.yaml policies
copy "$work"/gpu-queues/* policies/gpu-queues
copy "$work"/withdraw-nodes/* withdraw-nodes
copy "$work"/kueue-fallback/* kueue-fallback
copy "$work"/standalone/* standalone
copy "$chart"/crds/*.yaml crds
