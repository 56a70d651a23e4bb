"""`headgate assign` computes the rounds of Apache's assignors, for random histories given as its
input lines.

A failure names its seed: ``HEADGATE_SEED=<seed> pytest tests/differential``.
"""

import json
import os
import random
from dataclasses import replace
from typing import Any

import pytest
from support.depth import tries
from support.java.assignors import JavaAssignors
from support.java.histories import History

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId
from headgate.membership.codec import CODECS
from headgate_runtime.command.assign import assign_lines

ONE = os.environ.get("HEADGATE_SEED")
FIRST = int(ONE) if ONE else random.SystemRandom().randrange(10**9)
HISTORIES = 1 if ONE else tries(5, 20)
ROUNDS = 30
KINDS = ("connectors", "tasks")

pytestmark = pytest.mark.slow


class Lines(History):
    """Notes its rounds as lines, and what Java's assignors gave."""

    def __init__(self, java: JavaAssignors, seed: int) -> None:
        super().__init__(java, seed, ROUNDS)
        self.mixed = True  # what the members hold reaches Java in the order of the lines
        self.size = min(self.size, 15)
        self.lines = {"connect": [self.reset()], "eager": [self.reset()]}
        self.answers: dict[str, list[Any]] = {"connect": [], "eager": []}

    def reset(self) -> str:
        return json.dumps({"reset": True, "max_delay_ms": self.delay_ms_max})

    def join(self) -> None:
        before = set(self.workers)
        super().join()
        # Ids of processes that are gone do not come again.
        for member_id in set(self.workers) - before:
            worker = self.workers.pop(member_id)
            self.workers[f"{member_id}.{self.generation}"] = worker
            self.java.ask(
                "leader", leader=f"{member_id}.{self.generation}", delay_ms_max=self.delay_ms_max
            )

    def javas(self, protocol: str) -> dict[str, Any]:
        answer = super().javas(protocol)
        policy = "eager" if protocol == "default" else "connect"
        self.lines[policy].append(json.dumps(self.line(), ensure_ascii=False))
        codec = CODECS[protocol]
        self.answers[policy].append(
            {
                member_id: codec.decode_assignment(bytes.fromhex(data))
                for member_id, data in answer["assignments"].items()
            }
        )
        return answer

    def line(self) -> dict[str, Any]:
        return {
            "now_ms": self.now_ms,
            "config": {
                "offset": self.offset,
                "connectors": self.connectors,
                "inconsistent": sorted(self.inconsistent & self.connectors.keys()),
            },
            "members": {
                member_id: {
                    "offset": worker.offset,
                    "connectors": [work for work in worker.held if isinstance(work, str)],
                    "tasks": [str(work) for work in worker.held if isinstance(work, TaskId)],
                }
                for member_id, worker in self.workers.items()
            },
            "leader": self.leader,
            "generation": self.generation,
            "last_completed_generation": self.workers[self.leader].completed,
        }


@pytest.mark.parametrize("policy", ["connect", "eager"])
def test_lines_are_answered_as_by_java(java: JavaAssignors, policy: str) -> None:
    """Assignments are in the order of Java's bytes. There, assigned connectors are in the order of
    a hash table."""
    for seed in range(FIRST, FIRST + HISTORIES):
        history = Lines(java, seed)
        history.run()
        ok, *answers = [json.loads(line) for line in assign_lines(policy, history.lines[policy])]
        assert ok == {"ok": True}
        assert len(answers) == len(history.answers[policy])
        codec = CODECS["default" if policy == "eager" else history.protocol]
        for answer, javas in zip(answers, history.answers[policy], strict=True):
            assert answer["members"].keys() == javas.keys()
            for member_id, given in javas.items():
                ours = answer["members"][member_id]
                assert (ours["delay"], ours["error"]) == (given.delay_ms, given.error), seed
                found = replace(given, change=change(ours))
                assert codec.encode_assignment(found) == codec.encode_assignment(given), (
                    f"HEADGATE_SEED={seed}: {member_id!r} is given by us\n{found.change}\n"
                    f"by Java\n{given.change}"
                )


def change(member: dict[str, Any]) -> MemberAssignment:
    works = (member[what][kind] for what in ("assigned", "revoked") for kind in KINDS)
    connectors, tasks, revoked_connectors, revoked_tasks = works
    return MemberAssignment(
        tuple(connectors),
        tuple(map(TaskId.parse, tasks)),
        tuple(revoked_connectors),
        tuple(map(TaskId.parse, revoked_tasks)),
    )
