"""How much virtual time the simulation runs in a second of CPU time."""

import time
from collections.abc import Iterator

from headgate.simulation.cluster import simulate
from headgate.simulation.world import Options

SEEDS = 5


def run() -> Iterator[str]:
    """Yield report lines for whole clusters of three and ten workers, with faults and users."""
    for workers in (3, 10):
        began = time.process_time()
        reports = [simulate(Options(seed=seed, workers=workers)) for seed in range(SEEDS)]
        cpu = time.process_time() - began
        virtual = sum(report.virtual_ms for report in reports) / 1000
        steps = sum(report.steps for report in reports)
        yield (
            f"{workers:2} workers: {virtual / cpu:6.0f} simulated seconds per CPU second, "
            f"{steps / cpu:,.0f} steps per CPU second ({SEEDS} seeds)"
        )
