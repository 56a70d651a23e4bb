"""What stands behind the services: a worker, or all workers of a `headgate up`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from headgate.herder.messages import Call, Result

T = TypeVar("T")
Json: TypeAlias = Mapping[str, Any]
Touched: TypeAlias = Callable[[Iterable[str]], None]
"""Told, from any thread, the names of connectors that may have changed."""


class TooManyError(Exception):
    """Too many calls wait for an answer. Nothing was asked."""


class Plugins(Protocol):
    """Plugins as Connect's REST API shows them. The methods run connectors' own code."""

    def listed(self, *, connectors_only: bool) -> Sequence[Json]:
        """``{"class", "type", "version"}`` of each, by type and class."""
        ...

    def config(self, plugin: str) -> Sequence[Json]:
        """Definitions of the plugin's keys. Raises LookupError: there is no such plugin;
        ValueError: it has no config."""
        ...

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Json:
        """Connect's ConfigInfos. Raises ValueError: no class, another class, or one that is not
        installed."""
        ...

    def notes(self, config: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
        """Keys of a config, each with what is to be told of it though it is no error. Raises
        ValueError: its class is not installed."""
        ...


class Loggers(Protocol):
    """Levels of the loggers of this process, as ``{"level", "last_modified"}``."""

    def levels(self) -> Mapping[str, Json]: ...

    def level(self, logger: str) -> Json | None: ...

    def is_level(self, level: str) -> bool: ...

    def set_level(self, logger: str, level: str) -> Sequence[str]: ...


class Backend(Protocol):
    """The coroutines run on the server's loop; `watch` is called there, too."""

    @property
    def plugins(self) -> Plugins: ...

    @property
    def loggers(self) -> Loggers: ...

    @property
    def ready(self) -> bool:
        """Whether calls are answered; loggers are served before."""
        ...

    async def ask(self, call: Call, timeout_ms: int, origin: str = "") -> Result:
        """The herder's answer. No answer in time is a `Failure` of kind TIMEOUT.

        Raises:
            TooManyError: nothing was asked.
        """
        ...

    async def on_thread(self, work: Callable[[], T], timeout_ms: int) -> T:
        """What `work` returns or raises, on a thread that may hang.

        Raises:
            TimeoutError: it has not ended in time. It is left to itself.
        """
        ...

    async def cluster(self, timeout_ms: int) -> Json:
        """``{"version", "commit", "kafka_cluster_id", "group_id", "workers"}``; each worker is
        ``{"worker_id", "url", "view"}``, whose view is a `WorkerView` as plain data, or None; then
        "unknown" says why."""
        ...

    async def group(self, timeout_ms: int) -> Json:
        """As `cluster`, with all workers that are known. One that does not tell has a view of None
        and "unknown", which says why; and "member", "leader", "generation" and "counts" of
        connectors and tasks. "others_unknown" says why others are not told."""
        ...

    def watch(self, touched: Touched | None) -> None:
        """Tell `touched` of every connector that changes from now on; None: no longer."""
        ...
