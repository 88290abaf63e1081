#!/usr/bin/env bash
# Runs clang-tidy over the sources of a finished build; non-zero if it finds anything.
#
#   cmake/tidy.sh BUILD_FOLDER CACHE_FOLDER
#
# A clean verdict is kept under the hash of all that it depends on (the source, the project's
# headers that it includes, .clang-tidy, the compile options), so only what changed is checked again.
set -euo pipefail
build=$(realpath "$1")
cache=$2
mkdir -p "$cache"

rules=$(cat .clang-tidy cmake/*.cmake <(clang-tidy-19 --version) | sha256sum)

# "SOURCE INCLUDED" per line, from the compiler's own dependency records. With a precompiled header
# these don't begin with the source, so its name is the object's. The generated files of the build
# folder count as included, but aren't checked themselves.
dependencies=$(ninja -C "$build" -t deps | awk -v build="$build" '
  / #deps / {
    source = $1
    sub("CMakeFiles/[^/]*[.]dir/", "", source)
    gsub("__/", "../", source)
    sub("[.]o:$", "", source)
    print source; print source
  }
  /^    / && $1 !~ "^/usr/" { print source; print ($1 ~ "^/" ? $1 : build "/" $1) }
' | xargs realpath --canonicalize-missing | paste -d ' ' - - | sort -u)

declare -A digest
while read -r sum path; do
  digest[$path]=$sum
done < <(cut -d ' ' -f 2 <<<"$dependencies" | sort -u | xargs sha256sum 2>/dev/null)

declare -A content
while read -r source included; do
  content[$source]+="${digest[$included]:-gone} "
done <<<"$dependencies"

stale=()
clean=0
for source in "${!content[@]}"; do
  [[ $source != "$build"/* && -e $source ]] || continue
  key=$(sha256sum <<<"$rules ${content[$source]}" | cut -c 1-32)
  if [[ -e $cache/$key ]]; then
    clean=$((clean + 1))
  else
    stale+=("$key" "$source")
  fi
done
found=$((clean + ${#stale[@]} / 2))
there=$(find . -name '*.cc' -not -path './build*' | wc -l)
((found * 10 >= there * 9)) || {
  echo "tidy: $build knows how only $found of $there sources are built"
  exit 1
}
echo "tidy: $clean sources known to be clean, $((${#stale[@]} / 2)) to check"
((${#stale[@]} > 0)) || exit 0

check() {
  local key=$1 source=$2 said
  if said=$(clang-tidy-19 -p "$build" --quiet "$source" 2>&1); then
    : >"$cache/$key"
    echo "tidy: clean: ${source#"$PWD"/}"
  else
    printf '%s\n' "$said" | grep -v '^[0-9]* warnings'
    return 1
  fi
}
export -f check
export build cache
# Verdicts of sources that have changed since are never read again.
find "$cache" -type f -mtime +30 -delete
# shellcheck disable=SC2016 # expanded by the inner shell
printf '%s\n' "${stale[@]}" | xargs -n 2 -P "$(nproc)" bash -c 'check "$1" "$2"' check
