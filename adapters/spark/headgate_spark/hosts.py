"""The address of this machine that Spark's executors reach, for the driver and the lifelines."""

import socket
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
SPARK_PORT, CONNECT_PORT = 7077, 15002


class HostError(Exception):
    """No address that executors reach is known. The text names the setting for it."""


def is_here(master: str) -> bool:
    """Return whether executors of the master run on this machine, by the master's name."""
    return master.startswith("local")


def address_for(spark: str, given: str, setting: str) -> str:
    """Return the address under which executors of `spark` reach this machine.

    Args:
        spark: a master, or the address of a Spark Connect server (``sc://``).
        given: the user's setting. Empty: the address is found out.
        setting: the user's name for the setting.

    Raises:
        HostError: it is not an address of this machine, or cannot be found out.
    """
    if given:
        return _checked(given, setting)
    if is_here(spark):
        return LOOPBACK
    host, port = _place_of(spark)
    if host is not None:
        return _towards(host, port, spark, setting)
    name = socket.gethostname()
    try:
        found = socket.gethostbyname(name)
    except OSError as error:
        raise HostError(_advice(spark, setting, f"its name {name} is unknown: {error}")) from None
    if found.startswith("127."):
        raise HostError(_advice(spark, setting, f"its name {name} means {found}"))
    return found


def _place_of(spark: str) -> tuple[str | None, int]:
    """Return host and port of a master or a server. The host is None if the address names none."""
    text = spark.removeprefix("k8s://")
    if "://" not in text:
        if text == spark:  # for example yarn
            return None, 0
        text = f"https://{text}"
    first = text.split(",")[0]  # spark://a:7077,b:7077
    try:
        parts = urlsplit(first)
        default = {"sc": CONNECT_PORT, "spark": SPARK_PORT}.get(parts.scheme, 443)
        return parts.hostname, parts.port or default
    except ValueError:
        return None, 0


def _towards(host: str, port: int, spark: str, setting: str) -> str:
    """Return the address from which this machine would call `host`. Nothing is sent."""
    try:
        known = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(known[0][4])
            return str(probe.getsockname()[0])
    except OSError as error:
        raise HostError(_advice(spark, setting, f"{host} cannot be reached: {error}")) from None


def _advice(spark: str, setting: str, why: str) -> str:
    return (
        f"the address at which executors of {spark} reach this machine is not known ({why}); "
        f"say it by {setting}"
    )


def _checked(given: str, setting: str) -> str:
    try:
        with socket.create_server((given, 0)):
            return given
    except OSError as error:
        raise HostError(
            f"{setting} is {given}, expected an address of this machine that executors reach: "
            f"nothing can listen there ({error.strerror or error})"
        ) from None
