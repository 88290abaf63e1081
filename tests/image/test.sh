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
base=localhost/muster-base:bookworm
mkdir -p "$store"
scratch=$(mktemp -d)
containers=()
images=()
server=
cleanup() {
  [[ -z $server ]] || kill "$server"
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
  debootstrap --variant=minbase bookworm "$scratch/root" &&
    container=$(buildah from scratch) &&
    containers+=("$container") &&
    buildah add --quiet "$container" "$scratch/root" / >/dev/null &&
    buildah commit --quiet "$container" "$base" >/dev/null &&
    rm -rf "$scratch/root"
}

if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  echo "Making the base image with debootstrap"
  if ! make_base; then
    echo "FAILED: no base image"
    failed=1
    finish
  fi
fi

version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

# What holds of every image, by $image, $container and $program.
inside() { buildah run "$container" -- "$@"; }
no_library_is_missing() { inside ldd "$program" && ! inside ldd "$program" | grep 'not found'; }
runs_as_nobody() { [[ $(inside id -u) == 65532 ]]; }
starts_with_the_program() {
  buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' "$image" |
    tee /dev/stderr | grep -qxF "[$program] 65532:65532"
}
has_no_build_tools() { ! inside sh -c 'command -v g++ || command -v clang++-19 || command -v cmake || test -e /src'; }
can_not_write_itself() { ! inside sh -c "echo >>$program"; }
says_its_version() {
  local said
  said=$(inside "$program" "$@") && echo "$said" && grep -qwF "$version" <<<"$said"
}

# build NAME DOCKERFILE HOW_IT_SAYS_ITS_VERSION [BUILD_ARG...]: the cases that hold of every image;
# leaves it in $image, and a container of it in $container.
build() {
  local dockerfile=$2 version_argument=$3 argument arguments=(--build-arg "BASE=$base")
  image=localhost/$1-under-test program=/usr/local/bin/$1
  shift 3
  for argument in "$@"; do
    arguments+=(--build-arg "$argument")
  done
  images+=("$image")
  echo "Building $image"
  if ! buildah bud "${arguments[@]}" --file "$dockerfile" --tag "$image" "$root"; then
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

# What the worker's image takes from the network, as the Dockerfile names it, is kept here and
# served to the build from here: a container need not have this machine's proxies and certificates.
sources=$store/sources
argument() { sed -n "s/^ARG $1=\"\?\([^\"]*\)\"\?$/\1/p" deploy/worker/Dockerfile; }
# kept FILE SHA256 URL
kept() {
  if ! sha256sum --check --status <<<"$2  $1" 2>/dev/null; then
    curl --fail --location --silent --show-error --retry 2 --output "$1.part" "$3" &&
      sha256sum --check --quiet <<<"$2  $1.part" && mv "$1.part" "$1"
  fi
}
# fabric_arguments: leaves the build's arguments for all of them in $fabric, and in $plugin whether
# libfabric and aws-ofi-nccl are among them: without these sources the image is built without them.
fabric_arguments() {
  local said requirement wheel part url sha
  mkdir -p "$sources"
  coproc SERVER { cd "$sources" && exec python3 -u -m http.server --bind 127.0.0.1 0 2>/dev/null; }
  server=$SERVER_PID
  # Serving HTTP on 127.0.0.1 port N (http://127.0.0.1:N/) ...
  read -r said <&"${SERVER[0]}" || return
  local address=${said#*(}
  address=${address%%/)*}
  export no_proxy=127.0.0.1${no_proxy:+,$no_proxy}

  local wheels=()
  while read -r requirement; do
    wheel=$(/usr/bin/python3 -m pip download --no-deps --require-hashes --only-binary :all: \
      --dest "$sources" --requirement <(echo "$requirement") |
      tee /dev/stderr | sed -n 's/^\(  File was already downloaded\|Saved\) .*\/\([^/]*\.whl\)$/\2/p')
    [[ -n $wheel ]] || return
    wheels+=("$address/$wheel ${requirement#* }")
  done < <(argument NVIDIA_WHEELS | tr ';' '\n')
  fabric=("NVIDIA_WHEELS=$(IFS=';' && echo "${wheels[*]}")")

  plugin=yes
  for part in LIBFABRIC AWS_OFI_NCCL; do
    url=$(argument "${part}_SOURCE") sha=$(argument "${part}_SHA256")
    if kept "$sources/$part-$sha" "$sha" "$url"; then
      fabric+=("${part}_SOURCE=$address/$part-$sha")
    else
      echo "Can't be had: $url, nor is it $sources/$part-$sha"
      plugin=no
    fi
  done
  if [[ $plugin == no ]]; then
    echo "The worker's image is built WITHOUT libfabric and aws-ofi-nccl"
    fabric=("${fabric[0]}" LIBFABRIC_SOURCE= AWS_OFI_NCCL_SOURCE=)
  fi
}

# Of the worker's image.
# The driver's library comes from the node.
has_what_its_libraries_need() {
  inside sh -c 'ldd /opt/fabric/lib/*.so*' >"$scratch/needed" && cat "$scratch/needed" &&
    grep -q libnccl.so.2 "$scratch/needed" && ! grep 'not found' "$scratch/needed" | grep -v libcuda.so.1
}
has_a_plugin_with_efa() {
  inside sh -c 'test -e /opt/fabric/lib/libnccl-net-ofi.so && grep -q efa_fabric /opt/fabric/lib/libfabric.so.1'
}
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
is_at_most_2_gib() {
  local folder size
  folder=$(buildah mount "$container")
  size=$(du --summarize --block-size=1M "$folder" | cut -f1)
  echo "$size MiB unpacked"
  ((size <= 2048))
}

# Of the service's image: what needs no cluster is another program.
names_the_program_it_lacks() {
  local status=0
  inside "$program" demo >"$scratch/demo" 2>&1 || status=$?
  cat "$scratch/demo"
  ((status == 2)) && grep -qw muster-lab "$scratch/demo" && ! inside test -e "$program-lab"
}

build muster deploy/Dockerfile --version &&
  check "muster demo says that muster-lab isn't there" names_the_program_it_lacks

if ! fabric_arguments; then
  echo "FAILED: CUDA's runtime and NCCL can't be had"
  failed=$((failed + 1))
elif build muster-worker deploy/worker/Dockerfile version "${fabric[@]}"; then
  check "muster-worker's image has every library that CUDA's, NCCL and libfabric need" has_what_its_libraries_need
  if [[ $plugin == yes ]]; then
    check "muster-worker's image has NCCL's plugin for libfabric, and that EFA" has_a_plugin_with_efa
  fi
  check "muster-worker trains on the CPU and commits its checkpoint" trains
  check "muster-worker's preflight says that there is no GPU" finds_no_gpu
  check "muster-worker's image is at most 2 GiB" is_at_most_2_gib
fi
finish
