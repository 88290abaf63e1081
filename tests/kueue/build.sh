#!/usr/bin/env bash
# Builds the oracle: the program that asks Kueue's own packages.
#
#   build.sh           build it if it is missing; the last line is the folder
#   build.sh --where   print only the folder
#   build.sh --run COMMAND...   build it, and run COMMAND (a path from the working
#                      directory) with MUSTER_KUEUE_ORACLE naming it
#
# The folder lies outside the tree and is named by a hash of what the binary
# is made of, so that fresh clones and branches share one build.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/muster/kueue"
hash=$(find . -type f \( -name go.mod -o -name go.sum -o -name '*.go' ! -name '*_test.go' \) -print0 |
  LC_ALL=C sort -z | xargs -0 sha256sum build.sh | sha256sum | cut -c1-16)
out="$cache/$hash"

if [[ "${1:-}" == --where ]]; then
  echo "$out"
  exit
fi
finish() {
  if [[ "${1:-}" == --run ]]; then
    cd "$caller"
    MUSTER_KUEUE_ORACLE="$out/oracle" exec "${@:2}"
  fi
  echo "$out"
  exit
}
if [[ -x "$out/oracle" ]]; then
  echo "kueue oracle: built already"
  finish "$@"
fi
command -v go >/dev/null || {
  echo "build.sh: no go on PATH; ./run installs one" >&2
  exit 1
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || {
  echo "kueue oracle: another build is running, waiting for it"
  flock 9
}
if [[ ! -x "$out/oracle" ]]; then
  mkdir -p "$out"
  begin=$SECONDS
  echo "kueue oracle: building (3 minutes on two cores the first time)"
  nice -n 5 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$out/oracle.part" . 9>&-
  mv "$out/oracle.part" "$out/oracle"
  echo "kueue oracle: complete after $((SECONDS - begin)) s"
fi
finish "$@"
