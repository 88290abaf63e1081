#!/usr/bin/env bash
# Builds the container images on a bare Debian and proves that what is in them works. Needs root (a
# root file system is made) and no container engine. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
root=$PWD

# The base image is kept, the rest goes when this script ends.
store=${XDG_CACHE_HOME:-$HOME/.cache}/muster/images
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$store/root" --runroot "$store/run" "$@"; }
base() { echo "localhost/muster-base:$1"; } # of a release of Debian
mkdir -p "$store"
scratch=$(mktemp -d)
containers=()
images=()
volumes=()
cleanup() {
  local container
  for container in "${containers[@]}"; do
    buildah rm "$container" >/dev/null
  done
  local image
  for image in "${images[@]}"; do
    buildah rmi "$image" >/dev/null 2>&1
  done
  rm -rf "$scratch"
}
trap cleanup EXIT

passed=0
failed=0
# check NAME COMMAND...: one case.
check() {
  local name=$1
  shift
  if "$@" >"$scratch/said" 2>&1; then
    echo "passed: $name"
    passed=$((passed + 1))
  else
    echo "FAILED: $name"
    sed 's/^/  /' "$scratch/said"
    failed=$((failed + 1))
  fi
}
finish() {
  echo "$passed passed, $failed failed"
  ((failed == 0 && passed > 0))
  exit
}

make_base() {
  local container
  debootstrap --variant=minbase "$1" "$scratch/root" &&
    container=$(buildah from scratch) &&
    containers+=("$container") &&
    buildah add --quiet "$container" "$scratch/root" / >/dev/null &&
    buildah commit --quiet "$container" "$(base "$1")" >/dev/null &&
    rm -rf "$scratch/root"
}

for release in bookworm trixie; do
  if ! buildah inspect --type image "$(base "$release")" >/dev/null 2>&1; then
    echo "Making the base image of $release with debootstrap"
    if ! make_base "$release"; then
      echo "FAILED: no base image"
      failed=1
      finish
    fi
  fi
done

version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

# What holds of every image, by $image, $container and $program.
inside() { buildah run "$container" -- "$@"; }
# What its loader says, which needs no program beside it.
libraries() { buildah run --env LD_TRACE_LOADED_OBJECTS=1 "$container" -- "$program"; }
no_library_is_missing() { libraries && ! libraries | grep 'not found'; }
runs_as_nobody() {
  buildah inspect --type image --format '{{.OCIv1.Config.User}}' "$image" | grep -xF 65532:65532 || return
  local root
  root=$(buildah mount "$container")
  [[ ! -e $root/bin/sh ]] || [[ $(inside id -u) == 65532 ]]
}
starts_with_the_program() {
  buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' "$image" |
    tee /dev/stderr | grep -qxF "[$program] 65532:65532"
}
has_no_build_tools() {
  local root found
  root=$(buildah mount "$container")
  found=$(find "$root" \( -name 'g++*' -o -name 'clang*' -o -name cmake -o -path "$root/src" \) -print -quit)
  echo "$found"
  [[ -z $found ]]
}
can_not_write_itself() { is_roots_alone "$(buildah mount "$container")$program"; }
# is_roots_alone PATH...: nobody else may write there.
is_roots_alone() {
  local found
  found=$(find "$@" ! -type l \( ! -user 0 -o -perm /022 \))
  echo "$found"
  [[ -z $found ]]
}
says_its_version() {
  local said
  said=$(inside "$program" "$@") && echo "$said" && grep -qwF "$version" <<<"$said"
}

# build NAME DOCKERFILE HOW_IT_SAYS_ITS_VERSION [BUILD_ARG...]: the cases that hold of every image;
# leaves it in $image, and a container of it in $container.
build() {
  local dockerfile=$2 version_argument=$3 argument arguments=()
  image=localhost/$1-under-test program=/usr/local/bin/$1
  shift 3
  for argument in "$@"; do
    arguments+=(--build-arg "$argument")
  done
  images+=("$image")
  echo "Building $image"
  if ! buildah bud "${volumes[@]}" "${arguments[@]}" --file "$dockerfile" --tag "$image" "$root"; then
    echo "FAILED: $dockerfile doesn't build"
    failed=$((failed + 1))
    return 1
  fi
  passed=$((passed + 1))
  container=$(buildah from --pull-never "$image")
  containers+=("$container")
  check "$program $version_argument prints $version" says_its_version "$version_argument"
  check "$program: every shared library is there" no_library_is_missing
  check "$program runs as user 65532" runs_as_nobody
  check "$program is the entry point" starts_with_the_program
  check "$program: neither compiler nor sources are inside" has_no_build_tools
  check "$program can't be changed from inside" can_not_write_itself
}

