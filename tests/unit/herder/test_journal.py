"""A herder's journal replays to the same decisions, and keeps no secret."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from support.herder.setups import C0, SOURCE, created, one_worker

from headgate import wire
from headgate.herder import journal as journal_module
from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.journal import Journal, JournalError, replay_journal, shown
from headgate.herder.settings import HerderSettings
from headgate.herder.statuses import UNHEARD_MS
from headgate.ids import State, TargetState
from headgate.simulation.cluster import simulate
from headgate.simulation.world import Options
from headgate.task.messages import TaskEnded, TaskOutcome
from headgate.topics.config_events import ConnectorConfigured
from headgate.topics.config_records import encode_connector, encode_session_key
from headgate.topics.status import ConnectorStatusReported, Status


class Recorded:
    """The inputs and decisions of one herder, and its journal."""

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


@pytest.mark.parametrize(
    "options",
    [
        *(Options(seed) for seed in range(3)),
        *(Options(seed, failing_polls=0.3) for seed in range(2)),
        *(Options(seed, failing_connectors=0.5) for seed in range(2)),
        # Whether there is a restart depends on what the error says.
        Options(0, failing_polls=0.25, failing_connectors=0.8, small_budgets=True),
        Options(1, failing_polls=0.25, failing_connectors=0.8, small_budgets=True),
    ],
)
def test_journals_of_whole_clusters_replay_to_the_same_decisions(
    recorded: list[Recorded], options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(options)
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
    """The comparison includes the contents of effects, not only their kinds."""
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


def test_values_of_configs_that_are_no_texts_are_digests() -> None:
    """No worker writes such a config, but a line with one can be read."""
    config: Any = {"connector.class": 1, "headgate.restart.errors": ["x"], "a": {"b": "hunter2"}}
    text = journal_of(m.Called("1", m.PutConnectorConfig("c", config)))
    assert "hunter2" not in text
    found = json.loads(text.splitlines()[-1])["command"]["call"]["config"]
    assert all(value.startswith("<") for value in found.values())
    assert len(list(replay_journal(f"{line}\n" for line in text.splitlines()))) == 1


def test_values_that_a_patch_sets_are_digests() -> None:
    text = journal_of(m.Called("1", m.PatchConnectorConfig("c", {"password": "hunter2"})))
    assert "hunter2" not in text and '"password":"<' in text


def test_each_field_that_may_hold_a_secret_is_known_to_the_journal() -> None:
    """A new message with a config, or with anything at all, in a field of another name would put
    secrets into the file."""
    assert fields_with(_has_texts_by_key) == CONFIGS | HIDDEN
    assert CONFIGS == journal_module._CONFIGS and HIDDEN == journal_module._LEFT_OUT
    assert fields_with(lambda hint: hint is object) == PLAIN
    assert fields_with(lambda hint: hint is bytes) == BYTES
    assert fields_with(lambda hint: hint is str) >= journal_module._TEXTS - {
        "errors",
        "quarantined",
    }


CONFIGS = {"changes", "config", "configs", "connector_config", "task_config"}
HIDDEN = {"worker_settings", "transport", "hidden"}
PLAIN = {"value", "offsets"}
"""`Success.value` is left out. Offsets stand there as they are, and the docs say so."""
BYTES = {"value", "records", "key", "protocols", "metadata", "assignment", "assignments"}
"""Records of config and status topic are opened, and stand in no command. Keys are digests. The
others are urls, names and numbers, as the group's protocol has them."""


def fields_with(wanted: Callable[[Any], bool]) -> set[str]:
    """Return the names of fields of commands and effects that can hold `wanted`."""
    found: set[str] = set()
    seen: set[type] = set()

    def look(hint: Any, field: str) -> None:
        if wanted(hint) and field:
            found.add(field)
        if isinstance(hint, type) and is_dataclass(hint) and hint not in seen:
            seen.add(hint)
            for name, inner in get_type_hints(hint).items():
                look(inner, name)
        for inner in get_args(hint):
            look(inner, field)

    look(m.Command, "")
    look(m.Effect, "")
    return found


def _has_texts_by_key(hint: Any) -> bool:
    return get_origin(hint) is Mapping and str in (
        get_args(hint)[1],
        *get_args(get_args(hint)[1]),
    )


