#!/usr/bin/env bash
# Runs the cases on a real control plane. The last line is "N passed, N failed".
#
#   test.sh [--again]           a round or two of each case that needs no other programs
#   test.sh [--again] --peers   the others: those with other controllers, and those that Kueue judges
#   test.sh --soak ARGUMENT...  every round; arguments go to go test
#   test.sh -run TestCrash      likewise, a round or two; those that need other programs only by name
#   test.sh ARGUMENT... --build only builds what that needs
#
# Cases wait for most of their time, so they are dealt to several control planes (MUSTER_PLANES, 3)
# that run side by side; those with peers have one to themselves. Without arguments for go test a case
# that passed before with the same programs, cases and manifests is counted without being run; --again
# runs it all the same. MUSTER_KEPT is where that is remembered, with the seconds that each case took.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
root=$PWD/../..

# The cases that need programs of build.sh --peers, or ../kueue.
others='^(TestPeer|TestTraining|TestHighPriorityGangDisplaces)'
# What only ./run soak asks for.
soaks='^TestSoak'

again='' peers='' which=-v build='' arguments=()
while (($# > 0)); do
  case $1 in
    --again) again=yes ;;
    --peers) peers=yes which=-e ;;
    --build) build=yes ;;
    --soak) export MUSTER_FULL=1 ;;
    *) arguments+=("${1/#-/-test.}") ;;
  esac
  shift
done

# The worker's cases come late in the run; that it is missing is told now.
muster=${MUSTER_BINARY:-$root/build/muster}
export MUSTER_WORKER_BINARY=${MUSTER_WORKER_BINARY:-$root/build/muster-worker}
for program in "$muster" "$MUSTER_WORKER_BINARY"; do
  if [[ ! -x $program ]]; then
    echo "test.sh: there is no $program; ./run build makes it" >&2
    exit 1
  fi
done

./build.sh || exit 1
../chart/build.sh || exit 1
if [[ -n $peers || "${arguments[*]}" =~ TestPeer|TestTraining|TestHighPriority ]]; then
  ./build.sh --peers || exit 1
  ../kueue/build.sh || exit 1