# What the worker's image takes from addresses is kept here, where its build finds it: a container need
# not have this machine's proxies and certificates.
sources=$store/sources
# kept FILE SHA256 URL
kept() {
  if ! sha256sum --check --status <<<"$2  $1" 2>/dev/null; then
    curl --fail --location --silent --show-error --retry 2 --output "$1.part" "$3" &&
      sha256sum --check --quiet <<<"$2  $1.part" && mv "$1.part" "$1"
  fi
}
keep_sources() {
  local file sha where missing=0
  mkdir -p "$sources"
  while read -r file sha where; do
    kept "$sources/$file" "$sha" "$where" && continue
    echo "$file can't be had from $where; put it (SHA-256 $sha) into $sources"
    missing=1
  done < <(grep ' https://' deploy/worker/sources.txt)
  return $missing
}

# Of the worker's image.
# The driver's library comes from the node.
has_what_its_libraries_need() {
  inside sh -c 'ldd /opt/*/lib/*.so*' >"$scratch/needed" && cat "$scratch/needed" &&
    grep -q /libnccl.so.2: "$scratch/needed" && ! grep 'not found' "$scratch/needed" | grep -v libcuda.so.1
}
# On a node whose driver shows two GPUs to a container without the driver's CUDA.
does_not_train_on_the_cpus_of_a_gpu_pod() {
  local status=0
  on_made_up_node "$scratch/without" "$(buildah mount "$container")" LD_LIBRARY_PATH=/made-up/driver sh -c "
    cd /tmp && yes 'a gang starts when all of it can start' | head -n 100 >text &&
    $program convert --output=tokens text &&
    exec $program train --model=gpt2-tiny --layers=1 --data=tokens --steps=3 --batch=4" \
    >"$scratch/refused" 2>&1 || status=$?
  cat "$scratch/refused"
  ((status == 78)) && grep -q "NVML shows 2 GPUs, but the driver's CUDA isn't in this container" "$scratch/refused"
}
. tests/image/efa/made_up_node.sh
# The libraries of a node for libfabric and aws-ofi-nccl to start on, in the container.
make_nodes() {
  local made_up flags=(-std=c++20 -shared -fPIC -static-libstdc++ -static-libgcc)
  made_up=$(buildah mount "$container")/made-up
  mkdir -p "$made_up"/{cuda,driver,efa} &&
    clang++-19 "${flags[@]}" -o "$made_up/cuda/libcudart.so" tests/image/efa/made_up_cuda.cc &&
    clang++-19 "${flags[@]}" -o "$made_up/cuda/libnvidia-ml.so.1" worker/preflight/made_up_nvml.cc &&
    cp "$made_up/cuda/libnvidia-ml.so.1" "$made_up/driver/" &&
    clang++-19 "${flags[@]}" -Wl,--version-script=tests/image/efa/made_up_verbs.map \
      -o "$made_up/efa/libibverbs.so.1" tests/image/efa/made_up_verbs.cc &&
    ln -s libcudart.so "$made_up/cuda/libcuda.so.1" &&
    ln -s libibverbs.so.1 "$made_up/efa/libefa.so.1" || return
  made_up_node "$scratch/p4d" p4d.24xlarge 4
  made_up_node "$scratch/p5" p5.48xlarge 32
  made_up_node "$scratch/without" p5.48xlarge 0
}
# on_node NODE [VARIABLE=VALUE...] COMMAND...: with the GPU's and EFA's libraries.
on_node() {
  on_made_up_node "$scratch/$1" "$(buildah mount "$container")" \
    LD_LIBRARY_PATH=/made-up/cuda:/made-up/efa "${@:2}"
}
# chooses STATUS WORDS NODE [VARIABLE=VALUE...]: what NCCL's plugin starts with there, and whether that
# is enough.
chooses() {
  local status=0
  on_node "${@:3}" "$program" fabric >"$scratch/chosen" 2>&1 || status=$?
  cat "$scratch/chosen"
  ((status == $1)) && grep -qE "^plugin     libnccl-net.so: $2" "$scratch/chosen"
}
preflight_says_why_there_is_no_efa() {
  local status=0
  on_node without "$program" preflight --efa-devices=32 --gpus=2 >"$scratch/preflight" || status=$?
  cat "$scratch/preflight"
  ((status == 78)) &&
    grep -qE "^failed +NCCL network plugin +libnccl-net.so doesn't start: " "$scratch/preflight"
}
preflight_asks_the_plugin() {
  on_node p5 MADE_UP_EFA_WRITE=1 "$program" preflight --efa-devices=32 --gpus=2 >"$scratch/preflight"
  cat "$scratch/preflight"
  grep -qE "^ok +NCCL network plugin +libfabric 2.1, protocol RDMA on 8 devices of provider efa, with GPU memory" \
    "$scratch/preflight"
}
has_topologies() { inside test -e /opt/fabric/share/aws-ofi-nccl/xml/p4d-24xl-topo.xml; }
trains() {
  inside sh -c "
    cd /tmp && yes 'a gang starts when all of it can start' | head -n 100 >text &&
    $program convert --output=tokens text &&
    $program train --model=gpt2-tiny --layers=1 --data=tokens --steps=3 --batch=4 \
      --processes-per-node=2 --checkpoints=checkpoints --report-every=1 &&
    test -e checkpoints/step-0000000003/manifest.json"
}
# Which is for another node to mend: 128 and more.
finds_no_gpu() {
  local status=0
  inside "$program" preflight --gpus=1 >"$scratch/preflight" || status=$?
  cat "$scratch/preflight"
  ((status >= 128)) && grep -q '^failed .*GPU health' "$scratch/preflight"
}
is_at_most_1638_mib() {
  local folder size
  folder=$(buildah mount "$container")
  size=$(du --summarize --block-size=1M "$folder" | cut -f1)
  echo "$size MiB unpacked"
  ((size <= 1638))
}

