#!/usr/bin/env bash
# Runs the cases on a real control plane. The last line is "N passed, N failed".
#
#   test.sh                     a round or two of each case
#   MUSTER_FULL=1 test.sh       every count that the acceptance list names
#   test.sh -run TestCrash      further arguments go to go test
#   test.sh -run TestPeer       those with other controllers; else only in the full run
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

# The worker's cases come late in the run; that it is missing is told now.
export MUSTER_WORKER_BINARY=${MUSTER_WORKER_BINARY:-$PWD/../../build/muster-worker}
if [[ ! -x $MUSTER_WORKER_BINARY ]]; then
  echo "test.sh: there is no $MUSTER_WORKER_BINARY; ./run build makes it" >&2
  exit 1
fi

./build.sh || exit 1
# Kueue's own packages say who is to be displaced.
../kueue/build.sh || exit 1

# Other controllers take minutes to build and the cluster to themselves.
if [[ "${MUSTER_FULL:-}" == 1 || "$*" == *TestPeer* ]]; then
  ./build.sh --peers || exit 1
else
  set -- -skip '^TestPeer' "$@"
fi

limit=30m
if [[ "${MUSTER_FULL:-}" == 1 ]]; then
  limit=120m
fi
output=$(mktemp)
trap 'rm -f "$output"' EXIT
# The flags of build.sh, so that packages compiled there are not compiled again.
go test -trimpath -buildvcs=false -count=1 -v -timeout "$limit" -parallel 8 "$@" . 2>&1 | tee "$output"
status=${PIPESTATUS[0]}

passed=$(grep -c '^ *--- PASS: ' "$output")
failed=$(grep -c '^ *--- FAIL: ' "$output")
# A driver that ended without a verdict (a panic, a compile error) failed too.
if [[ $status -ne 0 && $failed -eq 0 ]]; then
  failed=1
fi
echo "$passed passed, $failed failed"
[[ $status -eq 0 && $failed -eq 0 ]]
