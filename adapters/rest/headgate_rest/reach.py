"""Whether workers can be reached under the addresses that they advertise."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpcore

from headgate_rest.server import client_context
from headgate_rest.settings import RestSettings

TIMEOUT_S: Final = 5.0
AT_ONCE: Final = 16


def try_to_reach(settings: RestSettings, urls: Iterable[str]) -> Mapping[str, str | None]:
    """Each of `urls` with the reason why no worker answers there; None: one does, whatever it says.

    Args:
        settings: of a worker; by them it makes its own calls to others (TLS).
    """
    tls = settings.tls
    context = client_context(tls) if tls.certificate or tls.trusted else None
    with httpcore.ConnectionPool(context) as pool, ThreadPoolExecutor(AT_ONCE) as threads:
        asked = {url: threads.submit(_why_not, pool, url) for url in dict.fromkeys(urls)}
        return {url: each.result() for url, each in asked.items()}


def _why_not(pool: httpcore.ConnectionPool, url: str) -> str | None:
    limits = dict.fromkeys(("connect", "pool", "read", "write"), TIMEOUT_S)
    try:
        pool.request("GET", url.rstrip("/") + "/", extensions={"timeout": limits})
    except httpcore.TimeoutException:
        return f"no answer within {TIMEOUT_S:g} s"
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        return str(error) or type(error).__name__
    except ValueError as error:
        return f"no address ({error})"
    return None
