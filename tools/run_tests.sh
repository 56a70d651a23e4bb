#!/bin/sh
# Runs every test, fast ones first, and says what it runs. Stops at the first layer that fails.
set -e
bin="$1"
run() {
    echo
    echo "== $1"
    shift
    "$@"
}
run "fast: scenarios, laws, contracts, units (hash seed 0)" env PYTHONHASHSEED=0 "$bin/python" -m pytest -q -m "not slow" tests
run "scenarios again under another hash seed" env PYTHONHASHSEED=4242 "$bin/python" -m pytest -q tests/scenarios
run "slow: real processes, real Spark, real kills" "$bin/python" -m pytest -q -m slow tests
