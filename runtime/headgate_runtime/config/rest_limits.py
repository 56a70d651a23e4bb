"""Settings that limit what clients of the REST API may cost: name, default, description.

`headgate_rest.limits` reads them and says what each number is for.
"""

from typing import Final

REST_LIMITS: Final = (
    (
        "headgate.rest.header.max.bytes",
        "16384",
        "Longest request line and headers of a REST request, in bytes. Longer ones are answered "
        "with 431.",
    ),
    (
        "headgate.rest.header.max.count",
        "100",
        "Largest number of headers of a REST request. More are answered with 431.",
    ),
    (
        "headgate.rest.body.max.bytes",
        "1048576",
        "Longest body of a REST request, in bytes. A longer one is answered with 413.",
    ),
    (
        "headgate.rest.body.max.values",
        "50000",
        "Largest number of values, lists and objects in the body of a REST request. More are "
        "answered with 413.",
    ),
    (
        "headgate.rest.task.configs.max.bytes",
        "33554432",
        "Longest text of all task configs of one connector, in bytes. Workers send each other as "
        "much in one request if they sign their requests.",
    ),
    (
        "headgate.rest.bodies.max.bytes",
        "67108864",
        "Memory for the bodies of all REST requests that are not answered yet, in bytes.",
    ),
    (
        "headgate.rest.read.timeout.ms",
        "30000",
        "Longest time that a REST connection may take to send a complete request, and that it may "
        "be idle.",
    ),
    (
        "headgate.rest.connections.max",
        "1000",
        "Largest number of REST connections, and of those that have not sent a request yet. It is "
        "at most a quarter of the file descriptors that the process may open.",
    ),
)
FRONT_PROCESS: Final = "headgate.rest.front.process"
CONNECT_NAMES: Final = "headgate.metrics.connect.names"
REST_SWITCHES: Final = (
    (
        FRONT_PROCESS,
        "Whether a small process of its own, of about 10 MB, accepts REST connections. It answers "
        "`/health` while the worker is busy, and passes on connections with a request.",
    ),
    (
        CONNECT_NAMES,
        "Whether `/metrics` also has the names that dashboards of Kafka Connect chart, "
        "`kafka_connect_…`.",
    ),
)
"""Settings that are true by default, and what each does."""
