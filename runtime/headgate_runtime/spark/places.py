"""Which Spark the workers of one folder share, and which workers use it: files and locks, no
processes.

A Spark has a place: the folder itself, or one below it if that is taken. A process that decides
anything holds the door. Locks are the kernel's, so they end with the process that held them.

- ``door``: held for a moment, to join, to leave, to start a keeper, and to close.
- ``shared/keeper``: held by the process that keeps the Spark of the place, as long as it is alive.
- ``shared/users/*``: one file per worker, held as long as the worker is alive. It says how many
  slots the worker asks for, and how long the Spark is to wait for another worker after it.
- ``shared/spark.json``: where Spark listens, its token, and the settings that were asked for.
- ``shared/state.json``: why no worker may join any more, if so.
- ``shared/up``: exists if Spark was up once.
- ``shared/notes``: messages of the keeper, which each worker logs.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate_runtime.config.private_files import make_private_folder, private_opener, write_private

CLOSED: Final = "closed"
FAILED: Final = "failed"
GIVEN_UP: Final = "given up"
PLACES_MAX: Final = 100
_DOOR: Final = "door"

Spawn = Callable[["Place", int], None]
"""Function that starts the keeper of a place. It gets the descriptor of the lock that shows that
the keeper is alive.

Raises:
    OSError: no process could be started.
"""


@dataclass(frozen=True, slots=True)
class Shared:
    """A Spark as the first worker has asked for it."""

    asked: Mapping[str, Any]
    """Settings that must be equal for every worker that joins, as JSON has them."""
    made: Mapping[str, Any]
    """What the first worker has chosen for all: ports and the token."""
    slots: int | None
    """Number of slots for all workers. None: the cluster's operator sets it."""


@dataclass(frozen=True, slots=True)
class State:
    """Why no worker may join. Without a `kind`, workers may."""

    kind: str = ""
    text: str = ""
    code: int = 0
    """Exit code of workers that cannot go on."""


@dataclass(slots=True)
class User:
    """A worker that uses the Spark of a place. Its lock ends with its process."""

    slots: int
    idle_s: float
    path: Path
    descriptor: int | None

    def close(self) -> None:
        """Stop using the Spark. Called with the door held, so that the keeper sees a true state."""
        if self.descriptor is not None:
            self.path.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = None


