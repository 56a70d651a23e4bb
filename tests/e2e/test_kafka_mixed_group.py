"""One group of Java workers and ours on a real broker, in every version of Connect's protocol.
Workers of each kind join, leave, are killed, and lead."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.depth import first
from support.java.assignors import JavaAssignors
from support.kafka.broker import Found
from support.kafka.member import ALL_PROTOCOLS, KafkaMember, LedRound, until

from headgate.assignment.model import Work
from headgate.ids import TaskId
from headgate.membership.codec import CODECS
from headgate.membership.leading import changed
from headgate.topics.config_records import encode_commit, encode_connector, encode_task
from headgate_kafka.admin.topics import prepare_internal_topics
from headgate_kafka.group.describe import DescribedGroup, GroupDescriber
from headgate_kafka.transport import open_transport
from local_kafka.java_connect import SOURCE, JavaWorker

pytestmark = pytest.mark.slow

CONNECTORS = ("one", "two", "three")
WORK: set[Work] = {work for name in CONNECTORS for work in (name, TaskId(name, 0))}
QUICKLY = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "200",
    "rebalance.timeout.ms": "20000",
    "scheduled.rebalance.max.delay.ms": "0",
}
VERSIONS: dict[tuple[str, ...], str] = {
    ALL_PROTOCOLS: "sessioned",
    ("compatible", "default"): "compatible",
    ("default",): "default",
}


class Group:
    """The group of one test, its Java worker, and the configured work."""

    def __init__(self, address: str, name: str, folder: Path) -> None:
        self.address = address
        self.name = name
        self.java = JavaWorker(
            folder / "java", {"bootstrap.servers": address, "group.id": name, **QUICKLY}
        )
        self.members: list[KafkaMember] = []
        self.describer = GroupDescriber({"bootstrap_servers": [address]})
        (folder / "in.txt").write_text("a line\n")
        self.file = folder / "in.txt"

    def configure(self) -> None:
        """Connectors with a task each, as if they had always been there."""
        properties = {**self.java.properties, "bootstrap.servers": self.address}
        prepare_internal_topics(properties, warn=lambda _line: None)
        records: list[tuple[str, bytes | None]] = []
        for name in CONNECTORS:
            config = {
                "name": name,
                "connector.class": SOURCE,
                "tasks.max": "1",
                "file": str(self.file),
                "topic": f"{self.name}-data",
            }
            task = {**config, "task.class": SOURCE.replace("Connector", "Task")}
            records.append(encode_connector(name, config))
            records.append(encode_task(TaskId(name, 0), task))
            records.append(encode_commit(name, 1))
        with contextlib.closing(open_transport(properties)) as transport:
            transport.config_log.claim(1)
            transport.config_log.append(records, privileged=True)

    def member(self, protocols: tuple[str, ...] = ALL_PROTOCOLS) -> KafkaMember:
        made = KafkaMember(
            self.address, self.name, f"connect-ours:{len(self.members)}", protocols=protocols
        )
        self.members.append(made)
        made.start()
        return made

    def until(self, done: Callable[[], bool], timeout_s: float = 30.0) -> None:
        until(done, [m for m in self.members if not m.closed], timeout_s)

    def gone(self, member: KafkaMember) -> None:
        """Let a member leave, while the others live on."""
        member.leave()
        member.close()
        self.until(lambda: not any(self.held(member)))

    def stop_java(self) -> None:
        """The members live on while it stops, which may take longer than their sessions."""
        with ThreadPoolExecutor(1) as beside:
            stopping = beside.submit(self.java.stop)
            self.until(stopping.done)
            stopping.result()

    def described(self) -> DescribedGroup:
        return self.describer.describe(self.name)

    def held(self, member: KafkaMember | None) -> set[Work]:
        """Return the work that a member, or the Java worker, holds by the coordinator's bytes."""
        group = self.described()
        found: set[Work] = set()
        for other in group.members:
            ours = [m for m in self.members if m.member.member_id == other.member_id]
            if (ours[:1] == [member] if member else not ours) and group.state == "Stable":
                codec = CODECS[group.protocol]
                told = codec.decode_metadata(other.metadata)
                change = codec.decode_assignment(other.assignment).change
                held = (
                    (change.assigned_connectors, change.assigned_tasks)
                    if group.protocol == "default"
                    else changed(told.connectors, told.tasks, change)
                )
                found |= {*held[0], *held[1]}
        return found

    def shared(self, *members: KafkaMember) -> bool:
        """Everything is with somebody, with nobody else, and everybody has some of it."""
        parts = [set(m.running) for m in members]
        java = self.held(None)
        return (
            all(m.steady for m in members)
            and all(parts)
            and bool(java)
            and not any(part & java for part in parts)
            and set().union(*parts, java) == WORK
        )

    def javas_alone(self) -> bool:
        return self.held(None) == WORK and len(self.described().members) == 1

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.describer.close()
        self.java.kill()
        self.java.rest.close()


