#!/usr/bin/env bash
# Races Muster against Kueue on a real API server (admission/). The exit status is that of
# the race.
#
#   bench.sh             five rounds
#   bench.sh -rounds 1   arguments go to the race; -help lists them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

./build.sh
./build.sh --peers
# The flags of build.sh, so that packages compiled there are not compiled again.
go test -trimpath -buildvcs=false ./admission
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
go build -trimpath -buildvcs=false -o "$folder/admission" ./admission
"$folder/admission" "$@"
