#!/usr/bin/env bash
# Installs the wheels that standard input pins, with their hashes, for Debian's Python, whose PyTorch
# some of them need; once for each NAME, which says what they are: tests/wheels.sh NAME. Prints the
# folder for PYTHONPATH.
set -euo pipefail
: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
folder=${XDG_CACHE_HOME:-$HOME/.cache}/muster/$1

if [[ ! -e $folder ]]; then
  rm -rf "$folder.part"
  /usr/bin/python3 -m pip install --no-deps --require-hashes --only-binary :all: \
    --target "$folder.part" --disable-pip-version-check --root-user-action ignore --quiet \
    --requirement /dev/stdin >&2
  mv "$folder.part" "$folder"
fi
echo "$folder"
