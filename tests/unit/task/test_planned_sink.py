"""A task of planned batches refuses some configs at its start.

Our workers refuse these configs earlier, when they are given. So another kind of worker wrote them.
"""

from pathlib import Path

from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate.connector.api import PlannedSinkTask
from headgate.task.messages import TaskKind, TaskOutcome


class Planning(PlannedSinkTask):
    def run_batch(self) -> int:
        raise AssertionError("it has started")


def test_transforms_that_it_would_not_apply_fail_it(tmp_path: Path) -> None:
    """Otherwise values that the transforms mask would be written in clear text."""
    fill(tmp_path, [b"a"])
    mask = {"transforms.mask.type": "MaskField$Value", "transforms.mask.fields": "card"}
    config = {"topics": "t", "transforms": "mask", **mask}
    ended = BodyBench(tmp_path, Planning, config, kind=TaskKind.SINK).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "no transform would change its records" in ended.reason
