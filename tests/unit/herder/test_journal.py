"""A herder's journal replays to the same decisions, and keeps no secret."""

from collections.abc import Callable

import pytest

from headgate import wire
from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.journal import Journal, JournalError, replay_journal
from headgate.herder.settings import HerderSettings
from headgate.simulation.cluster import simulate
from headgate.simulation.world import Options


class Recorded:
    """What one herder was given and decided, and its journal."""

    def __init__(self, settings: HerderSettings, now_ms: int, wall_ms: int) -> None:
        self.journal = Journal(b"salt")
        self.lines = [self.journal.first_line(settings, now_ms, wall_ms) + "\n"]
        self.effects: list[list[m.Effect]] = []


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """Every herder that is made from here on, until `monkeypatch` is undone."""
    found: list[Recorded] = []
    of: dict[int, Recorded] = {}
    make, handle = Herder.__init__, Herder.handle

    def made(
        self: Herder, settings: HerderSettings, now_ms: int, *, wall_ms: int | None = None
    ) -> None:
        make(self, settings, now_ms, wall_ms=wall_ms)
        of[id(self)] = Recorded(settings, now_ms, now_ms if wall_ms is None else wall_ms)
        found.append(of[id(self)])
        kept.append(self)  # else another may get its id

    def handled(self: Herder, now_ms: int, command: m.Command) -> list[m.Effect]:
        one = of[id(self)]
        one.lines.append(one.journal.line(now_ms, command) + "\n")
        one.effects.append(handle(self, now_ms, command))
        return one.effects[-1]

    kept: list[Herder] = []
    monkeypatch.setattr(Herder, "__init__", made)
    monkeypatch.setattr(Herder, "handle", handled)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_journals_of_whole_clusters_replay_to_the_same_decisions(
    recorded: list[Recorded], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(Options(seed=seed))
    monkeypatch.undo()
    assert len(recorded) >= 3
    for one in recorded:
        steps = list(replay_journal(one.lines))
        assert len(steps) == len(one.effects)
        for step, effects in zip(steps, one.effects, strict=True):
            assert [_shown(effect) for effect in step.effects] == [_shown(e) for e in effects]


def _shown(effect: m.Effect) -> tuple[str, str]:
    subject = getattr(effect, "connector", None) or getattr(effect, "key", None)
    return type(effect).__name__, str(subject or getattr(effect, "call_id", ""))


def journal_of(*commands: m.Command) -> str:
    journal = Journal(b"salt")
    settings = HerderSettings("w", "u", worker_settings={"sasl.jaas.config": "hunter2"})
    first = journal.first_line(settings, 0, 0)
    return "\n".join([first, *(journal.line(1, command) for command in commands)])


def test_values_of_configs_are_digests_but_for_what_decisions_read() -> None:
    config = {"connector.class": "Source", "connection.url": "jdbc:x?password=hunter2", "n": None}
    text = journal_of(m.Called("1", m.PutConnectorConfig("c", config)))
    assert "hunter2" not in text
    assert '"connector.class":"Source"' in text and '"n":null' in text


def test_equal_values_have_equal_digests_in_one_journal_and_others_in_another() -> None:
    def digest(journal: Journal, value: str) -> str:
        return journal.line(1, m.Called("1", m.PutConnectorConfig("c", {"x": value})))

    one, other = Journal(b"one"), Journal(b"other")
    assert digest(one, "a") == digest(one, "a") != digest(one, "b")
    assert digest(one, "a") != digest(other, "a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[1:], "line 1: expected the beginning"),
        (lambda lines: ["nonsense\n"], "line 1: not JSON"),
        (lambda lines: [lines[0], "[]\n"], "line 2: '\\[\\]\\\\n', expected an object"),
        (lambda lines: [lines[0], '{"now_ms":1,"command":{"type":"Odd"}}\n'], "line 2: .*Odd"),
    ],
)
def test_what_is_no_journal_is_refused_by_its_line(
    change: Callable[[list[str]], list[str]], said: str
) -> None:
    lines = [f"{line}\n" for line in journal_of(m.Tick()).splitlines()]
    with pytest.raises(JournalError, match=said):
        list(
            replay_journal(change([line if line.endswith("\n") else f"{line}\n" for line in lines]))
        )


def test_a_last_line_that_was_cut_off_ends_the_replay() -> None:
    text = journal_of(m.Tick(), m.Shutdown())
    assert len(list(replay_journal(text.splitlines(keepends=True)))) == 2
    assert len(list(replay_journal(text[:-5].splitlines(keepends=True)))) == 1


def test_every_command_can_be_written_and_read() -> None:
    for effect in (m.Tick(), m.Shutdown(), m.ConfigRead(()), m.CoordinatorLost("gone")):
        assert wire.from_plain_union(m.Command, wire.plain(effect)) == effect
