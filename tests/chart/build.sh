#!/usr/bin/env bash
# Builds helm, of which the manifests of deploy/ are made and with which the chart is checked.
#
#   build.sh           build it if it is missing; the last line is the program
#   build.sh --where   print only the program
#
# It lies outside the tree and is named by a hash of what it is made of, so that fresh clones and
# branches share one build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/muster/helm"
out="$cache/$(sha256sum helm/go.mod helm/go.sum build.sh | sha256sum | cut -c1-16)/helm"

if [[ "${1:-}" == --where ]]; then
  echo "$out"
  exit
fi
if [[ -x "$out" ]]; then
  echo "helm: built already"
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
  echo "helm: another build is running, waiting for it"
  flock 9
}
if [[ ! -x "$out" ]]; then
  mkdir -p "$(dirname "$out")"
  begin=$SECONDS
  echo "helm: building (3 minutes on two cores the first time)"
  cd helm
  version=$(go list -m -f '{{.Version}}' helm.sh/helm/v4)
  nice -n 5 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$version" -o "$out.part" helm.sh/helm/v4/cmd/helm 9>&-
  mv "$out.part" "$out"
  echo "helm: complete after $((SECONDS - begin)) s"
fi
echo "$out"
