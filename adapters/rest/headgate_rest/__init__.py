"""Kafka Connect's REST API over HTTP: a worker's server, and its client of other workers."""

from headgate_rest.reach import Reached, try_to_reach
from headgate_rest.server import ListenError
from headgate_rest.service import RestService, try_to_listen, url_of
from headgate_rest.settings import RestSettings
from headgate_rest.side_requests import Loggers, Plugins

__all__ = [
    "ListenError",
    "Loggers",
    "Plugins",
    "Reached",
    "RestService",
    "RestSettings",
    "try_to_listen",
    "try_to_reach",
    "url_of",
]
