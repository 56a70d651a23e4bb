"""Kafka Connect's REST API over HTTP: what a worker serves, and how it calls another worker."""

from headgate_rest.asides import Loggers, Plugins
from headgate_rest.service import RestService
from headgate_rest.settings import RestSettings

__all__ = ["Loggers", "Plugins", "RestService", "RestSettings"]
