"""The assignors and the protocol bytes of Apache's connect-runtime, in a process that answers.

What may be asked, by name (bytes travel as hexadecimal digits, tasks as ``[connector, number]``):

``leader``: a new worker leads in future rounds under this member id. leader, delay_ms_max
``round``: what its assignor gives. leader, protocol, now_ms, generation, last_completed_generation,
offset, connectors (task count by name), inconsistent, members (``[id, metadata]`` in join order).
With collect_first its garbage is collected before. Answers with assignments (bytes by member),
cpu_ns of its process, thread_cpu_ns, and, unless the protocol is `default`, the assignor's state:
its fields by name
``write``: bytes. what: assignment or metadata; version
``read``: what Java makes of bytes, or ``refused``. what, bytes
``backoff``: waits. delay_ms_max, attempts
``version``: java
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from headgate.java import hash as java_hash

PROGRAM: Final = "ConnectAssignors"
"""In tests/java."""


class JavaAssignors:
    """Of `process`, which runs `PROGRAM`. Not to be shared by threads."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None and answers is not None
        to.write(json.dumps({"do": do, **question}, ensure_ascii=False) + "\n")
        to.flush()
        line = answers.readline()
        assert line, f"Java ended with {self._process.wait()} at {do} {str(question)[:500]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@pytest.fixture(scope="session")
def java(java_program: Callable[..., "subprocess.Popen[str]"]) -> Iterator[JavaAssignors]:
    """One Java process for all comparisons."""
    process = JavaAssignors(java_program(PROGRAM))
    with pytest.MonkeyPatch.context() as patch:
        if process.ask("version")["java"] >= 19:
            # Its sets have another size: see java_hash.
            patch.setattr(java_hash, "_capacity_made", java_hash._capacity_grown)
        yield process
