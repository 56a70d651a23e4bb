#!/bin/sh
# Runs every test, fast ones first, and says what it runs. Stops at the first layer that fails.
# HEADGATE_TEST_PROCESSES: how many run side by side, 2 if not set; each starts a broker of its own.
# HEADGATE_SEED is for one test: all of them would try that seed alone and pass, with little tried.
set -e
bin="$1"
if [ -n "${HEADGATE_SEED:-}" ]; then
    echo "HEADGATE_SEED=$HEADGATE_SEED is passed over: with it random tests try that seed alone; see tests/simulation"
fi
unset HEADGATE_SEED
side_by_side="-n ${HEADGATE_TEST_PROCESSES:-2} --dist loadfile"
run() {
    echo
    echo "== $1"
    shift
    "$@"
}
run "fast: scenarios, laws, contracts, units (hash seed 0)" \
    env PYTHONHASHSEED=0 "$bin/python" -m pytest -q $side_by_side --durations=10 -m "not slow and not exhaustive" tests
run "scenarios again under another hash seed" env PYTHONHASHSEED=4242 "$bin/python" -m pytest -q tests/scenarios
run "slow: real processes, real Spark, real kills" \
    "$bin/python" -m pytest -q $side_by_side --durations=20 -m "slow and not exhaustive" tests
