#!/usr/bin/env bash
# The web page in a browser: tests/page/test.sh MUSTER_LAB [--pictures FOLDER]. Headless Chromium opens
# it over the demo's cluster, in which gangs, queues and nodes are brought into each state, and looks
# at each view dark and light: what it says beside what REST says, axe-core's findings, the console,
# the keyboard.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
lab=${1:-build/muster-lab}
shift || true

axe_version=4.14.1
axe_sha256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
axe=${XDG_CACHE_HOME:-$HOME/.cache}/muster/axe-core-$axe_version.tgz
if ! sha256sum --check --status <<<"$axe_sha256  $axe" 2>/dev/null; then
  mkdir -p "$(dirname "$axe")"
  curl --fail --silent --show-error --location --retry 3 --output "$axe.part" \
    "${npm_config_registry:-https://registry.npmjs.org}/axe-core/-/axe-core-$axe_version.tgz"
  sha256sum --check --quiet <<<"$axe_sha256  $axe.part"
  mv "$axe.part" "$axe"
fi

work=$(mktemp -d)
tar --extract --file "$axe" --directory "$work" --strip-components 1 package/axe.min.js
# Slow enough that each view can be looked at while nodes come.
stdbuf --output=L "$lab" demo --keep --speed 0.3 >"$work/demo.log" 2>&1 &
demo=$!
trap 'kill "$demo" 2>/dev/null || true; wait "$demo" 2>/dev/null || true; rm -rf "$work"' EXIT
# Debian's Python has Debian's Selenium.
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/page/check.py "$work" "$work/axe.min.js" "$@"
