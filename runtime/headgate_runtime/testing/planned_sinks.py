"""The conformance suite of sinks of planned batches, which read the log themselves."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from headgate.task.messages import TaskOutcome
from headgate_runtime.testing.compare import fail
from headgate_runtime.testing.points import runs_at
from headgate_runtime.testing.sinks import SinkChecks
from headgate_runtime.testing.some import some
from headgate_runtime.testing.sources import never, new_folder
from headgate_runtime.testing.world import World


class PlannedSinkConformance(SinkChecks):
    """Checks of a sink whose task is a `PlannedSinkTask`. A subclass whose name begins with
    ``Test`` names the connector::

    class TestMyLakeSink(PlannedSinkConformance):
        connector = MyLakeSink
        exactly_once = True

        def prepare(self, folder):
            return {"path": str(folder / "lake")}

        def written(self, folder):
            return [row.value for row in read_lake(folder / "lake")]

    Settings that make its batches small, and wait for nothing, find more.
    """

    _planned: ClassVar[bool] = True
    _work: ClassVar[str] = "run_batch"

    def test_survives_a_takeover_at_every_point(self, tmp_path: Path, request: Any) -> None:
        """Another worker runs the task while the first run hangs, and then the first goes on.

        No group fences it. The sink's own record of its batches must do so.
        """
        __tracebackhide__ = True
        names = self._run(new_folder(tmp_path, "takeover-points"), World(), first=True).points
        taken = 0
        for number in some(range(1, len(names) + 1), request, self.points_max):
            folder, world = new_folder(tmp_path, f"takeover-{number}"), World()
            take_over, others = runs_at(number, partial(self._run, folder, world))
            first = self._run(folder, world, first=True, at_point=take_over)
            taken += len(others)
            where = f"a takeover at point {number}, {names[number - 1]}"
            for other in others:
                self._check(f"{where}, and the other run", other, folder, exact=False)
            if first.ended.outcome not in (TaskOutcome.FENCED, TaskOutcome.STOPPED):
                reason = f"{first.ended.outcome}: {first.ended.reason}"
                fail(where, [f"the run that hung ended as {reason}, expected STOPPED or FENCED"])
            fail(where, self._written_wrong(folder, exact=self.exactly_once))
        fail("takeovers", never("taken over", taken))
