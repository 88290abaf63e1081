#!/usr/bin/env bash
# Builds the container image on a bare Debian and proves that what is in it starts. Needs root (a
# root file system is made) and no container engine. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
root=$PWD

# The base image is kept, the rest goes when this script ends.
store=${XDG_CACHE_HOME:-$HOME/.cache}/muster/images
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$store/root" --runroot "$store/run" "$@"; }
base=localhost/muster-base:bookworm
image=localhost/muster-under-test
mkdir -p "$store"
scratch=$(mktemp -d)
containers=()
cleanup() {
  local container
  for container in "${containers[@]}"; do
    buildah rm "$container" >/dev/null
  done
  buildah rmi "$image" >/dev/null 2>&1
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

echo "Building the image"
if ! buildah bud --build-arg "BASE=$base" --file deploy/Dockerfile --tag "$image" "$root"; then
  echo "FAILED: deploy/Dockerfile doesn't build"
  failed=1
  finish
fi
passed=1

container=$(buildah from --pull-never "$image")
containers+=("$container")
inside() { buildah run "$container" -- "$@"; }

version=$(sed -n 's/^project(muster VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
prints_version() {
  local said
  said=$(inside /usr/local/bin/muster --version) && echo "$said" && grep -qwF "$version" <<<"$said"
}
no_library_is_missing() { inside ldd /usr/local/bin/muster && ! inside ldd /usr/local/bin/muster | grep 'not found'; }
runs_as_nobody() { [[ $(inside id -u) == 65532 ]]; }
starts_with_muster() {
  buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' "$image" |
    tee /dev/stderr | grep -qxF '[/usr/local/bin/muster] 65532:65532'
}
has_no_build_tools() { ! inside sh -c 'command -v g++ || command -v cmake || test -e /src'; }
can_not_write_itself() { ! inside sh -c 'echo >>/usr/local/bin/muster'; }

check "muster --version prints $version" prints_version
check "every shared library is there" no_library_is_missing
check "runs as user 65532" runs_as_nobody
check "the entry point is muster" starts_with_muster
check "neither compiler nor sources are inside" has_no_build_tools
check "the binary can't be changed from inside" can_not_write_itself
finish
