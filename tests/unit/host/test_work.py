"""Effects keep one rule of order. One table has their ports, answers and commands."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate.herder.settings import HerderSettings
from headgate.host.host import AtOnce, HerderHost
from headgate.host.work import Work, lane_of, works
from headgate.ids import TargetState, TaskId
from headgate.membership.messages import Heartbeat
from headgate.ports import FencedError, TooLargeError, TransportError
from headgate.task.messages import PauseTask, TaskKind, TaskSpec

SPEC = TaskSpec(
    task=TaskId("c", 0),
    run="w/c-0.1",
    commit_offset=3,
    connector_config={},
    task_config={},
    kind=TaskKind.SOURCE,
    exactly_once=False,
    transactional_id=None,
    member_id="m",
    generation=1,
    target_state=TargetState.STARTED,
    group="g",
    worker_id="w",
    worker_settings={},
    transport={},
)
FAILURE = m.Failure(m.ErrorKind.CONFLICT, "overtaken")
ALTER = m.AlterConnectorOffsets(7, "c", {}, TaskKind.SOURCE, None, None, "m", 1)
READ = m.ReadConnectorOffsets(7, "c", {}, TaskKind.SOURCE)
LEVEL = m.ApplyLoggerLevel("root", "INFO")

TABLE: list[tuple[m.Effect, str, object, list[m.Command]]] = [
    (m.SendGroup(Heartbeat("g", "m", 1)), "send_group", None, []),
    (m.ClaimLeadership(4), "claim", None, [m.LeadershipClaimed(4)]),
    (m.ClaimLeadership(4), "claim", FencedError("no"), [m.LeadershipClaimed(4, "no")]),
    (m.AppendConfig(7, (("k", b""),), True), "append", 12, [m.ConfigAppended(7, 12)]),
    (
        m.AppendConfig(7, (("k", b""),), True),
        "append",
        FencedError("no"),
        [m.ConfigAppendFailed(7, "no", fenced=True)],
    ),
    (
        m.AppendConfig(7, (("k", b""),), False),
        "append",
        TooLargeError("no"),
        [m.ConfigAppendFailed(7, "no", fenced=False, too_large=True)],
    ),
    (
        m.AppendConfig(7, (("k", b""),), False),
        "append",
        TransportError("no"),
        [m.ConfigAppendFailed(7, "no", fenced=False)],
    ),
    (m.ReadConfigToEnd(7), "read_to_end", [m.ConfigEndRead(7)], [m.ConfigEndRead(7)]),
    (m.WriteStatus("k", b"1"), "write_statuses", None, []),
    (m.AwaitStatuses(7), "await_statuses", [m.StatusesWritten(7)], [m.StatusesWritten(7)]),
    (m.ValidateConfig(7, "c", {}), "validate", ("wrong",), [m.ConfigValidated(7, ("wrong",))]),
    (m.StartConnector("c", 1, {}), "start_connector", None, []),
    (
        m.StopConnector("c", 1, 9),
        "stop_connector",
        m.ConnectorStopped("c", 1),
        [m.ConnectorStopped("c", 1)],
    ),
    (m.GenerateTaskConfigs(7, "c", 1, 2), "generate_task_configs", None, []),
    (m.StartTask(SPEC), "start_task", None, []),
    (m.SendTask("r", PauseTask()), "send_task", None, []),
    (m.StopTaskBy("r", 5), "stop_task", None, []),
    (m.FenceProducers(7, "c", ("t",)), "fence", None, [m.ProducersFenced(7)]),
    (m.FenceProducers(7, "c", ("t",)), "fence", TransportError("x"), [m.ProducersFenced(7, "x")]),
    (READ, "read_offsets", m.ConnectorOffsetsRead(7), [m.ConnectorOffsetsRead(7)]),
    (ALTER, "alter_offsets", m.ConnectorOffsetsAltered(7), [m.ConnectorOffsetsAltered(7)]),
    (m.GiveUpAlteration(7), "give_up_alteration", None, []),
    (
        m.GiveUpAlteration(7),
        "give_up_alteration",
        FAILURE,
        [m.ConnectorOffsetsAltered(7, failure=FAILURE)],
    ),
    (m.MakeSessionKey(7, "H", 256), "make_session_key", (b"k", 9), [m.SessionKeyMade(7, b"k", 9)]),
    (LEVEL, "set_logger_level", None, []),
    (m.CallPeer(7, "u", m.DescribeWorker(), 1, 9), "call_peer", None, []),
    (
        m.CallPeer(7, "u", m.DescribeWorker(), 1, 9),
        "call_peer",
        m.Success(1),
        [m.PeerAnswered(7, m.Success(1))],
    ),
    (
        m.CallPeer(7, "u", m.DescribeWorker(), 1, 9),
        "call_peer",
        TransportError("late"),
        [m.PeerAnswered(7, m.Failure(m.ErrorKind.TIMEOUT, "u: late"))],
    ),
    (m.Answer("id", m.Success()), "answer", None, []),
]


class OnePort:
    """A port with one method, which has this outcome."""

    def __init__(self, name: str, outcome: object) -> None:
        self.calls = 0
        setattr(self, name, self._call)
        self._outcome = outcome

    def _call(self, *_args: object, **_named: object) -> object:
        self.calls += 1
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.mark.parametrize("effect, port, outcome, answers", TABLE, ids=lambda given: str(given)[:40])
def test_an_effect_has_its_port_and_its_answer(
    effect: m.Effect, port: str, outcome: object, answers: list[m.Command]
) -> None:
    ports: Any = OnePort(port, outcome)
    assert list(Work((effect,), ports).perform()) == answers
    assert ports.calls == 1


def test_the_table_has_every_effect() -> None:
    assert {type(effect) for effect, *_ in TABLE} == set(get_args(m.Effect))


ANSWERED_WITH_TOKEN = [each[0] for each in TABLE if each[3]]


@pytest.mark.parametrize("effect", ANSWERED_WITH_TOKEN, ids=lambda effect: type(effect).__name__)
def test_what_could_not_be_done_is_answered_for_whoever_waits(effect: m.Effect) -> None:
    """Session keys and abandoned changes are looked at again without an answer. A caller that
    awaits statuses is not told why it need not wait."""
    ports: Any = None
    answers = Work((effect,), ports).failed("a bug")
    if isinstance(effect, (m.MakeSessionKey, m.GiveUpAlteration)):
        assert not answers
        return
    (answer,) = answers
    about = ("token", "generation", "run")
    named = next(name for name in about if hasattr(effect, name))
    assert getattr(answer, named) == getattr(effect, named)
    assert "a bug" in repr(answer) or isinstance(effect, m.AwaitStatuses)


def test_statuses_come_last_and_together() -> None:
    one, two = m.WriteStatus("a", b"1"), m.WriteStatus("a", b"2")
    answer, claim = m.Answer("id", m.Success()), m.ClaimLeadership(1)
    ports: Any = None
    found = [work.effects for work in works([one, answer, two, claim], ports)]
    assert found == [(answer,), (claim,), (one, two)]
    assert works([], ports) == []
    token = m.AwaitStatuses(7)
    found = [work.effects for work in works([token, one, answer, two], ports)]
    assert found == [(answer,), (one, two), (token,)]


def test_lanes_hold_what_must_keep_its_order() -> None:
    """The numbered list of `headgate.herder.messages`, one line each."""
    claim, append = m.ClaimLeadership(1), m.AppendConfig(1, (), True)
    assert lane_of(claim) == lane_of(append) is not None
    assert lane_of(m.WriteStatus("a", None)) == lane_of(m.WriteStatus("b", None)) is not None
    assert lane_of(m.WriteStatus("a", None)) == lane_of(m.AwaitStatuses(7))
    assert lane_of(m.SendGroup(Heartbeat("g", "m", 1))) is not None
    runs = {lane_of(e) for e in (m.StartTask(SPEC), m.SendTask(SPEC.run, PauseTask()))}
    assert runs == {lane_of(m.StopTaskBy(SPEC.run, 1))} != {lane_of(m.StopTaskBy("other", 1))}
    start, stop = m.StartConnector("c", 1, {}), m.StopConnector("c", 1, 0)
    assert lane_of(start) == lane_of(stop) == lane_of(m.GenerateTaskConfigs(7, "c", 1, 1))
    assert lane_of(start) != lane_of(m.StartConnector("c", 2, {}))
    assert lane_of(ALTER) == lane_of(m.GiveUpAlteration(7)) is not None
    assert lane_of(m.ReadConfigToEnd(7)) is None


class Script(Herder):
    """A herder whose decisions the test has written down."""

    def __init__(self, decisions: dict[m.Command, list[m.Effect]]) -> None:
        super().__init__(HerderSettings(worker_id="w", url="w"), 0)
        self.decisions = decisions
        self.given: list[m.Command] = []

    def handle(self, now_ms: int, command: m.Command) -> list[m.Effect]:
        self.given.append(command)
        return self.decisions.get(command, [])


def host_of(herder: Herder, ports: Any, **told: Callable[..., None]) -> HerderHost:
    return HerderHost(herder, ports, AtOnce(), lambda: 5, **told)


def test_what_is_known_at_once_comes_before_all_that_waits() -> None:
    """`ConfigEndRead` must follow the records before that end, whatever else has come."""
    read, end = m.ConfigRead(()), m.ConfigEndRead(7)
    herder = Script({m.Tick(): [m.ReadConfigToEnd(7)]})
    ports = OnePort("read_to_end", [read, end])
    host = host_of(herder, ports)
    host.post(m.Tick())
    host.post(m.Shutdown())
    assert len(host.inbox) == 2
    assert host.turn() and herder.given == [m.Tick(), read, end]
    assert host.turn() and herder.given[3:] == [m.Shutdown()]
    assert not host.turn()


def test_a_journal_has_a_command_before_the_herder_does() -> None:
    """In this way the command at which a herder breaks is in the file."""
    seen: list[object] = []

    class Breaks(Script):
        def handle(self, now_ms: int, command: m.Command) -> list[m.Effect]:
            raise AssertionError(now_ms)

    def given(now_ms: int, command: m.Command) -> None:
        seen.append((now_ms, command))

    def decided(command: m.Command, effects: Sequence[m.Effect]) -> None:
        seen.append(effects)

    with pytest.raises(AssertionError, match="5"):
        host_of(Breaks({}), None, given=given, decided=decided).handle(m.Tick())
    assert seen == [(5, m.Tick())]
    host_of(Script({}), None, given=given, decided=decided).handle(m.Tick())
    assert seen == [(5, m.Tick()), (5, m.Tick()), []]
