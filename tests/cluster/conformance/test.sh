#!/usr/bin/env bash
# Sends the requests of ../../conformance to a real API server and to the embedded one, and compares
# the answers. Arguments go to go test. The last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
../build.sh || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The flags of build.sh, so that packages compiled there are not compiled again.
flags=(-trimpath -buildvcs=false)
status=0
go vet "${flags[@]}" . && go test "${flags[@]}" -count=1 -v -timeout 10m "$@" . 2>&1 | tee "$log" || status=1

passed=$(grep -c '^ *--- PASS: ' "$log")
failed=$(grep -c '^ *--- FAIL: ' "$log")
# A driver that ended without a verdict failed too.
((status == 0 || failed > 0)) || failed=1
echo "$passed passed, $failed failed"
((failed == 0))
