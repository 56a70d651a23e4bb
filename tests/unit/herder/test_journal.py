"""A herder's journal replays to the same decisions, and keeps no secret."""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from headgate import wire
from headgate.herder import journal as journal_module
from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.journal import Journal, JournalError, replay_journal, shown
from headgate.herder.settings import HerderSettings
from headgate.simulation.cluster import simulate
from headgate.simulation.world import Options
from headgate.topics.config_records import encode_connector, encode_session_key


class Recorded:
    """What one herder was given and decided, and its journal."""

    def __init__(self, settings: HerderSettings, now_ms: int, wall_ms: int) -> None:
        self.journal = Journal(b"salt")
        self.lines = [self.journal.first_line(settings, now_ms, wall_ms) + "\n"]
        self.decided: list[list[Any]] = []


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
        effects = handle(self, now_ms, command)
        one.decided.append(one.journal.decided(effects))
        return effects

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
        assert len(steps) == len(one.decided)
        for step, decided in zip(steps, one.decided, strict=True):
            assert shown(step.effects) == decided, step.command
    kinds = {each["type"] for one in recorded for decided in one.decided for each in decided}
    assert kinds >= {"StartTask", "AppendConfig", "WriteStatus", "Answer", "ValidateConfig"}


def test_a_decision_that_differs_in_one_value_is_another() -> None:
    """What is compared has the contents of effects, and not their kinds alone."""
    journal = Journal(b"salt")
    one = m.StopConnector("c", 1, 9)
    assert journal.decided([one]) == shown([one])
    assert journal.decided([one]) != shown([m.StopConnector("c", 2, 9)])
    written, wrong = (
        m.AppendConfig(1, (encode_connector("c", {"tasks.max": tasks_max}),), True)
        for tasks_max in ("1", "2")
    )
    assert journal.decided([written]) == shown([written]) != shown([wrong])


def test_a_decision_keeps_no_secret() -> None:
    records = (
        encode_connector("c", {"connector.class": "Source", "password": "hunter2"}),
        encode_session_key(b"hunter2" * 5, "HmacSHA256", 1),
    )
    text = str(Journal(b"salt").decided([m.AppendConfig(1, records, True)]))
    assert "'connector.class': 'Source'" in text
    assert "hunter2" not in text
    assert base64.b64encode(b"hunter2" * 5).decode() not in text


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


def test_values_that_a_patch_sets_are_digests() -> None:
    text = journal_of(m.Called("1", m.PatchConnectorConfig("c", {"password": "hunter2"})))
    assert "hunter2" not in text and '"password":"<' in text


def test_each_field_that_holds_a_config_is_known_to_the_journal() -> None:
    """A new command with a config in a field of another name would put secrets into the file."""
    fields = set(mappings_in(m.Command, set())) | set(mappings_in(m.Effect, set()))
    assert fields >= {"config", "changes", "worker_settings"}
    assert fields <= journal_module._CONFIGS | journal_module._LEFT_OUT


def mappings_in(hint: Any, seen: set[type]) -> Iterator[str]:
    """Names of fields with texts by key, of all messages that `hint` can hold."""
    if isinstance(hint, type) and is_dataclass(hint) and hint not in seen:
        seen.add(hint)
        for name, inner in get_type_hints(hint).items():
            if _has_texts_by_key(inner):
                yield name
            yield from mappings_in(inner, seen)
    for inner in get_args(hint):
        yield from mappings_in(inner, seen)


def _has_texts_by_key(hint: Any) -> bool:
    if get_origin(hint) is Mapping:
        return str in (get_args(hint)[1], *get_args(get_args(hint)[1]))
    return any(_has_texts_by_key(inner) for inner in get_args(hint))


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
