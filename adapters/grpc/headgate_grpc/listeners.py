"""The setting ``headgate.grpc.listeners``, which says where the services listen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEY: Final = "headgate.grpc.listeners"
EXAMPLES: Final = "grpc://127.0.0.1:8085, grpcs://0.0.0.0:8085 or unix:/run/headgate/grpc.sock"
LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65_535


class ListenError(OSError):
    """A listener cannot be opened. `strerror` is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


@dataclass(frozen=True, slots=True)
class Listener:
    """A host and a port (0: any free one), or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: Path | None = None
    tls: bool = False

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"grpc{'s' if self.tls else ''}://{host}:{self.port}"


def listeners_of(texts: Sequence[str]) -> tuple[Listener, ...]:
    """Return the listeners that a setting names. A listener without a host, ``grpc://:8085``,
    listens on the loopback address only, because the API does not authenticate its clients.

    Raises:
        ValueError: a listener is wrong. The message says which, and how.
    """
    return tuple(_listener(each.strip()) for each in texts if each.strip())


def _listener(given: str) -> Listener:
    scheme, _, rest = given.partition(":")
    if scheme == "unix" and rest:
        return Listener(path=Path(rest.removeprefix("//")))
    host, colon, port = rest.removeprefix("//").rpartition(":")
    right = scheme in ("grpc", "grpcs") and rest.startswith("//") and colon and port.isascii()
    if not right or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"{given!r} is no listener; expected one like {EXAMPLES}")
    return Listener(host.strip("[]") or LOOPBACK, int(port), tls=scheme == "grpcs")
