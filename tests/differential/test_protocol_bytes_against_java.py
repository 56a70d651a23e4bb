"""Our codecs of Connect's protocols write and read the bytes that Java writes and reads.

Both also read bytes that were cut off or damaged, with the same result. A failure names its seed:
``HEADGATE_SEED=<seed> pytest tests/differential``.
"""

import json
import os
import random
import re
from typing import Any

import pytest
from support.depth import tries
from support.java.assignors import JavaAssignors
from support.java.histories import NAMES

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.membership.codec import Assignment, AssignmentError, Metadata
from headgate.membership.codec_connect import ConnectCodec
from headgate.wire import WireError

SEED = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(10**9))
MESSAGES = tries(100, 600)
SIZES = (0, 0, 1, 2, 3, 5, 11, 12, 13, 23, 24, 25, 48, 100, 700)
CODECS = [ConnectCodec(0), ConnectCodec(1), ConnectCodec(2)]

pytestmark = pytest.mark.slow


class Messages:
    def __init__(self) -> None:
        self.chance = random.Random(SEED)
        self.sizes = list(SIZES)

    def name(self) -> str:
        name = self.chance.choice(NAMES)
        return name if self.chance.random() < 0.5 else f"{name}-{self.chance.randrange(1_000)}"

    def connectors(self) -> tuple[str, ...]:
        size = self.chance.choice(self.sizes)
        found = dict.fromkeys(self.name() + str(n) * (n > 20) for n in range(2 * size))
        names = list(found)[:size]
        if len(names) == 3:
            names[2] = names[0]
        return tuple(names)

    def tasks(self) -> tuple[TaskId, ...]:
        size = self.chance.choice(self.sizes)
        highest = self.chance.choice([3, 1_000, 2**31 - 1])
        return tuple(TaskId(self.name(), self.chance.randint(0, highest)) for _ in range(size))

    def assignment(self) -> Assignment:
        chance = self.chance
        change = MemberAssignment(self.connectors(), self.tasks(), self.connectors(), self.tasks())
        return Assignment(
            error=chance.choice(list(AssignmentError)),
            leader=self.name(),
            leader_url=chance.choice(["", "http://h:8083/", self.name()]),
            config_offset=chance.choice([-1, 0, 77, 2**40]),
            change=change,
            delay_ms=chance.choice([0, 1, 300_000, 2**31 - 1]),
        )

    def metadata(self) -> Metadata:
        if self.chance.random() < 0.2:
            return Metadata(url=self.name(), config_offset=-1)
        last = self.assignment()
        return Metadata(
            url=self.name(),
            config_offset=self.chance.choice([-1, 5, 2**40]),
            connectors=last.change.assigned_connectors,
            tasks=last.change.assigned_tasks,
            last_delay_ms=last.delay_ms,
            last=last,
        )


def fields(assignment: Assignment) -> dict[str, Any]:
    change = assignment.change
    return {
        "error": int(assignment.error),
        "leader": assignment.leader,
        "leader_url": assignment.leader_url,
        "offset": assignment.config_offset,
        "connectors": list(change.assigned_connectors),
        "tasks": [[task.connector, task.task] for task in change.assigned_tasks],
        "revoked_connectors": list(change.revoked_connectors),
        "revoked_tasks": [[task.connector, task.task] for task in change.revoked_tasks],
        "delay": assignment.delay_ms,
    }


def metadata_fields(metadata: Metadata) -> dict[str, Any]:
    last = metadata.last
    current = None if last is None else fields(last)
    return {"url": metadata.url, "offset": metadata.config_offset, "current": current}


def assert_read_alike(java: JavaAssignors, what: str, data: bytes) -> None:
    javas = java.ask("read", what=what, bytes=data.hex())
    if javas.get("error", 0) > 1 or javas.get("error", 0) < 0:
        javas["error"] = 1  # any of them is a failure
    current = javas.get("current")
    if current is not None:
        current["error"] = int(current["error"] != 0)
    where = f"HEADGATE_SEED={SEED}: {what} {data.hex()}: Java {javas}"
    try:
        if what == "assignment":
            ours = fields(CODECS[2].decode_assignment(data))
        else:
            ours = metadata_fields(CODECS[2].decode_metadata(data))
    except WireError as error:
        assert "refused" in javas, f"{where}, ours {error}"
    else:
        assert one_mark(ours) == one_mark(javas), where


def one_mark(message: dict[str, Any]) -> Any:
    """Replace each run of replacement characters by one. Java and Python put different numbers of
    them in place of bad UTF-8."""
    return json.loads(re.sub("\ufffd+", "\ufffd", json.dumps(message, ensure_ascii=False)))


def test_assignments_are_javas_bytes_and_read_as_java_reads_them(java: JavaAssignors) -> None:
    messages = Messages()
    for _ in range(MESSAGES):
        assignment = messages.assignment()
        for version, codec in enumerate(CODECS):
            data = codec.encode_assignment(assignment)
            asked = {"what": "assignment", "version": version, **fields(assignment)}
            assert data.hex() == java.ask("write", **asked)["bytes"], f"{SEED}: {assignment}"
            assert_read_alike(java, "assignment", data)


def test_metadata_is_javas_bytes_and_read_as_java_reads_it(java: JavaAssignors) -> None:
    messages = Messages()
    for _ in range(MESSAGES):
        metadata = messages.metadata()
        for version, codec in enumerate(CODECS):
            data = codec.encode_metadata(metadata)
            assert_read_alike(java, "metadata", data)
            # What was read may be written in another order, by both, where a table has a tree.
            for written in (metadata, codec.decode_metadata(data)):
                asked = {"what": "metadata", "version": version, **metadata_fields(written)}
                javas = java.ask("write", **asked)["bytes"]
                assert codec.encode_metadata(written).hex() == javas, f"{SEED}: {written}"


def test_damaged_messages_are_refused_where_java_refuses_them(java: JavaAssignors) -> None:
    messages = Messages()
    messages.sizes = [0, 1, 2, 5]
    chance = messages.chance
    for number in range(10 * MESSAGES):
        codec = CODECS[number % 3]
        what = chance.choice(["assignment", "metadata"])
        data = bytearray(
            codec.encode_assignment(messages.assignment())
            if what == "assignment"
            else codec.encode_metadata(messages.metadata())
        )
        match chance.randrange(4):
            case 0:
                del data[chance.randrange(len(data)) :]
            case 1:
                data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case _:
                data += chance.randbytes(chance.randrange(1, 9))
        assert_read_alike(java, what, bytes(data))
