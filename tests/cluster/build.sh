#!/usr/bin/env bash
# Builds the programs of the test cluster from their Go modules, all stock but
# for a Karpenter that fails on order, and copies the CRDs and manifests that
# belong to them beside the binaries.
#
#   build.sh [--peers]           build what is missing; the last line is the folder
#   build.sh [--peers] --where   print only the folder
#
# With --peers it is about the programs that only --full needs: Kueue,
# scheduler-plugins' scheduler, training-operator, JobSet, Trainer, mpi-operator
# and KubeRay, and kueuectl. The folder lies outside the tree and is named by a hash of
# everything the binaries are made of, so that fresh clones and branches share
# one build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

kubernetes=1.34.2

what="control plane" name=control-plane
modules=(controlplane faults karpenter kwok)
if [[ "${1:-}" == --peers ]]; then
  what=peers name=peers
  modules=(kueue scheduler-plugins training-operator jobset trainer mpi-operator kuberay)
  shift
fi
cache="${XDG_CACHE_HOME:-$HOME/.cache}/muster/$name"
hash=$(find "${modules[@]}" -type f \( -name go.mod -o -name go.sum -o -name '*.go' \) -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum build.sh | sha256sum | cut -c1-16)
out="$cache/$hash"

if [[ "${1:-}" == --where ]]; then
  echo "$out"
  exit
fi
if [[ -e "$out/complete" ]]; then
  echo "$what: built already"
  echo "$out"
  exit
fi
command -v go >/dev/null || {
  echo "build.sh: no go on PATH; ./run installs one" >&2
  exit 1
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || {
  echo "$what: another build is running, waiting for it"
  flock 9
}
if [[ -e "$out/complete" ]]; then
  echo "$out"
  exit
fi

# A build that was cut off leaves no "complete" file and is taken up again:
# finished programs stay, and Go's own cache keeps the packages of the rest.
mkdir -p "$out"
begin=$SECONDS

build() { # name, module folder, package, what a first build takes, ldflags...
  local name=$1 folder=$2 package=$3 usual=$4 start=$SECONDS
  shift 4
  if [[ -x "$out/$name" ]]; then
    return
  fi
  echo "$what: building $name ($usual on two cores the first time)"
  (cd "$folder" && nice -n 5 go build -trimpath -buildvcs=false \
    -ldflags "-s -w $*" -o "$out/$name.part" "$package") 9>&-
  mv "$out/$name.part" "$out/$name"
  echo "$what: $name took $((SECONDS - start)) s"
}

build_control_plane() {
  # Clients parse the server's version; without the flags it is v0.0.0-master.
  local version minor name
  version="-X k8s.io/component-base/version.gitVersion=v$kubernetes"
  version+=" -X k8s.io/component-base/version.gitMajor=${kubernetes%%.*}"
  minor=${kubernetes#*.}
  version+=" -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
  version+=" -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"

  build control-plane controlplane . "5 to 11 minutes" "$version"
  build karpenter karpenter . "3 minutes"
  build kwok kwok sigs.k8s.io/kwok/cmd/kwok "3 minutes"

  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    ln -sf control-plane "$out/$name"
  done

  local module
  module=$(cd karpenter && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
  mkdir -p "$out/crds"
  install -m 644 "$module"/pkg/apis/crds/*.yaml "$module"/kwok/apis/crds/*.yaml "$out/crds/"
}

# module_folder FOLDER MODULE: where Go keeps the sources.
module_folder() { (cd "$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2"); }

# manifests NAME FOLDER CRDS: what a cluster's owner applies, and the CRDs of it.
manifests() {
  rm -rf "$out/manifests-$1" "$out/crds-$1"
  mkdir -p "$out/manifests-$1" "$out/crds-$1"
  cp -r --no-preserve=mode "$2/." "$out/manifests-$1"
  install -m 644 "$2/$3"/*_*.yaml "$out/crds-$1/"
}

build_peers() {
  local folder
  folder=$(module_folder kueue sigs.k8s.io/kueue)
  manifests kueue "$folder/config" components/crd/bases
  build kueue kueue sigs.k8s.io/kueue/cmd/kueue "6 minutes"
  build kueuectl kueue sigs.k8s.io/kueue/cmd/kueuectl "2 minutes"
  build minimalkueue kueue sigs.k8s.io/kueue/test/performance/scheduler/minimalkueue "a minute"
  build scheduler-plugins scheduler-plugins sigs.k8s.io/scheduler-plugins/cmd/scheduler "5 minutes"

  manifests training-operator \
    "$(module_folder training-operator github.com/kubeflow/training-operator)/manifests" base/crds
  build training-operator training-operator github.com/kubeflow/training-operator/cmd/training-operator.v1 "3 minutes"

  manifests jobset "$(module_folder jobset sigs.k8s.io/jobset)/config" components/crd/bases
  build jobset jobset sigs.k8s.io/jobset "2 minutes"

  manifests trainer "$(module_folder trainer github.com/kubeflow/trainer/v2)/manifests" base/crds
  # JobSet is installed on its own, and not from the network.
  sed -i '/third-party/d' "$out/manifests-trainer/overlays/manager/kustomization.yaml"
  build trainer trainer github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager "2 minutes"

  manifests mpi-operator "$(module_folder mpi-operator github.com/kubeflow/mpi-operator)/manifests" base
  build mpi-operator mpi-operator github.com/kubeflow/mpi-operator/cmd/mpi-operator "2 minutes"

  manifests kuberay "$(module_folder kuberay github.com/ray-project/kuberay/ray-operator)/config" crd/bases
  build kuberay kuberay github.com/ray-project/kuberay/ray-operator "3 minutes"
}

"build_${name//-/_}"
touch "$out/complete"
echo "$what: complete after $((SECONDS - begin)) s"
echo "$out"
