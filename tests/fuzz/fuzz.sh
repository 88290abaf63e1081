#!/usr/bin/env bash
# Runs one fuzz target: the files of its corpus, then inputs that libFuzzer makes from them.
#
#   tests/fuzz/fuzz.sh build/asan/fuzz/quantity                        a fixed number, always the same
#   tests/fuzz/fuzz.sh build/asan/fuzz/quantity -max_total_time=600    as libFuzzer is told
#   tests/fuzz/fuzz.sh --replay build/fuzz/quantity                    the corpus only
#   tests/fuzz/fuzz.sh --reads build/fuzz/quantity                     prints the folders of its corpus
#
# The first form is what `./run test` does; with MUSTER_FULL=1 (./run soak fuzz) it takes more inputs. Inputs
# of the second form that reach something new are kept beside the program and are where the next
# such run starts from. An input that fails is left there as TARGET.crash-..., and named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
only=
case $1 in
  --replay | --reads)
    only=$1
    shift
    ;;
esac
program=$1
name=${program##*/}
shift

corpus=("tests/fuzz/corpus/$name")
case $name in
  lint | yaml) corpus+=(tests/lint/bad tests/lint/good) ;;
  scenario) corpus+=(tests/scenarios) ;;
  worker_logs) corpus+=(worker/diagnose/logs) ;;
esac
case $only in
  --replay) exec "$program" "${corpus[@]}" ;;
  --reads)
    # What it is told by, too.
    printf '%s\n' tests/fuzz "${corpus[@]:1}"
    exit
    ;;
esac

# The largest input, and what one may take: none may cost much more than its size.
options=(-max_len=16384 -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=30 -verbosity=0 -print_funcs=0
  "-artifact_prefix=$program.")
case $name in
  config | kubeconfig | lint | scenario | yaml) options+=(-dict=tests/fuzz/yaml.dict) ;;
  admission | objects | record | scheduler_calls | watch) options+=(-dict=tests/fuzz/json.dict) ;;
esac

found=$program.found
if (($# == 0)); then
  runs=5000
  [[ ${MUSTER_FULL:-} != 1 ]] || runs=100000
  # Each of its inputs goes through all rules and all outputs.
  [[ $name != lint ]] || runs=$((runs / 10))
  # Nothing of earlier runs, so that the same happens each time.
  rm -rf "$found"
  set -- -seed=1 "-runs=$runs"
fi
mkdir -p "$found"
# libFuzzer learns from what is compared, addresses too: the same inputs come of the same addresses.
fixed=(setarch --addr-no-randomize)
"${fixed[@]}" true 2>/dev/null || fixed=()
exec "${fixed[@]}" "$program" "${options[@]}" "$@" "$found" "${corpus[@]}"
