"""The methods of ``headgate.v1.ClusterService``."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from headgate.herder.messages import SetLoggerLevel
from headgate_grpc import messages
from headgate_grpc.asked import Asked
from headgate_grpc.cluster_watch import ClusterHub
from headgate_grpc.errors import bad_request, not_found
from headgate_grpc.v1 import cluster_service_pb2 as pb
from headgate_grpc.v1 import connector_pb2

T = TypeVar("T")


class ClusterService:
    """The service. Each method answers the rpc of its name, or raises `RefusedError`."""

    def __init__(self, hub: ClusterHub) -> None:
        self._hub = hub

    async def get_cluster(
        self, request: pb.GetClusterRequest, asked: Asked
    ) -> pb.GetClusterResponse:
        asked.check_ready()
        raw = await asked.backend.group(asked.left_ms())
        return pb.GetClusterResponse(cluster=messages.cluster(raw))

    async def watch_cluster(
        self, request: pb.WatchClusterRequest, asked: Asked
    ) -> AsyncIterator[pb.WatchClusterResponse]:
        async for response in self._hub.watch():
            yield response

    # -- plugins --

    async def list_plugins(
        self, request: pb.ListPluginsRequest, asked: Asked
    ) -> pb.ListPluginsResponse:
        plugins = asked.backend.plugins
        found = await asked.on_thread(
            lambda: plugins.listed(connectors_only=request.connectors_only)
        )
        return pb.ListPluginsResponse(
            plugins=[
                pb.Plugin(
                    class_name=messages.text(each["class"]),
                    type=messages.text(each["type"]),
                    version=messages.text(each["version"]),
                )
                for each in found
            ]
        )

    async def get_plugin(self, request: pb.GetPluginRequest, asked: Asked) -> pb.GetPluginResponse:
        if not request.class_name:
            raise bad_request("class_name is empty; ListPlugins has the names")
        found = await _of_plugin(asked, lambda: asked.backend.plugins.config(request.class_name))
        return pb.GetPluginResponse(keys=[messages.config_key(each) for each in found])

    async def validate_config(
        self, request: pb.ValidateConfigRequest, asked: Asked
    ) -> pb.ValidateConfigResponse:
        config = messages.config_of(request.config, request.config_null_keys)
        messages.check_class(config)
        named = config["connector.class"] or ""
        given = dict(config)  # a copy, because a connector's own code may change it
        infos = await _of_plugin(asked, lambda: asked.backend.plugins.validate(named, given))
        notes = await _of_plugin(asked, lambda: asked.backend.plugins.notes(config))
        made = messages.validated(infos, config)
        made.notes.extend(
            connector_pb2.ConfigNote(key=key, message=messages.text(each)) for key, each in notes
        )
        return made

    # -- loggers --

    async def list_loggers(
        self, request: pb.ListLoggersRequest, asked: Asked
    ) -> pb.ListLoggersResponse:
        levels = sorted(asked.backend.loggers.levels().items())
        return pb.ListLoggersResponse(loggers=[messages.logger(*each) for each in levels])

    async def get_logger(self, request: pb.GetLoggerRequest, asked: Asked) -> pb.GetLoggerResponse:
        level = asked.backend.loggers.level(request.logger)
        if level is None:
            raise not_found(f"Logger {request.logger} not found.")
        return pb.GetLoggerResponse(logger=messages.logger(request.logger, level))

    async def set_logger_level(
        self, request: pb.SetLoggerLevelRequest, asked: Asked
    ) -> pb.SetLoggerLevelResponse:
        if not request.logger:
            raise bad_request('logger is empty; "root" is the one above all others')
        if not asked.backend.loggers.is_level(request.level):
            raise not_found(f"invalid log level '{request.level}'.")
        if request.cluster:
            await asked.value(SetLoggerLevel(request.logger, request.level))
            return pb.SetLoggerLevelResponse()
        changed = asked.backend.loggers.set_level(request.logger, request.level)
        return pb.SetLoggerLevelResponse(loggers=[messages.text(name) for name in changed])


async def _of_plugin(asked: Asked, work: Callable[[], T]) -> T:
    """Run a plugin's code on a thread and return its result.

    Raises:
        RefusedError: Connect would refuse it too: the plugin does not exist (NOT_FOUND), or the
            request is wrong (BAD_REQUEST).
    """
    try:
        return await asked.on_thread(work)
    except LookupError as error:
        raise not_found(str(error)) from error
    except ValueError as error:
        raise bad_request(str(error)) from error
