"""Certificates of the server: PEM files that the settings ``headgate.grpc.ssl.*`` name.

gRPC does not report a certificate that it cannot use, and every handshake fails. So Python's own
TLS loads the files first.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

PREFIX: Final = "headgate.grpc.ssl."
CERTIFICATE_KEY: Final = PREFIX + "certificate.file"
PRIVATE_KEY: Final = PREFIX + "key.file"
CLIENTS_KEY: Final = PREFIX + "client.ca.file"
WORKERS_KEY: Final = "headgate.grpc.internal.ca.file"
_ENCRYPTED: Final = ("ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


@dataclass(frozen=True, slots=True)
class Tls:
    """The server's certificates and key in PEM. They are read once, so a renewed certificate is
    used from the next start on."""

    certificate: bytes
    """Certificate of the server, then the intermediate ones."""
    key: bytes
    clients: bytes | None = None
    """Authorities that must have signed clients' certificates. None: clients need none."""

    @classmethod
    def read(cls, certificate: str, key: str, clients: str = "") -> "Tls":
        """Read these files.

        Args:
            clients: file of the clients' authorities. Empty: clients need no certificate.

        Raises:
            ValueError: a file cannot be used. The message names the setting and the fault.
        """
        for setting, path in ((CERTIFICATE_KEY, certificate), (PRIVATE_KEY, key)):
            if not path:
                raise ValueError(f"{setting} is not set; a listener grpcs:// needs it")
        chain, secret = _read(CERTIFICATE_KEY, certificate), _read(PRIVATE_KEY, key)
        if any(mark in secret.decode("latin-1") for mark in _ENCRYPTED):
            raise ValueError(
                f"{PRIVATE_KEY}: {key} is encrypted, and gRPC takes no password; give an "
                "unencrypted key that only the worker's user can read"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise ValueError(
                f"{CERTIFICATE_KEY} {certificate} and {PRIVATE_KEY} {key} cannot be used "
                f"together: {error.reason or error}; expected a PEM certificate and its key"
            ) from None
        if not clients:
            return cls(chain, secret)
        return cls(chain, secret, _authorities(CLIENTS_KEY, clients))

    def calling(self, workers: str) -> grpc.ChannelCredentials:
        """Return the credentials with which this worker calls other workers. It trusts the
        authorities in the file `workers`, and shows its own certificate.

        Raises:
            ValueError: the file cannot be used.
        """
        authorities = _authorities(WORKERS_KEY, workers)
        return grpc.ssl_channel_credentials(authorities, self.key, self.certificate)

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.clients,
            require_client_auth=self.clients is not None,
        )


def _authorities(setting: str, path: str) -> bytes:
    authorities = _read(setting, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise ValueError(
            f"{setting}: {path} cannot be used: {error.reason or error}; expected PEM "
            "certificates of authorities"
        ) from None
    return authorities


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{setting}: {path} cannot be read: {error.strerror}") from None
