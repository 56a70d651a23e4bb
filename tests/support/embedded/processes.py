"""Programs that disturb an embedded log from another process: ``python -m
support.embedded.processes ROLE FOLDER [ARGUMENT]``.

Most print a line when they have reached the state that the test waits for.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from headgate.ports import ProducerRecord
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.schema import FILE_NAME


def stop_inside_a_transaction(folder: str, _argument: str) -> None:
    database = Database(Path(folder) / FILE_NAME)
    with database.write() as connection:
        connection.execute("insert into config_log values(1000, 'zombie', null, 0)")
        say("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)


def stranger_inside_a_transaction(folder: str, _argument: str) -> None:
    """Hold a write transaction on the database, opened without our adapter. So this process is not
    registered as one of the cluster."""
    import apsw

    connection = apsw.Connection(str(Path(folder) / FILE_NAME))
    connection.execute("begin immediate")
    say("holding")
    sys.stdin.readline()
    connection.execute("commit")
    connection.close()


def slow_commits(folder: str, _argument: str) -> None:
    """Hold the lock nearly all the time, with a commit every 100 ms."""
    database = Database(Path(folder) / FILE_NAME)
    say("started")
    for n in range(40):
        with database.write() as connection:
            connection.execute("update topics set partitions = partitions")
            connection.execute("insert into config_log values(?, 'slow', null, 0)", (1000 + n,))
            time.sleep(0.1)


def idle(folder: str, _argument: str) -> None:
    transport = open_transport(transport_settings(folder))
    say("opened")
    sys.stdin.readline()
    transport.close()


def produce(folder: str, transactional_id: str) -> None:
    """Commit 100 records with their source offset at a time, for ever. The first number is the
    source offset in the log."""
    transport = open_transport(transport_settings(folder))
    records, _ = transport.offset_log.read(0)
    key = transactional_id.encode()
    start = max((json.loads(r.value or b"0") for r in records if r.key == key), default=0)
    producer = transport.record_log.producer("p", transactional_id, None)
    producer.init()
    say("started")
    while True:
        producer.send(
            [ProducerRecord("t", 0, key, b"%d" % n, (), 0) for n in range(start, start + 100)]
        )
        start += 100
        producer.commit([(key, b"%d" % start)])


def append(folder: str, argument: str) -> None:
    """Commit `count` transactions of `size` records each, and print the time of the slowest commit
    in ms."""
    name, count, size = argument.split(",")
    transport = open_transport(transport_settings(folder))
    producer = transport.record_log.producer(name, name, None)
    producer.init()
    slowest = 0.0
    for n in range(int(count)):
        producer.send(
            [
                ProducerRecord("t", 0, name.encode(), b"%d" % (n * int(size) + i), (), 0)
                for i in range(int(size))
            ]
        )
        transport.config_log.append([(name, b"%d" % n)], privileged=False)
        before = time.perf_counter()
        producer.commit([])
        slowest = max(slowest, time.perf_counter() - before)
    say(f"{slowest * 1000:.1f}")
    transport.close()


def say(line: str) -> None:
    print(line, flush=True)


ROLES = {
    role.__name__: role
    for role in (
        stop_inside_a_transaction,
        stranger_inside_a_transaction,
        slow_commits,
        idle,
        produce,
        append,
    )
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "")
