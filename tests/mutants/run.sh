#!/usr/bin/env bash
# Puts each defect of this folder back into a copy of the tree and shows that its test finds it.
#
#   tests/mutants/run.sh [NAME...]      by default all
#
# A test must pass on the tree as it is, and fail with the patch. Ends with 'N passed, M failed';
# the exit status is 0 if none failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tree=$root/build/mutants/tree
logs=$root/build/mutants/logs
rounds=1000

# What is committed and what is changed, and the build folder of the mutants before.
copy_tree() {
  mkdir -p "$tree" "$logs"
  (cd "$root" && git ls-files --cached --others --exclude-standard -z) |
    (cd "$root" && tar --create --null --files-from=- --ignore-failed-read 2>/dev/null) |
    tar --extract --directory="$tree"
}

# field NAME FILE: of the lines before the patch.
field() { sed -n "/^diff /q; s/^$1: *//p" "$2"; }

# target TEST: what is built for it.
target() {
  case $1 in
  rounds) echo faults_test ;;
  scenario) echo scenario_test ;;
  *) echo "$1" ;;
  esac
}

# holds TEST WHAT: runs it in the copy. One that doesn't end has failed.
holds() {
  case $1 in
  rounds)
    (cd "$tree" && MUSTER_FAULTS_ROUNDS=$rounds timeout 1200 build/faults_test \
      --gtest_filter='Faults.ComeToRest*')
    ;;
  scenario) (cd "$tree" && timeout 300 build/scenario_test --gtest_filter="*.Holds/$2") ;;
  *) (cd "$tree" && timeout 300 "build/$1" --gtest_filter="$2") ;;
  esac
}

# build TEST: false if it can't be built.
build() { (cd "$tree" && ./run build "$(target "$1")"); }

# ran_none LOG: a filter that selects nothing passes.
ran_none() { grep -q 'Running 0 tests' "$1"; }

declare -A whole # by "TEST WHAT": yes if it passes without a mutant
passed=0
failed=0

# miss NAME WHY: one that was not shown to be found.
miss() {
  printf 'FAILED  %s: %s\n' "$1" "$2"
  failed=$((failed + 1))
}

check() {
  local name=$1 patch=$here/$1.patch found test what log=$logs/$1.log
  found=$(field Found-by "$patch")
  read -r test what <<<"$found"
  if [[ -z $test ]]; then
    miss "$name" "it has no line 'Found-by: TEST WHAT'"
    return
  fi
  if [[ -z ${whole[$found]:-} ]]; then
    whole[$found]=no
    if build "$test" &>"$log" && holds "$test" "$what" >>"$log" 2>&1 && ! ran_none "$log"; then
      whole[$found]=yes
    fi
  fi
  if [[ ${whole[$found]} == no ]]; then
    miss "$name" "'$found' doesn't pass without it: $log"
    return
  fi
  if ! patch --directory="$tree" --strip=1 --forward --silent <"$patch" &>"$log"; then
    miss "$name" "the patch doesn't apply: $log"
    copy_tree
    return
  fi
  if ! build "$test" &>"$log"; then
    miss "$name" "it doesn't build: $log"
  elif holds "$test" "$what" &>"$log"; then
    miss "$name" "'$found' passes with it"
  else
    printf 'ok      %s: found by %s\n' "$name" "$found"
    passed=$((passed + 1))
  fi
  patch --directory="$tree" --strip=1 --reverse --silent <"$patch" >/dev/null
}

names=("$@")
if ((${#names[@]} == 0)); then
  for file in "$here"/*.patch; do
    names+=("$(basename "$file" .patch)")
  done
fi
copy_tree
for name in "${names[@]}"; do
  check "$name"
done
printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