# Of the service's image: what needs no cluster is another program.
names_the_program_it_lacks() {
  local status=0 root
  root=$(buildah mount "$container")
  inside "$program" demo >"$scratch/demo" 2>&1 || status=$?
  cat "$scratch/demo"
  ((status == 2)) && grep -qw muster-lab "$scratch/demo" && [[ ! -e $root$program-lab ]]
}
# Beside the loader; what the engine mounts stands there as empty files.
has_no_other_program() {
  local root found
  root=$(buildah mount "$container")
  found=$(cd "$root" && find . -type f -perm /111 -size +0 ! -name 'ld-linux*' ! -path ".$program")
  echo "$found"
  [[ -z $found ]]
}
is_at_most_60_mib() {
  local size
  size=$(du --summarize --apparent-size --block-size=1K "$(buildah mount "$container")" | cut -f1)
  echo "$((size / 1024)) MiB unpacked"
  ((size <= 60 * 1024))
}
has_no_symbols() { ! readelf --sections "$(buildah mount "$container")$program" | grep -w .symtab; }
can_not_be_written() {
  local root
  root=$(buildah mount "$container")
  is_roots_alone "$root/etc" "$root/usr" "$root"/lib*
}
has_labels() {
  local said
  said=$(buildah inspect --type image --format '{{.OCIv1.Config.Labels}}' "$image")
  echo "$said"
  for label in title description licenses; do
    grep -qF "org.opencontainers.image.$label:" <<<"$said" || return
  done
  grep -qwF "org.opencontainers.image.version:$version" <<<"$said"
}
# Every library that is there is of a package that the bill names, with its version, and its licence.
has_a_bill_of_materials() {
  python3 - "$(buildah mount "$container")" "$version" <<'PYTHON'
import glob, json, os, sys
root, version = sys.argv[1:]
bill = json.load(open(root + "/usr/share/doc/muster/sbom.spdx.json"))
assert bill["spdxVersion"] == "SPDX-2.3" and bill["documentNamespace"].startswith("https://")
parts = {part["name"]: part for part in bill["packages"]}
assert parts["muster"]["versionInfo"] == version, parts["muster"]
assert all(part["versionInfo"] for part in parts.values())
ids = {part["SPDXID"] for part in parts.values()} | {"SPDXRef-DOCUMENT"}
assert all(link[end] in ids for link in bill["relationships"] for end in ("spdxElementId", "relatedSpdxElement"))
documents = {os.path.basename(os.path.dirname(path)) for path in glob.glob(root + "/usr/share/doc/*/copyright")}
assert documents == set(parts) - {"muster"}, documents ^ set(parts)
libraries = glob.glob(root + "/usr/lib/*/*.so*")
print(len(parts), "packages,", len(libraries), "libraries")
assert len(libraries) >= 20 and {"libc6", "libgrpc29", "ca-certificates"} <= set(parts)
PYTHON
}
# It finds its libraries, and no cluster.
says_what_it_lacks() {
  local status=0
  inside "$program" serve --kubeconfig=/nowhere >"$scratch/serve" 2>&1 || status=$?
  cat "$scratch/serve"
  ((status == 2)) && grep -q /nowhere "$scratch/serve"
}

