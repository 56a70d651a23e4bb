"""Contexts: names for clusters, each with the settings to reach one, in a file of the user."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from headgate.connector.nearest import nearest
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote.remote import RemoteError

VARIABLE: Final = "HEADGATE_CONTEXTS"
"""Variable that names the file, if it is not the user's usual one."""
_NAME: Final = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster, and how it is reached. An empty text means that nothing is given."""

    url: str
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)

    def variables(self) -> dict[str, str]:
        """Return the environment variables that would have the same meaning."""
        given = {f"HEADGATE_{key.upper()}": value for key, value in asdict(self).items()}
        return {key: value for key, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Contexts:
    by_name: Mapping[str, Context] = field(default_factory=dict[str, Context])
    current: str = ""
    """Name of the current context. Empty: none is current."""

    def named(self, name: str) -> Context:
        """Return a context by name.

        Raises:
            RemoteError: there is none of that name.
        """
        found = self.by_name.get(name)
        if found is not None:
            return found
        near = nearest(name, self.by_name)
        meant = f"; did you mean {near}?" if near else ""
        there = f"there are {', '.join(sorted(self.by_name))}" if self.by_name else "there is none"
        raise RemoteError(
            f"there is no context {name}{meant}\n  next: {there}; headgate context set {name} "
            "--url ADDRESS makes it",
            EXIT_USAGE,
        )


def is_name(text: str) -> bool:
    """Return whether a context may have this name. No address is one: each has a colon."""
    return _NAME.fullmatch(text) is not None


def path() -> Path:
    """Return the path of the file, which need not exist."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser()
    folder = os.environ.get("XDG_CONFIG_HOME")
    # A relative path must be ignored. Source: XDG Base Directory Specification.
    if folder and Path(folder).is_absolute():
        return Path(folder, "headgate", "contexts.json")
    return Path("~/.config/headgate/contexts.json").expanduser()


def read() -> Contexts:
    """Return the user's contexts. There are none without a file.

    Raises:
        RemoteError: the file cannot be read, or is not what `changed` writes.
    """
    file = path()
    try:
        return _parsed(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise RemoteError(f"{file}: {error.strerror}", EXIT_USAGE) from None
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteError(
            f"{file}: not a file of contexts: {error}\n  next: mend it, or move it away and make "
            "them anew with headgate context set",
            EXIT_USAGE,
        ) from None


def _parsed(found: Any) -> Contexts:
    if not isinstance(found, dict) or not isinstance(found.get("contexts"), dict):
        raise TypeError('expected {"current": NAME, "contexts": {NAME: {"url": ADDRESS}}}')
    known = {each.name for each in fields(Context)}
    for name, given in found["contexts"].items():
        if not isinstance(given, dict) or not isinstance(given.get("url"), str):
            raise TypeError(f"{name} has no url")
        if unknown := sorted(set(given) - known):
            near = nearest(unknown[0], known)
            raise ValueError(
                f"{name} has an unknown key {unknown[0]}" + (f"; did you mean {near}?" * bool(near))
            )
        if wrong := [key for key, value in given.items() if not isinstance(value, str)]:
            raise ValueError(f"{wrong[0]} of {name} is no text")
    by_name = {name: Context(**given) for name, given in found["contexts"].items()}
    current = found.get("current") or ""
    if not isinstance(current, str):
        raise TypeError("current is no text")
    return Contexts(by_name, current)


def _written(contexts: Contexts) -> str:
    by_name = {
        name: {key: value for key, value in asdict(each).items() if value}
        for name, each in sorted(contexts.by_name.items())
    }
    found = {"current": contexts.current, "contexts": by_name}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


class Change:
    """The contexts as they are to be when the block of `changed` ends."""

    def __init__(self, contexts: Contexts) -> None:
        self.contexts = contexts


@contextlib.contextmanager
def changed() -> Iterator[Change]:
    """Yield the contexts, to be replaced in the block. Other commands wait until it ends. Only the
    user may read the file, since it may hold passwords.

    Raises:
        RemoteError: as in `read`, or if the file cannot be written.
    """
    file = path()
    try:
        # A link is kept. Its target is replaced, in its own folder, which may be on another disk.
        real = Path(os.path.realpath(file))
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(real.parent):
            change = Change(read())
            yield change
            handle, made = tempfile.mkstemp(prefix=f".{real.name}-", dir=real.parent)
            temporary = Path(made)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    out.write(_written(change.contexts))
                    out.flush()
                    os.fsync(out.fileno())
                temporary.replace(real)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise RemoteError(f"{file} cannot be written: {error.strerror}", EXIT_USAGE) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
