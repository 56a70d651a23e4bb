"""The interface between the services and what answers them: a worker, or all workers of a
`headgate up`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from headgate.herder.messages import Call, Result

T = TypeVar("T")
Json: TypeAlias = Mapping[str, Any]
Touched: TypeAlias = Callable[[Iterable[str]], None]
"""A callback that is given, from any thread, the names of connectors that may have changed."""


class TooManyError(Exception):
    """Too many calls wait for an answer, so this call was not passed to the herder."""


class Plugins(Protocol):
    """Plugins as Connect's REST API shows them. The methods run connectors' own code."""

    def listed(self, *, connectors_only: bool) -> Sequence[Json]:
        """Return ``{"class", "type", "version"}`` of each plugin, sorted by type and class."""
        ...

    def config(self, plugin: str) -> Sequence[Json]:
        """Return the definitions of the plugin's keys.

        Raises:
            LookupError: there is no such plugin.
            ValueError: the plugin has no config.
        """
        ...

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Json:
        """Return Connect's ConfigInfos.

        Raises:
            ValueError: the config names no class, another class than `plugin`, or one that is not
                installed.
        """
        ...

    def notes(self, config: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
        """Return (key, remark) for keys of a config about which there is something to say that is
        no error.

        Raises:
            ValueError: the config's class is not installed.
        """
        ...


class Loggers(Protocol):
    """Levels of the loggers of this process, as ``{"level", "last_modified"}``."""

    def levels(self) -> Mapping[str, Json]: ...

    def level(self, logger: str) -> Json | None: ...

    def is_level(self, level: str) -> bool: ...

    def set_level(self, logger: str, level: str) -> Sequence[str]: ...


class Backend(Protocol):
    """What answers the services. The coroutines run on the server's loop, and `watch` is called
    there too."""

    @property
    def plugins(self) -> Plugins: ...

    @property
    def loggers(self) -> Loggers: ...

    @property
    def ready(self) -> bool:
        """Whether calls are answered by now. Loggers are served before."""
        ...

    async def ask(self, call: Call, timeout_ms: int, origin: str = "") -> Result:
        """Return the herder's answer. If there is none in time it is a `Failure` of kind TIMEOUT.

        Raises:
            TooManyError: too many calls wait, and the herder was not asked.
        """
        ...

    async def on_thread(self, work: Callable[[], T], timeout_ms: int) -> T:
        """Run `work` on a thread, where it may hang. Return or raise what it does.

        Raises:
            TimeoutError: it has not ended in time. Its thread is left alone.
        """
        ...

    async def cluster(self, timeout_ms: int) -> Json:
        """Return ``{"version", "commit", "kafka_cluster_id", "group_id", "workers"}``.

        Each worker is ``{"worker_id", "url", "view"}``. The view is a `WorkerView` as plain data,
        or None, and then "unknown" says why.
        """
        ...

    async def group(self, timeout_ms: int) -> Json:
        """As `cluster`, with all workers that are known.

        A worker that does not answer has None as its view, and a reason in "unknown". It then has
        "member", "leader", "generation" and "counts" of connectors and tasks instead.
        "others_unknown" says why other workers are missing.
        """
        ...

    def watch(self, touched: Touched | None) -> None:
        """Have `touched` called for every connector that changes from now on. None: stop it."""
        ...
