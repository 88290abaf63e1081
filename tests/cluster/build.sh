#!/usr/bin/env bash
# Builds the stock programs of the test cluster from their Go modules and
# copies the CRDs that belong to them beside the binaries.
#
#   build.sh           build what is missing; the last line is the folder
#   build.sh --where   print only the folder
#
# The folder lies outside the tree and is named by a hash of everything the
# binaries are made of, so that fresh clones and branches share one build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

kubernetes=1.34.2

cache="${XDG_CACHE_HOME:-$HOME/.cache}/muster/control-plane"
modules=(controlplane karpenter kwok)
hash=$(find "${modules[@]}" -type f \( -name go.mod -o -name go.sum -o -name '*.go' \) -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum build.sh | sha256sum | cut -c1-16)
out="$cache/$hash"

if [[ "${1:-}" == --where ]]; then
  echo "$out"
  exit
fi
if [[ -e "$out/complete" ]]; then
  echo "control plane: built already"
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
  echo "control plane: another build is running, waiting for it"
  flock 9
}
if [[ -e "$out/complete" ]]; then
  echo "$out"
  exit
fi

# A build that was cut off leaves no "complete" file and is taken up again:
# finished programs stay, and Go's own cache keeps the packages of the rest.
mkdir -p "$out/crds"
begin=$SECONDS

build() { # name, module folder, package, what a first build takes, ldflags...
  local name=$1 folder=$2 package=$3 usual=$4 start=$SECONDS
  shift 4
  if [[ -x "$out/$name" ]]; then
    return
  fi
  echo "control plane: building $name ($usual on two cores the first time)"
  (cd "$folder" && nice -n 5 go build -trimpath -buildvcs=false \
    -ldflags "-s -w $*" -o "$out/$name.part" "$package") 9>&-
  mv "$out/$name.part" "$out/$name"
  echo "control plane: $name took $((SECONDS - start)) s"
}

# Clients parse the server's version; without the flags it is v0.0.0-master.
version="-X k8s.io/component-base/version.gitVersion=v$kubernetes"
version+=" -X k8s.io/component-base/version.gitMajor=${kubernetes%%.*}"
minor=${kubernetes#*.}
version+=" -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
version+=" -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"

build control-plane controlplane . "5 to 11 minutes" "$version"
build karpenter karpenter sigs.k8s.io/karpenter/kwok "3 minutes"
build kwok kwok sigs.k8s.io/kwok/cmd/kwok "3 minutes"

for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  ln -sf control-plane "$out/$name"
done

module=$(cd karpenter && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
install -m 644 "$module"/pkg/apis/crds/*.yaml "$module"/kwok/apis/crds/*.yaml "$out/crds/"

touch "$out/complete"
echo "control plane: complete after $((SECONDS - begin)) s"
echo "$out"
