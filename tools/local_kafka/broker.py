"""Kafka brokers (KRaft) on this machine. A broker is its own controller, unless told otherwise."""

import base64
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties

from local_kafka.certificates import Authority
from local_kafka.jars import KAFKA, java, pinned
from local_kafka.jvm import QUICK, START_TIMEOUT_S, Jvm, JvmError, OnJvm, free_ports, listens, run

HEAP_MB = 512
CONTROLLER_HEAP_MB = 128
SESSION_S = 3.0
"""Seconds without a heartbeat of a broker after which the controller fences it."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # The first member of a group need not wait for a second one.
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed may register again once its old session has ended.
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "16777216",
}
"""Settings that differ from Kafka's defaults, for a single node and a small heap."""


def version() -> str:
    """Return the pinned version of Kafka."""
    return next(jar.version for jar in pinned(KAFKA) if jar.artifact == "kafka-clients")


class Broker(OnJvm):
    """A broker that can be stopped, killed and started again on the same ports and data.

    It has these listeners:
    - `address` asks for no login, and its clients may do everything.
    - `sasl_address`, with `users`, asks for their login (PLAIN and the mechanisms of `SCRAM`). With
      users, ACLs are on: a user may do only what an ACL allows.
    - `tls_address`, with `tls`, uses TLS. With users it also asks for a login.
    - `mutual_tls_address`, with `tls`, asks for a client certificate that `authority` has signed.
      The certificate's subject is the user. Clients trust `ca_file`.

    A broker that is killed together with its controller can leave a transaction open, at which
    readers wait forever (KAFKA-20734). After the restart, the broker finds the end of the
    transaction decided. But the controller still has the registration of the dead broker, and takes
    it for gone. So the transaction's partitions seem deleted, and no end is written to them.

    If that must not happen, use `own_controller`. Then `kill` leaves the controller running, and
    `start` waits until it has fenced the dead broker. The same can happen to a broker that is
    frozen for longer than `broker.session.timeout.ms`.

    Args:
        folder: folder for data, settings and log. Data of an earlier broker there is used.
        port: port of `address`. None: a free one.
        settings: broker settings, which override `SINGLE_NODE`.
        users: passwords by user name.
        tls: whether there are listeners with TLS.
        tls_names: names of the broker in its certificate, in keytool's syntax.
        own_controller: whether the controller runs in another process.
        beside: a started broker with `own_controller`, whose cluster this broker joins.
        node_id: node id in that cluster, in which 1 and 2 are taken.
        heap_mb, flags: as for `Jvm`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        tls_names: str = "ip:127.0.0.1,dns:localhost",
        own_controller: bool = False,
        beside: "Broker | None" = None,
        node_id: int = 1,
        heap_mb: int = HEAP_MB,
        flags: Sequence[str] = QUICK,
    ) -> None:
        self.folder = folder.absolute()
        self.users = dict(users or {})
        plain, self._controller_port, sasl, with_tls, mutual = free_ports(5)
        self._beside = beside
        self.node_id = node_id
        if beside is not None:
            self._controller_port = beside._controller_port
        self._ports = {"PLAIN": port or plain}
        if self.users:
            self._ports["SASL"] = sasl
        if tls:
            self._ports |= {"TLS": with_tls, "MUTUAL": mutual}
        self.authority = Authority(self.folder / "certificates")
        self._tls_names = tls_names
        self._settings = dict(settings or {})
        file = str(self._settings_file)
        self.jvm = Jvm(self.folder, "broker", ["kafka.Kafka", file], heap_mb=heap_mb, flags=flags)
        self._killed_at = 0.0
        self._controller: Jvm | None = None
        if own_controller:
            command = ["kafka.Kafka", str(self._controller_file)]
            self._controller = Jvm(
                self.folder, "controller", command, heap_mb=CONTROLLER_HEAP_MB, flags=flags
            )

    @property
    def address(self) -> str:
        """Value of `bootstrap.servers` for the security protocol PLAINTEXT."""
        return f"127.0.0.1:{self._ports['PLAIN']}"

    @property
    def sasl_address(self) -> str:
        """Value of `bootstrap.servers` for the security protocol SASL_PLAINTEXT."""
        return f"127.0.0.1:{self._ports['SASL']}"

    @property
    def tls_address(self) -> str:
        """Value of `bootstrap.servers` for SSL, or for SASL_SSL if there are users."""
        return f"127.0.0.1:{self._ports['TLS']}"

    @property
    def mutual_tls_address(self) -> str:
        """Value of `bootstrap.servers` for SSL with a client certificate."""
        return f"127.0.0.1:{self._ports['MUTUAL']}"

    @property
    def ca_file(self) -> Path:
        """PEM file with the certificate of the broker's authority."""
        return self.authority.ca_file

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker. Returns when clients can connect. Raises `JvmError`."""
        beside = self._beside is not None
        goes_on = beside or (self._controller is not None and self._controller.running)
        for port in (*self._ports.values(), *([] if goes_on else [self._controller_port])):
            if listens(port):
                raise JvmError(f"port {port} of 127.0.0.1 is taken; name another, or end that one")
        self.folder.mkdir(parents=True, exist_ok=True)
        if "TLS" in self._ports and not self._stores["broker"].exists():
            self._make_certificates()
        self._settings_file.write_text(javaproperties.dumps(self._properties(), timestamp=False))
        if not (self._data / "meta.properties").exists():
            self._format()
        if self._controller is not None and not goes_on:
            self._controller.start(lambda: listens(self._controller_port), timeout_s)
        elif goes_on:
            time.sleep(max(0.0, self._killed_at + SESSION_S + 0.5 - time.monotonic()))
        self.jvm.start(lambda: all(map(listens, self._ports.values())), timeout_s)

    def kill(self) -> None:
        super().kill()
        self._killed_at = time.monotonic()

    def close(self) -> None:
        """Kill the broker and its own controller (SIGKILL)."""
        self.kill()
        if self._controller is not None:
            self._controller.kill()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _controller_file(self) -> Path:
        return self.folder / "controller.properties"

    @property
    def _settings_file(self) -> Path:
        return self.folder / "broker.properties"

    def _format(self) -> None:
        cluster = self._cluster_id()
        command = [java(), *QUICK, "kafka.tools.StorageTool", "format", "--cluster-id", cluster]
        for user, password in self.users.items():
            for mechanism in SCRAM:
                command += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        run([*command, "--config", str(self._settings_file)])
        if self._controller is not None:
            settings = javaproperties.dumps(self._controller_properties(), timestamp=False)
            self._controller_file.write_text(settings)
            run([*command, "--config", str(self._controller_file)])

    def _cluster_id(self) -> str:
        """Return the id of the cluster that the broker joins, or a new one."""
        if self._beside is None:
            return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        file = self._beside._data / "meta.properties"
        return javaproperties.loads(file.read_text())["cluster.id"]

    def _controller_properties(self) -> dict[str, str]:
        of_both = self._properties()
        del of_both["advertised.listeners"], of_both["inter.broker.listener.name"]
        return {
            **of_both,
            "process.roles": "controller",
            "node.id": str(self._controller_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self._controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data-controller"),
        }

    @property
    def _controller_id(self) -> int:
        return 1 if self._controller is None and self._beside is None else 2

    def _properties(self) -> dict[str, str]:
        ports = {**self._ports, "CONTROLLER": self._controller_port}
        clients = {name: f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()}
        protocols = {
            "PLAIN": "PLAINTEXT",
            "CONTROLLER": "PLAINTEXT",
            "SASL": "SASL_PLAINTEXT",
            "TLS": "SASL_SSL" if self.users else "SSL",
            "MUTUAL": "SSL",
        }
        alone = self._controller_id == self.node_id
        own = [f"CONTROLLER://127.0.0.1:{self._controller_port}"] if alone else []
        return {
            "process.roles": "broker,controller" if alone else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self._controller_id}@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            "listeners": ",".join([*clients.values(), *own]),
            "advertised.listeners": ",".join(clients.values()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocols[name]}" for name in ports
            ),
            "log.dirs": str(self._data),
            **SINGLE_NODE,
            **self._login_properties(),
            **self._tls_properties(),
            **self._settings,
        }

    def _login_properties(self) -> dict[str, str]:
        if not self.users:
            return {}
        modules = "org.apache.kafka.common.security"
        names = "".join(f' user_{name}="{word}"' for name, word in self.users.items())
        found = {
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *SCRAM]),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        for listener in self._ports.keys() - {"PLAIN", "MUTUAL"}:
            name = f"listener.name.{listener.lower()}"
            found[f"{name}.plain.sasl.jaas.config"] = (
                f"{modules}.plain.PlainLoginModule required{names};"
            )
            for mechanism in SCRAM:
                found[f"{name}.{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{modules}.scram.ScramLoginModule required;"
                )
        return found

    def _tls_properties(self) -> dict[str, str]:
        if "TLS" not in self._ports:
            return {}
        found = {"listener.name.mutual.ssl.client.auth": "required"}
        stores = {"keystore": self._stores["broker"], "truststore": self._stores["clients"]}
        for listener in ("tls", "mutual"):
            for name, store in stores.items():
                prefix = f"listener.name.{listener}.ssl.{name}"
                found[f"{prefix}.type"] = "PKCS12"
                found[f"{prefix}.location"] = str(store)
                found[f"{prefix}.password"] = self.authority.password
        return found

    @property
    def _stores(self) -> dict[str, Path]:
        return {name: self.authority.folder / f"{name}.p12" for name in ("broker", "clients")}

    def _make_certificates(self) -> None:
        self.authority.make()
        self.authority.issue("broker", f"SAN={self._tls_names}")
        self.authority.trust(self._stores["clients"])