def test_no_failure_and_no_answer_brings_a_secret_into_a_journal_or_a_decision(
    recorded: list[Recorded],
) -> None:
    world = one_worker()
    created(world, {**SOURCE, "password": "hunter2"})
    run = world.workers["a"].herder._connectors._held["c"].run
    world.end_task("a", C0, TaskEnded(TaskOutcome.FAILED, "not hunter2", "Trace\nof hunter2"))
    world.give("a", m.ConnectorFailed("c", run, "login: hunter2", "Trace\npassword hunter2"))
    world.advance(1_000)
    for call in (
        m.DescribeConnector("c"),
        m.DescribeTasks("c"),
        m.DescribeStatus("c"),
        m.DescribeWorker(),
        m.ListConnectors(("info", "status")),
        m.ShowConnector("c", ("config", "tasks")),
        m.ShowConnectors(parts=("config", "tasks")),
        m.PutConnectorConfig("c", {**SOURCE, "password": "hunter2", "more": "hunter2"}),
    ):
        world.call("a", call)
        world.run()
    world.give("a", m.ConfigAppendFailed(999, "refused hunter2", False))
    world.give("a", m.ConfigValidated(999, ("no hunter2",)))
    world.give("a", m.PeerAnswered(999, m.Success({"deep": [{"password": "hunter2"}]})))
    world.give("a", m.PeerAnswered(999, m.Failure(m.ErrorKind.INTERNAL, "no hunter2")))
    world.run()
    (one,) = recorded
    assert [*secrets_in(one.decided)] == []
    assert [*secrets_in([json.loads(line) for line in one.lines])] == []
    for step, decided in zip(replay_journal(one.lines), one.decided, strict=True):
        assert shown(step.effects) == decided, step.command


def secrets_in(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from secrets_in(item, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for item in cast(list[Any], value):
            yield from secrets_in(item, path)
    elif isinstance(value, str):
        try:
            opened = base64.b64decode(value, validate=True)
        except ValueError:
            opened = b""
        if "hunter2" in value or b"hunter2" in opened:
            yield path


def test_an_error_keeps_what_a_restart_policy_looks_for() -> None:
    """Otherwise a replay would leave a task FAILED that was restarted."""
    config = {**SOURCE, "headgate.restart.errors": "timed out, refused"}
    failed = m.ConnectorFailed("c", 1, "", "Trace\nhunter2: connection refused")
    text = journal_of(m.ConfigRead((ConnectorConfigured(0, "c", config),)), failed)
    assert json.loads(text.splitlines()[-1])["command"]["trace"].endswith("> refused")
    assert "hunter2" not in text


def test_a_status_that_was_read_back_is_the_worker_s_own_in_a_replay_too(
    recorded: list[Recorded],
) -> None:
    """A journal has no trace of it. One that was not heard again would be written once more."""
    world = one_worker()
    created(world, {**SOURCE, "headgate.restart.max": "1", "headgate.restart.backoff.ms": "90000"})
    world.give("a", m.ConnectorFailed("c", 1, "no", "Trace\nno"))
    world.run()
    foreign = ConnectorStatusReported("c", Status(State.RUNNING, "x", 0))
    world.give("a", m.StatusRead((("status-connector-c", foreign),) * 2))
    world.advance(UNHEARD_MS * 2)
    (one,) = recorded
    for step, decided in zip(replay_journal(one.lines), one.decided, strict=True):
        assert shown(step.effects) == decided, step.command


@pytest.mark.parametrize("key", ["properties", "changes", "config", "configs", "trace", "value"])
def test_keys_of_users_offsets_mean_nothing_to_a_journal(key: str) -> None:
    offsets = (({key: {"a": 1}}, {key: "b"}),)
    call = m.Called("1", m.AlterOffsets("c", offsets))
    assert json.loads(Journal(b"salt").line(1, call))["command"] == wire.plain(call)


def test_a_dry_run_of_a_reset_is_a_decision_that_can_be_told(recorded: list[Recorded]) -> None:
    world = one_worker()
    created(world)
    world.offsets["c"] = [({"file": "hunter2"}, {"position": 1})]
    world.call("a", m.SetTargetState("c", TargetState.STOPPED))
    world.until_settled()
    call_id = world.call("a", m.ResetOffsets("c", dry_run=True))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success) and "hunter2" in str(answer.value)
    assert "hunter2" not in str(recorded[0].decided)


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
