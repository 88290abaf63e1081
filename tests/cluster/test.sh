#!/usr/bin/env bash
# Runs the cases on a real control plane. The last line is "N passed, N failed".
#
#   test.sh                     a round or two of each case
#   MUSTER_FULL=1 test.sh       every count that the acceptance list names
#   test.sh -run TestCrash      further arguments go to go test
#   test.sh -run TestPeer       those with other controllers; else only in the full run
#   MUSTER_SOAK=apiserver test.sh -run TestSoakApiServer
#                               a soak, 45 minutes at most; only where it is asked for
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

limit=30m
# Other controllers take minutes to build, half an hour to run, and the cluster to themselves.
peers=
if [[ "${MUSTER_FULL:-}" == 1 || "$*" == *TestPeer* ]]; then
  ./build.sh --peers || exit 1
  peers=yes limit=120m
fi
soaks=
if [[ "$*" == *TestSoak* ]]; then
  # The case ends itself before.
  soaks=yes limit=50m
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The flags of build.sh, so that packages compiled there are not compiled again.
flags=(-trimpath -buildvcs=false)
go vet "${flags[@]}" ./... && go test "${flags[@]}" -c -o "$folder/cases" . || exit 1

# cases OUTPUT ARGUMENT...: runs cases on a control plane of their own.
cases() {
  local output=$folder/$1.log
  shift
  "$folder/cases" -test.count=1 -test.v -test.timeout "$limit" "$@" 2>&1 | tee "$output"
  return "${PIPESTATUS[0]}"
}

status=0
if (($# > 0)); then
  left_out=()
  [[ -n $peers ]] || left_out+=(TestPeer)
  [[ -n $soaks ]] || left_out+=(TestSoak)
  ((${#left_out[@]} == 0)) || set -- -skip "^($(IFS='|' && echo "${left_out[*]}"))" "$@"
  cases asked -test.parallel 8 "${@/#-/-test.}" || status=1
else
  # Most cases wait for Karpenter, and many need a control plane to themselves: two of them halve
  # the time.
  mapfile -t names < <("$folder/cases" -test.list . | grep '^Test' | grep -Ev '^Test(Peer|Soak)')
  half() { for ((i = $1; i < ${#names[@]}; i += 2)); do echo "${names[i]}"; done | paste -sd '|'; }
  cases first -test.parallel 4 -test.run "^($(half 0))\$" &
  cases second -test.parallel 4 -test.run "^($(half 1))\$" || status=1
  wait $! || status=1
  if [[ -n $peers ]]; then
    cases peers -test.run '^TestPeer' || status=1
  fi
fi

passed=$(cat "$folder"/*.log | grep -c '^ *--- PASS: ')
failed=$(cat "$folder"/*.log | grep -c '^ *--- FAIL: ')
# A driver that ended without a verdict (a panic, a compile error) failed too.
if [[ $status -ne 0 && $failed -eq 0 ]]; then
  failed=1
fi
echo "$passed passed, $failed failed"
[[ $status -eq 0 && $failed -eq 0 ]]
