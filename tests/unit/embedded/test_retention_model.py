"""A model of retention before any SQL.

Appends, a sink's reads and commits, offsets set back, new sinks and passes come in random order. A
pass marks, looks at the batches in a snapshot, and deletes in later transactions. Between any two
of these steps anything may happen. Thousands of interleavings are run for the real way, and for
ways that leave one check out:

* `OFFSETS_BEFORE`: the sinks' offsets are read with the snapshot, not where batches are deleted.
* `SINKS_BEFORE`: the list of sinks is not read again where batches are deleted.
* `CLOCK_BEFORE`: the clock of a mark is read before its transaction.
* `READ_APART`: a reader looks whether its records are there, then reads in another snapshot.
"""

import random
from enum import Enum, auto

import pytest

RUNS = 1_500
STEPS = 120
PERIOD = 12
BATCH = 3


class Way(Enum):
    BUILT = auto()
    OFFSETS_BEFORE = auto()
    SINKS_BEFORE = auto()
    CLOCK_BEFORE = auto()
    READ_APART = auto()


class Model:
    def __init__(self, seed: int, way: Way, past_sinks: bool) -> None:
        self.chance = random.Random(seed)
        self.way = way
        self.past_sinks = past_sinks
        self.now = 0
        self.times: list[int] = []
        """When each record was appended."""
        self.first = 0
        self.marks: list[tuple[int, int]] = []
        self.sinks: dict[int, int] = {0: 0}
        """Committed offset of each sink."""
        self.config_end = 1
        self.positions: dict[int, int] = {0: 0}
        self.reading: tuple[int, bool] | None = None
        self.steps_of_pass: list[str] = []
        self.clock = 0
        self.batches: list[int] = []
        self.expired = 0
        self.seen: dict[int, int] = {}
        self.seen_config_end = 0
        self.faults: list[str] = []
        self.deleted = 0
        self.told = 0

    def run(self) -> "Model":
        for _ in range(STEPS):
            self.chance.choice(
                [self._append, self._read, self._commit, self._pass, self._pass, self._tick]
                + [self._set_back, self._new_sink] * (self.chance.random() < 0.2)
            )()
        return self

    def _tick(self) -> None:
        self.now += self.chance.randint(1, 6)

    def _append(self) -> None:
        self.times += [self.now] * BATCH

    # -- sinks --

    def _read(self) -> None:
        sink = self.chance.choice(sorted(self.sinks))
        if self.way is Way.READ_APART:
            if self.reading is None:
                self.reading = (sink, self.positions[sink] >= self.first)
                return
            (sink, there), self.reading = self.reading, None
        else:
            there = self.positions[sink] >= self.first
        position = self.positions[sink]
        if not there:
            self.told += 1
            self.positions[sink] = self.sinks[sink] = max(self.first, position)  # as a user does
            return
        found = max(position, self.first)
        if found < len(self.times):
            if found != position:
                self.faults.append(f"sink {sink} skipped {position} to {found} unseen")
            self.positions[sink] = min(found + BATCH, len(self.times))

    def _commit(self) -> None:
        sink = self.chance.choice(sorted(self.sinks))
        self.sinks[sink] = self.positions[sink]

    def _set_back(self) -> None:
        sink = self.chance.choice(sorted(self.sinks))
        offset = self.chance.randint(self.first, max(self.first, self.sinks[sink]))
        self.sinks[sink] = self.positions[sink] = offset

    def _new_sink(self) -> None:
        sink = len(self.sinks)
        self.sinks[sink] = 0
        self.positions[sink] = self.first
        self.config_end += 1

    # -- a pass --

    def _pass(self) -> None:
        if not self.steps_of_pass:
            self.steps_of_pass = ["clock", "mark", "look", "sinks", "delete"]
        getattr(self, f"_pass_{self.steps_of_pass.pop(0)}")()

    def _pass_clock(self) -> None:
        self.clock = self.now

    def _pass_mark(self) -> None:
        at = self.clock if self.way is Way.CLOCK_BEFORE else self.now
        self.marks.append((len(self.times), at))

    def _pass_look(self) -> None:
        self.batches = list(range(self.first, len(self.times), BATCH))
        old = [end for end, at in self.marks if at <= self.now - PERIOD]
        self.expired = max(old, default=0)
        self.seen = dict(self.sinks)

    def _pass_sinks(self) -> None:
        self.seen_config_end = self.config_end

    def _pass_delete(self) -> None:
        if self.way is not Way.SINKS_BEFORE and self.seen_config_end != self.config_end:
            self.steps_of_pass = ["sinks", "delete"]
            return
        known = [sink for sink in self.sinks if sink in self.seen or sink < self.seen_config_end]
        allowed = self.expired
        if not self.past_sinks:
            offsets = self.seen if self.way is Way.OFFSETS_BEFORE else self.sinks
            allowed = min([allowed, *(offsets.get(sink, 0) for sink in known)])
        gone = [base for base in self.batches if base + BATCH <= allowed]
        if not gone:
            return
        end = gone[-1] + BATCH
        for number in range(gone[0], end):
            if self.now - self.times[number] < PERIOD:
                self.faults.append(f"record {number} was deleted too young")
            behind = [sink for sink, offset in self.sinks.items() if offset <= number]
            if behind and not self.past_sinks:
                self.faults.append(f"record {number} was deleted before sinks {behind} had it")
        self.deleted += end - gone[0]
        self.first = end


def faults(way: Way, past_sinks: bool = False) -> list[str]:
    return [fault for seed in range(RUNS) for fault in Model(seed, way, past_sinks).run().faults]


def test_as_built_nothing_is_deleted_too_early_or_skipped_unseen() -> None:
    models = [Model(seed, Way.BUILT, past_sinks=False).run() for seed in range(RUNS)]
    assert [fault for model in models for fault in model.faults] == []
    assert sum(model.deleted for model in models) > RUNS


def test_past_sinks_readers_are_told() -> None:
    models = [Model(seed, Way.BUILT, past_sinks=True).run() for seed in range(RUNS)]
    assert [fault for model in models for fault in model.faults] == []
    assert sum(model.told for model in models) > RUNS // 10


@pytest.mark.parametrize("way", [Way.OFFSETS_BEFORE, Way.SINKS_BEFORE, Way.CLOCK_BEFORE])
def test_without_a_check_where_it_counts_records_go_too_early(way: Way) -> None:
    assert len(faults(way)) > RUNS // 200


def test_a_reader_that_looks_before_it_reads_skips_records_unseen() -> None:
    assert any("unseen" in fault for fault in faults(Way.READ_APART, past_sinks=True))
