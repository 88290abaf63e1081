#!/usr/bin/env bash
# Builds the oracle, and compares with it: soak.sh [SEED [CLUSTERS [GANGS]]], in the root of the tree,
# where build/verdicts_soak is built.
set -euo pipefail
command -v go >/dev/null || {
  echo "soak.sh: no go on PATH; ./run installs one" >&2
  exit 1
}
echo "oracle: building (2 minutes on two cores the first time)"
go build -C tests/verdicts/oracle -trimpath -buildvcs=false -ldflags "-s -w" -o ../../../build/verdicts_oracle .
exec build/verdicts_soak build/verdicts_oracle "$@"
