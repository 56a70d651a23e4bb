"""Several threads of one process use the log, and a reboot ends what its processes held."""

import threading
import time
from pathlib import Path

import apsw
import pytest
from support.embedded.worlds import EmbeddedWorld
from support.group.member import GROUP, HandMember, join_all

from headgate.membership.messages import JoinedGroup
from headgate.ports import MembershipEndedError, ProducerRecord, TransportError
from headgate_embedded import open_reader, open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.schema import FILE_NAME


def reboot(folder: Path) -> None:
    """Make the stored data look as if it were from another boot."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    connection.execute("update groups set boot = 'another'")
    connection.close()


def test_reboot_ends_memberships_and_keeps_the_generation(tmp_path: Path) -> None:
    world = EmbeddedWorld(tmp_path)
    one = HandMember(world, world.connect(), "one")
    join_all(world, one)
    world.connect().config_log.claim(one.generation)
    reader = open_reader(tmp_path / "data")
    described = reader.describe_group(GROUP)
    assert (described.members, described.state) == ((one.member_id,), "stable")
    reboot(tmp_path / "data")
    described = reader.describe_group(GROUP)
    assert (described.members, described.state) == ((), "empty")
    reader.close()
    log = world.connect().record_log
    with pytest.raises(MembershipEndedError):
        log.producer("c", "g-c-0", (GROUP, one.member_id, one.generation)).init()
    two = HandMember(world, world.connect(), "two")
    join_all(world, two)
    assert two.generation > one.generation
    # Or no leader could ever write again.
    world.connect().config_log.claim(two.generation)
    world.close()


def test_member_that_was_removed_leaves_no_row(tmp_path: Path) -> None:
    world = EmbeddedWorld(tmp_path)
    stays = HandMember(world, world.connect(), "stays")
    join_all(world, stays)
    for n in range(3):
        leaver = HandMember(world, world.connect(), f"leaver-{n}")
        join_all(world, leaver, stays)
        leaver.leave()
        assert not [r for r in leaver.receive() if isinstance(r, JoinedGroup)]
    connection = apsw.Connection(str(tmp_path / "data" / FILE_NAME))
    rows = connection.execute("select member_id from mailboxes").fetchall()
    assert rows == [(stays.member_id,)]
    connection.close()
    world.close()


def test_threads_share_a_transport(tmp_path: Path) -> None:
    transport = open_transport(transport_settings(tmp_path))
    transport.record_log.create_topic("t", 1)

    def write(name: str) -> None:
        producer = transport.record_log.producer(name, name, None)
        producer.init()
        for n in range(50):
            producer.send([ProducerRecord("t", 0, name.encode(), b"%d" % n)])
            producer.commit([])
            transport.config_log.append([(name, b"")], privileged=False)

    threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads) or transport.config_log.read(seen)[0]:
        _, seen = transport.config_log.read(seen)
    assert seen == transport.config_log.end() == 200
    found = transport.record_log.read("t", 0, 0, 1_000, 1_000)
    for n in range(4):
        mine = [r.value for r in found if r.key == b"w%d" % n]
        assert mine == [b"%d" % i for i in range(50)]
    transport.close()


def test_close_ends_what_other_threads_do(tmp_path: Path) -> None:
    transport = open_transport(transport_settings(tmp_path))
    transport.config_log.append([(f"k{n}", b"v") for n in range(100)], privileged=False)
    ended: list[TransportError] = []
    begun = threading.Barrier(4)

    def read() -> None:
        begun.wait()
        try:
            while True:
                transport.config_log.read(0)
                transport.status_log.append([(b"k", b"v")])
        except TransportError as error:
            ended.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    transport.close()
    for thread in threads:
        thread.join(10)
    assert len(ended) == 3


def test_of_threads_that_want_to_write_one_waits_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that waits for SQLite's lock polls it, and each task of a process has a
    connection."""
    polls: list[int] = []

    def pause(_: object, __: object) -> None:
        polls.append(threading.get_ident())
        time.sleep(0.001)

    monkeypatch.setattr("headgate_embedded.database._LockWait.pause", pause)
    logs = [Database(tmp_path / FILE_NAME) for _ in range(4)]
    written: list[int] = []

    def write(log: Database) -> None:
        for _ in range(20):
            with log.write(synced=False):
                time.sleep(0.001)
                written.append(1)

    threads = [threading.Thread(target=write, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for log in logs:
        log.close()
    assert (len(written), polls) == (80, [])
