#!/usr/bin/env bash
# Races Muster on a real API server: against Kueue in admission (admission/), and against other
# schedulers in binding (binding/); or has it alone bind what comes and goes (mixed/). The exit status is
# that of the race.
#
#   bench.sh admission             five rounds
#   bench.sh binding               5,000 nodes, and contention
#   bench.sh mixed                 ten minutes, 2,000 nodes
#   bench.sh admission -rounds 1   further arguments go to the race; -help lists them
#   bench.sh RACE --build          only builds what that needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# build_scheduler_plugins: builds the version that races, and names the folder.
build_scheduler_plugins() {
  local module=scheduler-plugins-0.34 out
  out=${XDG_CACHE_HOME:-$HOME/.cache}/muster/peers/$module-$(cat $module/go.* | sha256sum | cut -c1-16)
  if [[ ! -x $out/scheduler-plugins ]]; then
    echo "bench.sh: building $module (5 minutes on two cores the first time)" >&2
    mkdir -p "$out"
    (cd $module && nice -n 5 go build -trimpath -buildvcs=false -ldflags "-s -w" \
      -o "$out/part" sigs.k8s.io/scheduler-plugins/cmd/scheduler) || return
    mv "$out/part" "$out/scheduler-plugins"
  fi
  echo "$out"
}

race=${1:?which race: admission, binding or mixed}
shift
./build.sh
arguments=()
case $race in
  admission) ./build.sh --peers ;;
  binding)
    ../chart/build.sh
    arguments+=(-peers "$(build_scheduler_plugins)")
    arguments+=(-native "$(./versions.sh --where 1.37 1.8)")
    arguments+=(-plot ../../build/binding.svg)
    ;;
  mixed) ../chart/build.sh ;;
esac
# The flags of build.sh, so that packages compiled there are not compiled again.
go test -trimpath -buildvcs=false "./$race"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
go build -trimpath -buildvcs=false -o "$folder/$race" "./$race"
[[ ${1:-} != --build ]] || exit 0
"$folder/$race" "${arguments[@]}" "$@"