elif ((${#arguments[@]} > 0)); then
  [[ "${arguments[*]}" != *TestSoakUpgrade* ]] || ./version-before.sh || exit 1
  arguments+=(-test.skip "$others")
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The flags of build.sh, so that packages compiled there are not compiled again.
flags=(-trimpath -buildvcs=false)
go vet "${flags[@]}" ./... && go test "${flags[@]}" -c -o "$folder/cases" . || exit 1
[[ -z $build ]] || exit 0

status=0
# cases OUTPUT ARGUMENT...: runs cases on a control plane of their own.
cases() {
  local output=$folder/$1.log
  shift
  "$folder/cases" -test.count=1 -test.v -test.timeout 60m "$@" 2>&1 | tee "$output"
  return "${PIPESTATUS[0]}"
}

# finish PASSED: counts what is in the logs, beside what passed before.
finish() {
  local passed failed
  passed=$(($1 + $(cat "$folder"/*.log 2>/dev/null | grep -c '^ *--- PASS: ')))
  failed=$(cat "$folder"/*.log 2>/dev/null | grep -c '^ *--- FAIL: ')
  cat "$folder"/*.log 2>/dev/null | sed -n 's/^ *--- FAIL: /FAILED: /p'
  # A driver that ended without a verdict (a panic, a compile error) failed too, as did who skipped.
  while read -r name; do
    echo "FAILED: $name was skipped"
    failed=$((failed + 1))
  done < <(cat "$folder"/*.log 2>/dev/null | sed -n 's/^ *--- SKIP: \([^ ]*\).*/\1/p')
  if [[ $status -ne 0 && $failed -eq 0 ]]; then
    failed=1
  fi
  echo "$passed passed, $failed failed"
  ((status == 0 && failed == 0))
  exit
}

if ((${#arguments[@]} > 0)); then
  cases asked -test.parallel 8 "${arguments[@]}" || status=1
  finish 0
fi

# A quarter of a minute, so always.
[[ -n $peers ]] || conformance/test.sh 2>&1 | tee "$folder/conformance.log" || status=1

# What the cases see beside the machine: the programs without line tables, themselves, the manifests.
# The worker counts only where it trains.
without_lines() { strip --strip-debug -o "$folder/stripped" "$1" && sha256sum <"$folder/stripped"; }
digest=$({
  without_lines "$muster"
  sha256sum <"$folder/cases"
  ./build.sh --where
  ../chart/build.sh --where
  [[ -z $peers ]] || { ./build.sh --peers --where && ../kueue/build.sh --where; }
  find jobs kubelet ../../deploy -type f ! -name '*.go' ! -name '*.md' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  cat ../../docs/*.md | sha256sum
  env | grep '^MUSTER_' | grep -v '^MUSTER_\(KEPT\|PLANES\|WORKER_BINARY\)=' | LC_ALL=C sort
} | sha256sum | cut -c 1-24)
worker=$({ echo "$digest" && without_lines "$MUSTER_WORKER_BINARY"; } | sha256sum | cut -c 1-24)
kept=${MUSTER_KEPT:-$root/build/passed-cases}
mkdir -p "$kept"
find "$kept" -type f -mtime +30 -delete
digest_of() { if [[ $1 == *Training* ]]; then echo "$worker"; else echo "$digest"; fi; }

before=0 known=0 left=()
while read -r name; do
  file=$kept/$name.$(digest_of "$name")
  if [[ -s $file && -z $again ]]; then
    read -r count _ <"$file"
    before=$((before + count)) known=$((known + 1))
  else
    rm -f "$file"
    left+=("$name")
  fi
done < <("$folder/cases" -test.list . | grep '^Test' | grep -Ev "$soaks" | grep -E "$which" "$others")
((known == 0)) || echo "unchanged since they passed: $known of $((known + ${#left[@]})) tests, $before cases"
((${#left[@]} > 0)) || finish "$before"

# seconds_of NAME: what it took when it passed last, with any programs.
seconds_of() {
  local newest
  newest=$(find "$kept" -name "$1.*" -printf '%T@ %p\n' | sort -rn | sed -n '1s/^[^ ]* //p')
  if [[ -n $newest ]]; then cut -d ' ' -f 2 "$newest"; else echo 20; fi
}

# The longest first, each to the plane that has the least.
planes=${MUSTER_PLANES:-3}
[[ -z $peers ]] || planes=1
declare -a share=() busy=()
while read -r seconds name; do
  least=0
  for ((plane = 1; plane < planes; ++plane)); do
    ((${busy[plane]:-0} >= ${busy[least]:-0})) || least=$plane
  done
  share[least]+=${share[least]:+|}$name
  busy[least]=$((${busy[least]:-0} + seconds))
done < <(for name in "${left[@]}"; do echo "$(seconds_of "$name") $name"; done | sort -rn)
running=()
for plane in "${!share[@]}"; do
  cases "plane-$plane" -test.parallel 4 -test.run "^(${share[plane]})\$" &
  running+=($!)
done
for job in "${running[@]}"; do wait "$job" || status=1; done

# A case passed if nothing in it failed or was skipped.
while read -r name seconds count; do
  echo "$count $seconds" >"$kept/$name.$(digest_of "$name")"
done < <(cat "$folder"/*.log | awk '
  / *--- (PASS|FAIL|SKIP): / {
    for (i = 1; $i != "---"; ++i);
    verdict = $(i + 1); name = $(i + 2); top = name; sub(/\/.*/, "", top)
    if (verdict == "PASS:") ++count[top]; else bad[top] = 1
    if (verdict == "PASS:" && name == top) { gsub(/[(s)]/, "", $(i + 3)); seconds[top] = int($(i + 3)) + 1 }
  }
  END { for (top in seconds) if (!bad[top]) print top, seconds[top], count[top] }')
finish "$before"
