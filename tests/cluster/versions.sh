#!/usr/bin/env bash
# One case of each kind of job on each pair of versions of Kubernetes and Karpenter, beside Kueue, the
# training-operator, JobSet and Trainer of build.sh --peers; where Kubernetes has gang scheduling of its
# own, with that off, as it comes, and on. Prints a table, which docs/versions.md shows; the last line is
# "N passed, N failed".
#
#   versions.sh                               build what is missing, and run them
#   versions.sh --build                       only build
#   versions.sh --where KUBERNETES KARPENTER  the folder of a pair: 1.34 or 1.37, 1.8 or 1.15
#
# build.sh has 1.34 and 1.8; other versions are modules of their own beside those, of the same sources
# as far as that goes (links).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Kubernetes, its own gang scheduling, and Karpenter.
planes=('1.34 - 1.8' '1.34 - 1.15' '1.37 off 1.8' '1.37 off 1.15' '1.37 on 1.8' '1.37 on 1.15')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster/control-plane

# What is shown of each case, and the case.
cases=(
  'Job|TestJobIsOneGangAndBindsInOneStroke'
  'PodGroup|TestGangBindsInOneStrokeWhenItsLastNodeIsThere'
  'PyTorchJob|TestPeerPyTorchJobIsOneGangAndBindsInOneStroke'
  'JobSet|TestPeerJobSetIsOneGangAndBindsInOneStroke'
  'TrainJob|TestPeerTrainJobIsOneGangAndBindsInOneStroke'
  'Job, Kueue admits|TestPeerKueueAdmitsASuspendedJobAndMusterGangsIt'
  'Job of a native PodGroup|TestSoakJobThatNamesANativePodGroup'
)

# built_of FOLDER PROGRAM GO LDFLAGS: builds it from that module unless it is there, and names the file.
built_of() {
  local folder=$1 program=$2 hash out
  hash=$(cat "$folder"/* faults/*.go | sha256sum | cut -c1-16)
  out=$cache/$folder-$hash
  if [[ ! -x $out ]]; then
    echo "versions.sh: building $program of $folder (4 to 12 minutes on two cores the first time)" >&2
    (cd "$folder" && GOTOOLCHAIN=$3 nice -n 15 go build -trimpath -buildvcs=false -ldflags "-s -w $4" \
      -o "$out.part" .) || return
    mv "$out.part" "$out"
  fi
  echo "$out"
}

# version_of FOLDER MODULE: what it requires, without the v.
version_of() { sed -n "s|^\s*$2 v\([0-9.]*\)$|\1|p" "$1/go.mod" | head -n 1; }

# folder_of KUBERNETES KARPENTER: with the programs of that pair.
folder_of() {
  local usual control_plane karpenter version module name flags
  usual=$(./build.sh --where)
  control_plane=$usual/control-plane karpenter=$usual/karpenter
  local out=$cache/pair-$1-$2
  mkdir -p "$out"
  if [[ $1 != 1.34 ]]; then
    version=$(version_of "controlplane-$1" k8s.io/kubernetes)
    flags="-X k8s.io/component-base/version.gitVersion=v$version"
    flags+=" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${1#1.}"
    flags+=" -X k8s.io/client-go/pkg/version.gitVersion=v$version"
    control_plane=$(built_of "controlplane-$1" control-plane local "$flags")
  fi
  rm -rf "$out/crds"
  if [[ $2 == 1.8 ]]; then
    cp -r "$usual/crds" "$out/crds"
  else
    # It asks for a newer Go than the others; the Go module proxy has it.
    karpenter=$(built_of "karpenter-$2" karpenter go1.26.9 "")
    module=$(cd "karpenter-$2" && GOTOOLCHAIN=go1.26.9 go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
    mkdir "$out/crds"
    install -m 644 "$module"/pkg/apis/crds/*.yaml "$module"/kwok/apis/crds/*.yaml "$out/crds/"
  fi
  ln -sf "$control_plane" "$out/control-plane"
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    ln -sf control-plane "$out/$name"
  done
  ln -sf "$karpenter" "$out/karpenter"
  ln -sf "$usual/kwok" "$out/kwok"
  touch "$out/complete"
  echo "$out"
}

if [[ ${1:-} == --where ]]; then
  folder_of "$2" "$3"
  exit
fi
names=$(printf '%s\n' "${cases[@]#*|}" | paste -sd '|')
./test.sh -run "^($names)\$" --build
for plane in "${planes[@]}"; do
  read -r kubernetes _ karpenter <<<"$plane"
  folder_of "$kubernetes" "$karpenter" >/dev/null
done
[[ ${1:-} != --build ]] || exit 0

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 table="| Kubernetes | Its gang scheduling | Karpenter |" line='|---|---|---|'
for one in "${cases[@]}"; do
  table+=" ${one%%|*} |" line+='---|'
done
table+=$'\n'$line
for plane in "${planes[@]}"; do
  read -r kubernetes native karpenter <<<"$plane"
  log=$logs/$kubernetes-$native-$karpenter.log folder=$(folder_of "$kubernetes" "$karpenter")
  echo "== Kubernetes $kubernetes, its gang scheduling $native, Karpenter $karpenter"
  status=0 before=$failed
  MUSTER_PROGRAMS=$folder MUSTER_NATIVE_GANGS=$native ./test.sh -run "^($names)\$" 2>&1 | tee "$log" || status=1
  table+=$'\n'"| $("$folder/kube-apiserver" --version | sed 's/.* v//') | $native | $karpenter |"
  for one in "${cases[@]}"; do
    if grep -q "^--- PASS: ${one#*|} " "$log"; then
      passed=$((passed + 1)) table+=" yes |"
    else
      failed=$((failed + 1)) table+=" NO |"
      echo "FAILED: ${one#*|} on Kubernetes $kubernetes ($native) with Karpenter $karpenter"
    fi
  done
  if ((status != 0 && failed == before)); then
    failed=$((failed + 1))
    echo "FAILED: beside the cases, on Kubernetes $kubernetes ($native) with Karpenter $karpenter"
  fi
done
echo "$table"
echo "$passed passed, $failed failed"
((failed == 0))
