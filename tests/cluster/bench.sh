#!/usr/bin/env bash
# Races Muster on a real API server: against Kueue in admission (admission/), and against other
# schedulers in binding (binding/); or has it alone bind what comes and goes (mixed/). The exit status is
# that of the race.
#
#   bench.sh admission             five rounds
#   bench.sh binding               5,000 nodes
#   bench.sh mixed                 ten minutes, 2,000 nodes
#   bench.sh admission -rounds 1   further arguments go to the race; -help lists them
#   bench.sh RACE --build          only builds what that needs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

race=${1:?which race: admission, binding or mixed}
shift
./build.sh
[[ $race == mixed ]] || ./build.sh --peers
[[ $race == admission ]] || ../chart/build.sh
# The flags of build.sh, so that packages compiled there are not compiled again.
go test -trimpath -buildvcs=false "./$race"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
go build -trimpath -buildvcs=false -o "$folder/$race" "./$race"
[[ ${1:-} != --build ]] || exit 0
"$folder/$race" "$@"