@pytest.fixture
def group(kafka_broker: Found, kafka_name: str, tmp_path: Path) -> Iterator[Group]:
    with contextlib.closing(Group(kafka_broker.address, kafka_name, tmp_path)) as made:
        made.configure()
        yield made


@pytest.fixture
def led_by_java(group: Group) -> Group:
    """A group whose Java worker runs everything."""
    group.java.start()
    group.until(group.javas_alone)
    return group


def test_we_follow_a_java_leader_in_every_version_of_its_protocol(led_by_java: Group) -> None:
    """The group goes to the version that all share, and back when we have left."""
    group = led_by_java
    for protocols, chosen in VERSIONS.items():
        ours = group.member(protocols)
        group.until(lambda ours=ours: group.shared(ours))
        assert ours.member.protocol == chosen
        assert ours.member.leader.startswith("connect-127.0.0.1:")
        assert ours.member.leader_url == f"{group.java.url}/"
        assert not ours.led
        group.gone(ours)
        group.until(group.javas_alone)
        assert group.described().protocol == "sessioned"
    ours = group.member()
    group.until(lambda: group.shared(ours))
    group.stop_java()
    group.until(lambda: ours.steady and ours.running == WORK)
    assert ours.member.is_leader
    assert ours.member.protocol == "headgate"
    assert ours.stops == [], "what was ours went on"


@pytest.mark.exhaustive
def test_a_java_leader_takes_over_from_us_when_we_are_killed(led_by_java: Group) -> None:
    group = led_by_java
    ours = group.member()
    group.until(lambda: group.shared(ours))
    ours.close()  # says nothing to anybody
    group.until(group.javas_alone)


def test_we_take_over_from_a_java_leader_that_is_killed_and_lead_it_when_it_is_back(
    led_by_java: Group,
) -> None:
    group = led_by_java
    ours = group.member()
    group.until(lambda: group.shared(ours))
    assert not ours.member.is_leader
    for _ in range(2):  # the second time it is a follower
        ours.stops.clear()
        group.java.kill()
        group.until(lambda: ours.steady and ours.running == WORK)
        assert ours.member.is_leader
        assert ours.member.protocol == "headgate"
        assert ours.stops == [], "what was ours went on"
        group.java.launch()
        group.until(lambda: group.shared(ours))
        assert ours.member.is_leader
        assert ours.member.protocol == "sessioned"
        assert set(ours.stops) == group.held(None), "only what the Java worker was given stopped"


@pytest.mark.parametrize("protocols", first(1, VERSIONS), ids=VERSIONS.values())
def test_our_leader_gives_a_java_follower_what_javas_class_would_give(
    group: Group, java: JavaAssignors, protocols: tuple[str, ...]
) -> None:
    first, second = group.member(protocols), group.member(protocols)
    group.until(lambda: all((m.steady and m.running) for m in (first, second)))
    first.stops.clear()
    second.stops.clear()
    group.java.launch()
    group.until(lambda: bool(first.stops or second.stops))
    # What was taken from one is new in the next round, and what both give up now is lost.
    first.lose("a connection broke")
    second.lose("a connection broke")
    group.until(lambda: group.shared(first, second))
    [leader] = [m for m in (first, second) if m.member.is_leader]
    assert leader.member.protocol == VERSIONS[protocols]
    group.gone(second if leader is first else first)
    group.until(lambda: group.shared(leader))
    group.stop_java()
    group.until(lambda: leader.steady and leader.running == WORK)
    compare_with_java(java, leader)


def compare_with_java(java: JavaAssignors, leader: KafkaMember) -> None:
    """Every round that it led in one of Java's protocols, byte by byte."""
    compared = 0
    before = ""
    for led in leader.led:
        protocol = led.joined.protocol
        if protocol != before:
            java.ask("leader", leader=led.joined.leader, delay_ms_max=leader.delay_ms_max)
        before = protocol
        if protocol == "headgate":
            continue
        theirs = javas(java, led)
        decode = CODECS[protocol].decode_assignment
        for member, assignment in led.assignments.items():
            assert decode(assignment) == decode(theirs[member]), (member, led)
        assert led.assignments == theirs, led
        compared += 1
    assert compared >= 3, leader.led


def javas(java: JavaAssignors, led: LedRound) -> dict[str, bytes]:
    answer = java.ask(
        "round",
        leader=led.joined.leader,
        protocol=led.joined.protocol,
        now_ms=led.now_ms,
        generation=led.joined.generation,
        last_completed_generation=led.last_completed_generation,
        offset=led.view.config_offset,
        connectors=dict(led.view.connectors),
        inconsistent=[],
        members=[[m.member_id, m.metadata.hex()] for m in led.joined.members],
    )
    return {member: bytes.fromhex(data) for member, data in answer["assignments"].items()}
