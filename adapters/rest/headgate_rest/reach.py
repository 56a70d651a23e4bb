"""A check whether workers can be reached under the URLs that they advertise."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import httpcore

from headgate_rest.server import client_context
from headgate_rest.settings import RestSettings

TIMEOUT_S: Final = 5.0
AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of a request to a worker."""

    reason: str | None = None
    """Why no answer came. None: one came, whatever its status."""
    ahead_s: float | None = None
    """How far the worker's clock is ahead of this one, to a second. None: the answer has no
    date."""


def try_to_reach(settings: RestSettings, urls: Iterable[str]) -> Mapping[str, Reached]:
    """Send a request to each of `urls`. Return the results by URL.

    Args:
        settings: a worker's settings, whose TLS is used, as for its own calls to others.
    """
    tls = settings.tls
    context = client_context(tls) if tls.certificate or tls.trusted else None
    with httpcore.ConnectionPool(context) as pool, ThreadPoolExecutor(AT_ONCE) as threads:
        asked = {url: threads.submit(_reached, pool, url) for url in dict.fromkeys(urls)}
        return {url: each.result() for url, each in asked.items()}


def _reached(pool: httpcore.ConnectionPool, url: str) -> Reached:
    limits = dict.fromkeys(("connect", "pool", "read", "write"), TIMEOUT_S)
    try:
        answer = pool.request("GET", url.rstrip("/") + "/", extensions={"timeout": limits})
    except httpcore.TimeoutException:
        return Reached(f"no answer within {TIMEOUT_S:g} s")
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        return Reached(str(error) or type(error).__name__)
    except ValueError as error:
        return Reached(f"no address ({error})")
    return Reached(ahead_s=_ahead_s(answer, time.time()))


def _ahead_s(answer: httpcore.Response, now_s: float) -> float | None:
    told = {name.lower(): value for name, value in answer.headers}.get(b"date")
    try:
        then = parsedate_to_datetime((told or b"").decode("latin-1"))
    except ValueError:
        return None
    return then.timestamp() - now_s