if build muster deploy/Dockerfile --version "BASE=$(base bookworm)"; then
  check "muster demo says that muster-lab isn't there" names_the_program_it_lacks
  check "muster's image has no other program" has_no_other_program
  check "muster's image is at most 60 MiB" is_at_most_60_mib
  check "muster's program is stripped" has_no_symbols
  check "muster's image has its labels" has_labels
  check "muster's image has a bill of what is in it" has_a_bill_of_materials
  check "muster serve says that it finds no cluster" says_what_it_lacks
  check "muster's image can be written by nobody" can_not_be_written
fi

# Its build finds there what this machine has of NVIDIA's wheels.
toolkit=$(worker/gpu/toolkit.sh)
toolkit=${toolkit%/nvidia/cu13}
volumes=(--volume "$toolkit:/root/.cache/muster/${toolkit##*/}:ro" --volume "$sources:/fabric/sources:ro")

check "the sources of what EFA nodes need are there" keep_sources
arguments=("BUILD_BASE=$(base bookworm)" "BASE=$(base trixie)")
efa=$(! keep_sources >/dev/null 2>&1 || echo yes)
[[ -n $efa ]] || echo "The worker's image is built WITHOUT libfabric and aws-ofi-nccl"
if [[ -z $toolkit ]]; then
  echo "FAILED: CUDA's compiler and libraries can't be had"
  failed=$((failed + 1))
elif build muster-worker deploy/worker/Dockerfile version "${arguments[@]}" "EFA=$efa"; then
  check "nodes are made up for it" make_nodes
  check "muster-worker's image has every library that CUDA's, NCCL and libfabric need" has_what_its_libraries_need
  if [[ -n $efa ]]; then
    check "on a p4d NCCL's plugin takes send and receive over EFA, with GPU memory" \
      chooses 0 'protocol SENDRECV on 4 devices of provider efa, with GPU memory' p4d
    check "on a p5 it takes RDMA over EFA, with GPU memory" \
      chooses 0 'protocol RDMA on 8 devices of provider efa, with GPU memory' p5 MADE_UP_EFA_WRITE=1
    check "on a p5 whose devices don't write it doesn't start" \
      chooses 78 "doesn't start: .*FI_OPT_EFA_EMULATED_WRITE" p5
    check "where there is no EFA device it doesn't start" \
      chooses 78 "doesn't start: .*Failed to initialize rdma protocol" without
    check "preflight asks it" preflight_asks_the_plugin
    check "preflight says why it doesn't start" preflight_says_why_there_is_no_efa
    check "NCCL's plugin has its topologies" has_topologies
  fi
  check "muster-worker trains on the CPU and commits its checkpoint" trains
  check "muster-worker's preflight says that there is no GPU" finds_no_gpu
  check "muster-worker stops where the pod has GPUs and it has none, with 78" does_not_train_on_the_cpus_of_a_gpu_pod
  check "muster-worker's image is at most 1.6 GiB" is_at_most_1638_mib
fi
finish