@dataclass(frozen=True, slots=True)
class Place:
    """One Spark of a folder. Its answers stay true as long as the door is held."""

    path: Path

    @property
    def notes(self) -> Path:
        return self._folder / "notes"

    @property
    def keeper_log(self) -> Path:
        """File with the keeper's own output, if it crashes."""
        return self._folder / "keeper.log"

    def was_used(self) -> bool:
        return self._folder.is_dir()

    def is_kept(self) -> bool:
        """Return whether its keeper is alive."""
        return _is_locked(self._folder / "keeper")

    def shared(self) -> Shared | None:
        """Return what was asked for. None: nothing was ever started here, or not completely."""
        found = _read_json(self._folder / "spark.json")
        try:
            return Shared(found["asked"], found["made"], found["slots"])
        except KeyError:
            return None

    def state(self) -> State:
        found = _read_json(self._folder / "state.json")
        return State(**found) if found else State()

    def tell_state(self, state: State) -> None:
        """Write why no worker may join any more. Called by the keeper."""
        text = json.dumps({"kind": state.kind, "text": state.text, "code": state.code})
        _replace(self._folder / "state.json", text)

    def was_up(self) -> bool:
        """Return whether Spark was up once, under any keeper."""
        return (self._folder / "up").exists()

    def tell_up(self) -> None:
        """Note that Spark is up. Called by the keeper."""
        (self._folder / "up").touch(0o600)

    def users(self) -> list[tuple[int, float]]:
        """Return slots and idle seconds of each living worker. Files of dead workers are
        removed."""
        found = []
        for path in sorted((self._folder / "users").glob("*.json")):
            if not _is_locked(path):
                path.unlink(missing_ok=True)
                continue
            said = _read_json(path)
            found.append((int(said.get("slots", 0)), float(said.get("idle_s", 0.0))))
        return found

    def touch(self) -> None:
        """Renew the age of all files: cleaners of temporary files go by it."""
        for path in (self.path, self._folder, *self._folder.rglob("*")):
            with contextlib.suppress(OSError):
                os.utime(path)

    def begin(self, shared: Shared) -> None:
        """Prepare the place for this Spark, when no worker uses it."""
        make_private_folder(self.path)
        make_private_folder(self._folder)
        make_private_folder(self._folder / "users")
        for name in ("state.json", "up", "notes", "keeper.log"):
            (self._folder / name).unlink(missing_ok=True)
        text = json.dumps({"asked": shared.asked, "made": shared.made, "slots": shared.slots})
        _replace(self._folder / "spark.json", text)

    def use(self, slots: int, idle_s: float) -> User:
        name = f"{os.getpid()}-{secrets.token_hex(4)}.json"
        path = self._folder / "users" / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps({"slots": slots, "idle_s": idle_s}).encode())
        return User(slots, idle_s, path, descriptor)

    def keep(self, spawn: Spawn) -> None:
        """Start a keeper, which has the lock from its first moment on. Raises as `spawn` does."""
        descriptor = os.open(self._folder / "keeper", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            spawn(self, descriptor)
        finally:
            os.close(descriptor)

    @property
    def _folder(self) -> Path:
        return self.path / "shared"


@dataclass(slots=True)
class Joined:
    """A worker's share in a Spark."""

    place: Place
    shared: Shared
    user: User
    started: bool
    """Whether this worker has started the Spark."""
    others: dict[str, str] = field(default_factory=dict)
    """Places of Sparks that were not joined, with the reasons."""


class Places:
    """All Sparks of one folder on this machine.

    Args:
        spawn: starts keepers.
    """

    def __init__(self, folder: Path, spawn: Spawn) -> None:
        self._folder = folder
        self._spawn = spawn

    @contextlib.contextmanager
    def door(self) -> Iterator[None]:
        """Hold the door. Raises OSError: the folder cannot be written, or is gone."""
        with open(self._folder / _DOOR, "ab", opener=private_opener) as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            yield

    def join(
        self, asked: Mapping[str, Any], slots: int, idle_s: float, make: Callable[[], Shared]
    ) -> Joined:
        """Use the first Spark that matches and has room, or start one.

        Args:
            make: returns the settings of a new one.

        Raises:
            OSError: the folder cannot be written, or no process can be started.
        """
        free: Place | None = None
        others: dict[str, str] = {}
        with self.door():
            for place in self._places():
                kept = place.is_kept()
                if not kept and not place.users():
                    free = free or place
                    continue
                shared = place.shared()
                why = _refusal(place, shared, asked, slots)
                if shared is None or why:
                    others[str(place.path)] = why
                    continue
                user = place.use(slots, idle_s)
                if not kept:  # its users have not noticed yet that its keeper has died
                    self._keep(place, user)
                return Joined(place, shared, user, False, others)
            if free is None:
                raise OSError(f"{self._folder} has {PLACES_MAX} Sparks already")
            shared = make()
            free.begin(shared)
            user = free.use(slots, idle_s)
            self._keep(free, user)
            return Joined(free, shared, user, True, others)

    def revive(self, joined: Joined) -> bool:
        """Start a keeper if there is none and there should be one. Raises `OSError` as `join`
        does."""
        with self.door():
            if joined.place.is_kept() or joined.place.state().kind:
                return False
            joined.place.keep(self._spawn)
            return True

    def leave(self, joined: Joined) -> None:
        with contextlib.suppress(OSError), self.door():
            joined.user.close()
        joined.user.close()  # the folder is gone

    def close_if_unused(self, place: Place) -> bool:
        """Let no worker join from now on, if none uses the place. Return whether it is closed.
        Called by the keeper."""
        with self.door():
            if place.users():
                return False
            place.tell_state(State(CLOSED, "it ends, since no worker uses it"))
            return True

    def touch(self, place: Place) -> None:
        """Renew the age of the place's files, and of those that all places share."""
        for path in (self._folder, self._folder / _DOOR):
            with contextlib.suppress(OSError):
                os.utime(path)
        place.touch()

    def users(self, place: Place) -> list[tuple[int, float]]:
        """Return `Place.users`, for a caller that does not hold the door. Raises `OSError`: the
        folder is gone."""
        with self.door():
            return place.users()

    def _keep(self, place: Place, user: User) -> None:
        try:
            place.keep(self._spawn)
        except OSError:
            user.close()
            raise

    def _places(self) -> Iterator[Place]:
        """Yield the places that were ever used, and one more. The first free one is taken."""
        for number in range(1, PLACES_MAX + 1):
            place = Place(self._folder if number == 1 else self._folder / str(number))
            yield place
            if not place.was_used():
                return


def _refusal(place: Place, shared: Shared | None, asked: Mapping[str, Any], slots: int) -> str:
    """Return why a running Spark is not joined. Empty: it is."""
    if shared is None:
        return "what it was asked to be cannot be read"
    if state := place.state().kind:
        return "it ends" if state == CLOSED else f"it has {state}"
    if differing := differences(shared.asked, asked):
        return f"it differs in {', '.join(differing)}"
    used = sum(each for each, _ in place.users())
    if shared.slots is not None and used + slots > shared.slots:
        return f"{used} of its {shared.slots} slots are taken, and {slots} are asked for"
    return ""


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of what differs. Within a mapping, these are the names there."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += [f"{name} {each}" for each in differences(mine, theirs)]
        elif mine != theirs:
            found.append(name)
    return found


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. Only with the door held: the check itself takes the
    lock for a moment."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object. Empty if the file does not exist, or is no JSON object."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _replace(path: Path, text: str) -> None:
    """Replace a file. Others see it as it was, or whole."""
    made = path.with_suffix(".new")
    write_private(made, text)
    made.replace(path)
