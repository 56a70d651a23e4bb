"""What a scheduled rebalance delay costs and saves, when a worker crashes and is back after 90 s.

python examples/simulation/compare_delays.py [NUMBER OF SEEDS]
"""

import sys

from headgate.simulation.study import read_study, run_seeds

seeds = range(1, 1 + int(sys.argv[1] if sys.argv[1:] else 50))
print("delay   moves  tasks not running, s  balanced after, s (worst, its seed)")
for delay in ("0s", "60s", "300s"):
    study = read_study(
        {
            "cluster": {"workers": 3, "scheduled.rebalance.max.delay.ms": delay},
            "connectors": {"orders": {"tasks": 9}},
            "events": [{"at": "60s", "within": "3s", "do": "crash w2 for 90s"}],
        }
    )
    runs = run_seeds(study, seeds)
    not_running_s = (runs.median("not_running_ms") or 0) / 1000
    worst_ms, seed = runs.worst("balanced_ms")
    worst = "never" if worst_ms is None else f"{worst_ms / 1000:.1f}"
    print(f"{delay:6} {runs.median('moves'):6} {not_running_s:21.1f}  {worst} ({seed})")
