"""What is answered beside the herder: the worker itself, plugins, loggers.

The runtime gives what is asked for; here it gets Connect's form. Source: `RootResource`,
`ConnectorPluginsResource`, `LoggingResource`, KIP-495, KIP-769, KIP-976, KIP-1017.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias, assert_never

from headgate.herder.messages import Call, FenceConnector, SetLoggerLevel
from headgate_rest.http import HttpResponse, Refusal, error_response, json_response
from headgate_rest.translate import (
    RETRY_LATER,
    DescribePlugin,
    HerderRequest,
    ListLoggers,
    ListPlugins,
    SetWorkerLogger,
    ShowHealth,
    ShowLogger,
    ShowMethods,
    ShowMetrics,
    ShowRoot,
    SideRequest,
    ValidatePlugin,
)
from headgate_rest.warning import WARNING, warning_header

Json: TypeAlias = Mapping[str, Any]

STARTING: Final = (
    "Worker is still starting up. It answers once it has read its topics to their ends and joined "
    "its group; ask again, or ask another worker."
)
HEALTHY: Final = "Worker has completed startup and is ready to handle requests."
UNHEALTHY: Final = (
    "Worker was unable to handle this request and may be unable to handle other requests. "
)


class PluginsHangError(Exception):
    """So many calls of a plugin hang that it is asked nothing more. The text says so."""


class Plugins(Protocol):
    """What this worker can run. Plugins are users' code, which may hang: all methods but `submit`
    are called by way of it."""

    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        """Have a thread do `work`, which asks `plugin` and raises nothing; empty: all of them.

        Raises:
            PluginsHangError: it is not done.
        """
        ...

    def listed(self, *, connectors_only: bool) -> Sequence[Json]:
        """``{"class", "type", "version"}`` of each, sorted by type and class."""
        ...

    def config(self, plugin: str) -> Sequence[Json]:
        """The definitions of its keys. Raises LookupError when there is no such plugin, ValueError
        for one that has no config."""
        ...

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Json:
        """ConfigInfos. Raises ValueError when the config is of another class, or of none."""
        ...

    def notes(self, config: Mapping[str, str | None]) -> Sequence[tuple[str, str]]:
        """Keys of a config, each with what is to be told of it though it is no error. Raises
        ValueError: its class is not installed."""
        ...


class Loggers(Protocol):
    """Levels of this worker's loggers: ``{"level", "last_modified"}``, the latter ms or None."""

    def levels(self) -> Mapping[str, Json]:
        """Levels of loggers that have one."""
        ...

    def level(self, logger: str) -> Json | None:
        """The level in force; None when nobody knows the logger."""
        ...

    def is_level(self, level: str) -> bool: ...

    def set_level(self, logger: str, level: str) -> Sequence[str]:
        """Names of the loggers whose level it is now, sorted: this one and those below it."""
        ...


class SideRequests:
    def __init__(self, root: Json, plugins: Plugins, loggers: Loggers) -> None:
        self._root = root
        self._plugins = plugins
        self._loggers = loggers

    def answer(self, request: SideRequest) -> HttpResponse | HerderRequest:
        """The answer, or the question for the herder that it comes down to.

        Raises:
            Refusal: as Connect refuses it.
        """
        match request:
            case ShowMethods(allowed):
                return HttpResponse(200, headers={"Allow": allowed})
            case ShowRoot():
                return json_response(200, self._root)
            case ShowHealth() | ShowMetrics():
                raise AssertionError("asked of the herder")
            case ListPlugins(connectors_only):
                return json_response(200, self._plugins.listed(connectors_only=connectors_only))
            case DescribePlugin() | ValidatePlugin():
                return self._plugin(request)
            case ListLoggers():
                return json_response(200, dict(sorted(self._loggers.levels().items())))
            case ShowLogger(logger):
                level = self._loggers.level(logger)
                if level is None:
                    raise Refusal(404, f"Logger {logger} not found.")
                return json_response(200, level)
            case SetWorkerLogger(logger, level, cluster):
                if not self._loggers.is_level(level):
                    raise Refusal(404, f"invalid log level '{level}'.")
                if cluster:
                    return HerderRequest(SetLoggerLevel(logger, level))
                return json_response(200, list(self._loggers.set_level(logger, level)))
            case _:
                assert_never(request)

    def _plugin(self, request: DescribePlugin | ValidatePlugin) -> HttpResponse:
        try:
            if isinstance(request, DescribePlugin):
                return json_response(200, self._plugins.config(request.plugin))
            given = dict(request.config)  # a connector's own code may write into what it is given
            infos = self._plugins.validate(request.plugin, given)
            answer = json_response(200, infos)
            if warnings := warning_header(self._plugins.notes(dict(request.config))):
                answer = replace(answer, headers={**answer.headers, WARNING: warnings})
            return answer
        except LookupError as error:
            raise Refusal(404, str(error)) from error
        except ValueError as error:
            raise Refusal(400, str(error)) from error


def health(status: int, name: str, message: str) -> HttpResponse:
    """Source: KIP-1017."""
    headers = RETRY_LATER if status == 503 else {}
    return json_response(status, {"status": name, "message": message}, headers)


def starting() -> HttpResponse:
    return error_response(503, STARTING, RETRY_LATER)


def without_group(call: Call) -> HttpResponse:
    """Source: StandaloneHerder, of what workers of a group ask of each other."""
    what = "externally setting task configurations"
    if isinstance(call, FenceConnector):
        what = "exactly-once source connectors"
    return error_response(500, f"Kafka Connect in standalone mode does not support {what}.")
