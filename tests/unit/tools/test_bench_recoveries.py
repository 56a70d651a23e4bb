"""`bench` reports each loss of a process. A loss that is not recovered in time is a line of the
report, and does not end the run."""

from collections.abc import Iterator
from typing import Any

import pytest

from bench import live_job
from bench.live_job import recoveries, report, seen


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_job, "PATIENCE_S", 0.05)
    monkeypatch.setattr(live_job.time, "sleep", lambda _seconds: None)


class Log:
    """Goes on when it is asked, as often as it is told."""

    def __init__(self, *goes_on: bool) -> None:
        self._goes_on: Iterator[bool] = iter(goes_on)

    def grows(self) -> float | None:
        counts = iter((0, 1))
        return seen(lambda: next(counts, 1) > 0) if next(self._goes_on) else seen(lambda: False)

    commits = grows


def test_a_loss_that_is_not_mended_in_time_is_reported() -> None:
    blows: list[None] = []
    log: Any = Log(*(4 * [True]), True, True, False, True, False)
    told = recoveries("the host", log, lambda: blows.append(None))
    assert told.startswith("the host")
    assert told.count("2 of 3 not within 0 s") == 1 and told.count("1 of 3 not within 0 s") == 1
    assert len(blows) == 2, "one that nothing goes on after is not hit again"


def test_the_report_has_medians_and_counts_what_was_late() -> None:
    told = report("driver", [(1.0, 2.0), (3.0, None), (2.0, None)])
    words = "driver 2.0 (1.0 to 3.0) 2.0 (2.0 to 2.0), 2 of 3 not within 0 s"
    assert " ".join(told.split()) == words
    assert report("host", 3 * [(None, None)]).count("3 of 3 not within 0 s") == 2
