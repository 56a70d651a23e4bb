"""The group coordinator on the embedded log. The core's machine is loaded, called and stored in one
transaction.

No single process is the coordinator. Each process that sends a request or fetches responses also
ends the sessions and rounds that have timed out. The state belongs to one boot of the machine: its
times are monotonic, and after a reboot no member can be alive.
"""

import json
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import apsw

from headgate import wire
from headgate.membership.coordinator import Coordinator
from headgate.membership.messages import GroupRequest, GroupResponse, JoinGroup
from headgate.ports import Clock
from headgate_embedded.database import Database, Watch
from headgate_embedded.machine import boot_id

RESPONSES_KEPT_MS = 600_000
"""How long responses are kept that no worker fetches. Their worker is gone."""


class Coordinators:
    """The coordinator of every group on the embedded log."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.clock = clock
        self._database = database
        self._boot = boot_id()

    def handle(self, request: GroupRequest, mailbox: str) -> None:
        """Handle a request of a member. Responses to that member go to `mailbox` from now on."""
        new_id = uuid.uuid4().hex
        with self._database.write(synced=False) as connection:
            now_ms = self.clock.now_ms()
            machine = self._load(connection, request.group)
            member_id = request.member_id
            if isinstance(request, JoinGroup) and not member_id:
                member_id = f"{request.client_id}-{new_id}"
            connection.execute(
                "replace into mailboxes(grp, member_id, mailbox) values(?, ?, ?)",
                (request.group, member_id, mailbox),
            )
            responses = machine.handle(now_ms, request, new_id)
            self._store(connection, request.group, machine, responses, member_id)

    def tick(self) -> None:
        """End the sessions and rounds that have timed out, in all groups."""
        with self._database.write(synced=False) as connection:
            for group in self._due(connection):
                self._tick(connection, group)

    def due(self, connection: apsw.Connection) -> int | None:
        """Return the monotonic time, in ms, at which the next session or round times out. None:
        there is none."""
        row = connection.execute(
            "select min(deadline_ms) from groups where boot = ?", (self._boot,)
        ).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def is_member(self, connection: apsw.Connection, group: str, member_id: str) -> bool:
        """Return whether the group has a member of this id whose session has not timed out. Inside
        a write transaction."""
        return self._tick(connection, group).is_member(group, member_id)

    def check(
        self, connection: apsw.Connection, group: str, member_id: str, generation: int
    ) -> str | None:
        """Return why the member may not act under `generation`. None: it may. Inside a write
        transaction."""
        error = self._tick(connection, group).check(group, member_id, generation)
        return None if error is None else error.value

    def look(self, group: str) -> Coordinator:
        """Return the machine as it is stored, for display."""
        with self._database.read() as connection:
            return self._load(connection, group)

    def _due(self, connection: apsw.Connection) -> list[str]:
        rows = connection.execute(
            "select name from groups where boot = ? and deadline_ms <= ? order by name",
            (self._boot, self.clock.now_ms()),
        )
        return [row[0] for row in rows]

    def _tick(self, connection: apsw.Connection, group: str) -> Coordinator:
        machine = self._load(connection, group)
        deadline = machine.next_deadline_ms
        now_ms = self.clock.now_ms()
        if deadline is not None and deadline <= now_ms:
            self._store(connection, group, machine, machine.tick(now_ms))
        return machine

    def _load(self, connection: apsw.Connection, group: str) -> Coordinator:
        row: Any = connection.execute(
            "select state, boot from groups where name = ?", (group,)
        ).fetchone()
        if row is None:
            return Coordinator()
        machine = Coordinator.from_plain(json.loads(row[0]))
        if row[1] != self._boot:
            # The generation is kept, because the config log was claimed under earlier ones.
            machine.remove_members()
        return machine

    def _store(
        self,
        connection: apsw.Connection,
        group: str,
        machine: Coordinator,
        responses: Sequence[GroupResponse],
        asker: str = "",
    ) -> None:
        """Store the machine and its responses.

        Args:
            asker: member id that gets the responses without one. The refusal of a first join has
                no member id.
        """
        state = json.dumps(machine.to_plain(), separators=(",", ":")).encode()
        connection.execute(
            "replace into groups(name, boot, deadline_ms, state) values(?, ?, ?, ?)",
            (group, self._boot, machine.next_deadline_ms, state),
        )
        now_ms = self.clock.now_ms()
        for response in responses:
            connection.execute(
                "insert into responses(mailbox, body, made_ms) select mailbox, ?, ? "
                "from mailboxes where grp = ? and member_id = ?",
                (wire.dumps(response), now_ms, response.group, response.member_id or asker),
            )
        connection.execute(
            "delete from mailboxes where grp = ? "
            "and member_id not in (select value from json_each(?))",
            (group, json.dumps(machine.members(group))),
        )


class EmbeddedGroup:
    """The group port of one worker or consumer, with a mailbox of its own."""

    def __init__(self, database: Database, coordinators: Coordinators) -> None:
        self._database = database
        self._coordinators = coordinators
        self._watch = Watch(database)
        self._mutex = threading.Lock()
        self._mailbox = uuid.uuid4().hex
        self._clock = coordinators.clock
        self._deadline_ms: int | None = None
        self._waiting = False

    def send(self, request: GroupRequest) -> None:
        self._coordinators.handle(request, self._mailbox)

    def receive(self) -> Sequence[GroupResponse]:
        """Return the responses in the mailbox, after ending what has timed out. It takes some
        microseconds while nothing has changed."""
        with self._mutex:
            changed = self._watch.changed()
            with self._watch.looking():
                if changed:
                    self._look()
                if self.overdue():
                    self._coordinators.tick()
                    self._look()
                return self._take() if self._waiting else []

    def overdue(self) -> bool:
        """Return whether a session or round has timed out, which the next `receive` ends."""
        deadline_ms = self._deadline_ms
        return deadline_ms is not None and deadline_ms <= self._clock.now_ms()

    def close(self) -> None:
        self._watch.close()

    def _look(self) -> None:
        with self._database.read() as connection:
            self._deadline_ms = self._coordinators.due(connection)
            found = connection.execute(
                "select 1 from responses where mailbox = ? limit 1", (self._mailbox,)
            )
            self._waiting = bool(found.fetchall())

    def _take(self) -> Sequence[GroupResponse]:
        self._waiting = False
        now_ms = self._clock.now_ms()
        with self._database.write(synced=False) as connection:
            rows: list[Any] = connection.execute(
                "select body from responses where mailbox = ? order by id", (self._mailbox,)
            ).fetchall()
            connection.execute(
                "delete from responses where mailbox = ? or made_ms < ? or made_ms > ?",
                # A response from the future was made before a reboot.
                (self._mailbox, now_ms - RESPONSES_KEPT_MS, now_ms),
            )
        return [wire.loads(GroupResponse, row[0]) for row in rows]
