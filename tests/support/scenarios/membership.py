"""Commands of the scenarios in ``specs/membership``: inputs from the coordinator and the herder to
one member, and its outputs.

``member protocols=<name,...>`` makes a new worker that offers these protocols. Without this
command, it offers `headgate` alone.

``at <ms> <input> [option=value ...]`` gives one input. The lines below it are the work that the
worker runs or is still stopping: ``orders-0`` is a task, a bare name a connector. ``offset=`` is
the assignment offset to which the worker has read, and is kept for the next commands. ``config=``
is the config offset; without it, the two are equal. The inputs are:

``start``, ``tick``, ``leave``, ``released``, ``caught-up``, ``rejoin``, ``coordinator-lost``;
``joined generation=<n> protocol=<name>`` with another worker as leader (the protocol is kept), or
``joined error=<word>``;
``synced generation=<n> for=<offset> assigned=<work,...> revoked=<work,...> delay=<ms>``, or
``error=mismatch`` in place of the work; ``beat generation=<n> sent=<ms> error=<word>``.
"""

from collections.abc import Iterator

from support.scenarios.runner import Block, World

from headgate.assignment.model import MemberAssignment, Work
from headgate.ids import TaskId
from headgate.membership import member_messages as mm
from headgate.membership.codec import CODECS, Assignment, AssignmentError
from headgate.membership.member import Member
from headgate.membership.messages import (
    GroupError,
    Heartbeat,
    HeartbeatAnswered,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    SyncedGroup,
    SyncGroup,
)
from headgate.membership.protocols import HEADGATE

ME = "me-1"


class MembershipWorld(World):
    def __init__(self) -> None:
        self.member = Member(mm.MemberSettings("connect", "me", "me:1"))
        self.offset = 0
        self.ahead = 0
        self.protocol = HEADGATE

    def do_member(self, block: Block) -> Iterator[str]:
        protocols = tuple(block.options["protocols"].split(","))
        self.member = Member(mm.MemberSettings("connect", "me", "me:1", protocols=protocols))
        yield from ()

    def do_at(self, block: Block) -> Iterator[str]:
        now_ms, what = int(block.words[0]), block.words[1]
        self.offset = int(block.options.get("offset", self.offset))
        if "config" in block.options:
            self.ahead = int(block.options["config"]) - self.offset
        works = [parse_work(line) for line in block.input]
        view = mm.WorkView(
            self.offset,
            self.offset + self.ahead,
            {},
            tuple(work for work in works if isinstance(work, str)),
            tuple(work for work in works if isinstance(work, TaskId)),
        )
        outputs = self.member.handle(now_ms, self._input(what, block.options), view)
        yield from map(show, outputs)
        yield f"({self.member.state}: {'; '.join(self.member.pending) or 'settled'})"

    def _input(self, what: str, options: dict[str, str]) -> mm.MemberInput:
        generation = int(options.get("generation", -1))
        error = GroupError(options["error"]) if options.get("error", "").isupper() else None
        match what:
            case "joined" if error is not None:
                return JoinedGroup("connect", ME, -1, "", "", error=error)
            case "joined":
                self.protocol = options.get("protocol", self.protocol)
                return JoinedGroup("connect", ME, generation, self.protocol, "other-1")
            case "synced":
                return synced(generation, self.protocol, options, error)
            case "beat":
                sent_ms = int(options["sent"])
                return HeartbeatAnswered("connect", ME, generation, error, sent_ms)
            case _:
                return PLAIN[what]


PLAIN: dict[str, mm.MemberInput] = {
    "start": mm.Start(),
    "tick": mm.Tick(),
    "leave": mm.Leave(),
    "released": mm.WorkReleased(),
    "caught-up": mm.CaughtUp(),
    "not-caught-up": mm.CaughtUp("timed out"),
    "rejoin": mm.RejoinRequested("task configs of orders were committed"),
    "coordinator-lost": mm.CoordinatorLost("no answer"),
}


def synced(
    generation: int, protocol: str, options: dict[str, str], error: GroupError | None
) -> SyncedGroup:
    if error is not None:
        return SyncedGroup("connect", ME, generation, error=error)
    mismatch = options.get("error") == "mismatch"
    assigned, revoked = (parse_works(options.get(name, "")) for name in ("assigned", "revoked"))
    assignment = Assignment(
        AssignmentError.CONFIG_MISMATCH if mismatch else AssignmentError.NONE,
        "other-1",
        "other:1",
        int(options["for"]),
        MemberAssignment(
            tuple(work for work in assigned if isinstance(work, str)),
            tuple(work for work in assigned if isinstance(work, TaskId)),
            tuple(work for work in revoked if isinstance(work, str)),
            tuple(work for work in revoked if isinstance(work, TaskId)),
        ),
        int(options.get("delay", 0)),
    )
    data = CODECS[protocol].encode_assignment(assignment)
    return SyncedGroup("connect", ME, generation, data)


def parse_works(text: str) -> list[Work]:
    return [parse_work(word) for word in text.split(",") if word]


def parse_work(text: str) -> Work:
    return TaskId.parse(text) if "-" in text else text


def show(output: mm.MemberOutput) -> str:
    match output:
        case JoinGroup():
            told = {name: CODECS[name].decode_metadata(data) for name, data in output.protocols}
            first, offsets = next(iter(told.values())), [t.config_offset for t in told.values()]
            read = "/".join(map(str, dict.fromkeys(offsets)))
            offered = f", offering {' '.join(told)}" if len(told) > 1 else ""
            return (
                f"join as {output.member_id or 'a new member'}, read to {read}, "
                f"holding {words(first.connectors, first.tasks)}{offered}"
            )
        case SyncGroup():
            return f"sync generation {output.generation}"
        case Heartbeat():
            return f"heartbeat for generation {output.generation}"
        case LeaveGroup():
            return f"leave as {output.member_id}"
        case mm.Assigned():
            failed = ", failed" if output.failed else ""
            return f"assigned {words(output.connectors, output.tasks)}{failed}"
        case mm.Revoked():
            return f"stop {words(output.connectors, output.tasks)}"
        case mm.StopEverything():
            return f"stop everything: {output.reason}"
        case mm.CatchUp():
            return f"read the config topic to {output.offset}"
        case mm.StartAllowed():
            return "start what is assigned"


def words(connectors: tuple[str, ...], tasks: tuple[TaskId, ...]) -> str:
    return " ".join([*connectors, *map(str, tasks)]) or "nothing"


WORLDS = {"membership": MembershipWorld}
