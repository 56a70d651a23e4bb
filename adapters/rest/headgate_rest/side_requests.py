"""Requests that are answered without the herder: about the worker itself, plugins and loggers.

The runtime provides the data, and this module gives it Connect's form. Source: `RootResource`,
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
    """So many calls of a plugin hang that it is not called any more. The message says so."""


class Plugins(Protocol):
    """The plugins of this worker. They are users' code, which may hang, so all methods but `submit`
    are called from work that is given to `submit`."""

    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        """Have a thread run `work`, which calls `plugin` (empty: all plugins) and raises nothing.

        Raises:
            PluginsHangError: too many calls of the plugin hang, and `work` is not run.
        """
        ...

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
            ValueError: the config names another class than `plugin`, or none.
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
    """Levels of this worker's loggers, as ``{"level", "last_modified"}``. The latter is in ms, or
    None."""

    def levels(self) -> Mapping[str, Json]:
        """Return the levels of all loggers that have their own."""
        ...

    def level(self, logger: str) -> Json | None:
        """Return the level in force. None: there is no such logger."""
        ...

    def is_level(self, level: str) -> bool: ...

    def set_level(self, logger: str, level: str) -> Sequence[str]:
        """Set the level of a logger and of those below it. Return their names, sorted."""
        ...


class SideRequests:
    def __init__(self, root: Json, plugins: Plugins, loggers: Loggers) -> None:
        self._root = root
        self._plugins = plugins
        self._loggers = loggers

    def answer(self, request: SideRequest) -> HttpResponse | HerderRequest:
        """Return the answer, or the request for the herder to which this one leads.

        Raises:
            Refusal: Connect refuses the request too.
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
            given = dict(request.config)  # a copy, because a connector's own code may change it
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
    """Return the answer of ``/health``. Source: KIP-1017."""
    headers = RETRY_LATER if status == 503 else {}
    return json_response(status, {"status": name, "message": message}, headers)


def starting() -> HttpResponse:
    return error_response(503, STARTING, RETRY_LATER)


def without_group(call: Call) -> HttpResponse:
    """Return Connect's answer to an internal request, in a worker without a group. Source:
    StandaloneHerder."""
    what = "externally setting task configurations"
    if isinstance(call, FenceConnector):
        what = "exactly-once source connectors"
    return error_response(500, f"Kafka Connect in standalone mode does not support {what}.")
