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

# Only for the axe.min.js in it, 4.12.1.
wheels='
axe-playwright-python==0.1.8 --hash=sha256:fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8
'
axe=$(tests/wheels.sh axe-playwright-python-0.1.8 <<<"$wheels")/axe_playwright_python/axe.min.js

work=$(mktemp -d)
# Slow enough that each view can be looked at while nodes come.
stdbuf --output=L "$lab" demo --keep --speed 0.3 >"$work/demo.log" 2>&1 &
demo=$!
trap 'kill "$demo" 2>/dev/null || true; wait "$demo" 2>/dev/null || true; rm -rf "$work"' EXIT
# Debian's Python has Debian's Selenium.
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 tests/page/check.py "$work" "$axe" "$@"
