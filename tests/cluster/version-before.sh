#!/usr/bin/env bash
# Builds the version before this one from the history of this repository, for TestSoakUpgrade.
#
#   version-before.sh           build it if it is missing; the last line is the folder
#   version-before.sh --where   print only the folder
#
# The folder has the program and what that version was deployed with: muster, deploy/. It lies outside
# the tree and is named by the commit (version-before.txt), so that clones share it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$PWD/../..

commit=$(sed -n '/^[0-9a-f]\{40\}$/p' version-before.txt)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/muster/versions
out=$cache/$commit
if [[ ${1:-} == --where ]]; then
  echo "$out"
  exit
fi
if [[ -x $out/muster ]]; then
  echo "$out"
  exit
fi
git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null || {
  echo "version-before.sh: this clone lacks commit $commit, the version before this one; git fetch --unshallow brings it" >&2
  exit 1
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [[ -x $out/muster ]]; then
  echo "$out"
  exit
fi
# A build that was cut off is taken up again.
source=$out.source
mkdir -p "$source" "$out"
git -C "$root" archive "$commit" | tar -x -C "$source"
cp -r "$source/deploy" "$out"
echo "the version before ($commit): building muster (9 minutes on two busy cores)"
(
  cd "$source"
  [[ -e build/build.ninja ]] || cmake --preset release
  nice -n 5 ninja -C build muster
) 9>&-
install "$source/build/muster" "$out/muster.part"
mv "$out/muster.part" "$out/muster"
rm -rf "$source"
echo "$out"
