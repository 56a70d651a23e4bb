"""An endpoint that gives tokens for client credentials, as an identity provider's does.

The tokens are signed, and it serves the public key with which brokers check them.
"""

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from local_kafka.certificates import Authority, as_pem

AUDIENCE: Final = "kafka"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer"
ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
"""A flag of the JVM: the URLs from which Java may fetch tokens and keys."""


class TokenEndpoint:
    """One endpoint.

    Args:
        clients: secrets by client id. The client id is the principal, too.
        life_s: life of a token.
        trusted: options of a login module that trust the endpoint's certificate.
    """

    def __init__(
        self, url: str, keys_url: str, clients: Mapping[str, str], life_s: float, trusted: str
    ) -> None:
        self.url = url
        self.keys_url = keys_url
        self.clients = dict(clients)
        self.life_s = life_s
        self.status: int | None = None
        """What it answers instead of a token, if not None."""
        self.away = False
        """Whether it ends every connection without an answer."""
        self.breaks_off = False
        """Whether it ends them in the middle of one."""
        self.says_life = True
        self.trusted = trusted
        self.asked: list[dict[str, list[str]]] = []
        """The forms of those who got a token."""
        self._key = rsa.generate_private_key(65537, 2048)

    def login(self, client: str, secret: str | None = None) -> dict[str, str]:
        """Return Java's properties of a client, without the protocol."""
        secret = self.clients[client] if secret is None else secret
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{_MODULE}.OAuthBearerLoginModule required clientId="{client}" '
            f'clientSecret="{secret}" scope="connect" {self.trusted};',
            "sasl.login.callback.handler.class": f"{_MODULE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.url,
        }

    def broker_settings(self, listener: str = "sasl") -> dict[str, str]:
        """Return settings of a broker whose clients log in with a token. The broker also needs the
        flag `ALLOWED`."""
        prefix = f"listener.name.{listener}"
        return {
            f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_MODULE}.OAuthBearerLoginModule required;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                f"{_MODULE}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
            f"{prefix}.sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def token(self, client: str) -> str:
        now = time.time()
        claims = {"sub": client, "aud": AUDIENCE, "iss": "tests", "scope": "connect"}
        claims |= {"iat": int(now), "exp": int(now + self.life_s)}
        signed = f"{_part({'alg': 'RS256', 'kid': '1', 'typ': 'JWT'})}.{_part(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return f"{signed}.{_text(signature)}"

    def keys(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256"}
        return {"keys": [key | {"n": _number(numbers.n), "e": _number(numbers.e)}]}

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if self.status is not None:
            return self.status, {}
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        client, _, secret = given.partition(":")
        if self.clients.get(client) != secret or form.get("grant_type") != ["client_credentials"]:
            return 401, {"error": "invalid_client", "error_description": "who is that?"}
        self.asked.append(form)
        life = {"expires_in": int(self.life_s)} if self.says_life else {}
        return 200, {"access_token": self.token(client), "token_type": "Bearer", **life}


@contextlib.contextmanager
def token_endpoint(
    clients: Mapping[str, str], life_s: float = 3_600.0, authority: Authority | None = None
) -> Iterator[TokenEndpoint]:
    """Serve an endpoint. With `authority`, which makes its certificate, it uses TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, endpoint.keys())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._reply(*endpoint.answer(self.headers["Authorization"], parse_qs(body)))

        def _reply(self, status: int, answer: object) -> None:
            if endpoint.away:
                self.close_connection = True
                return
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:-5] if endpoint.breaks_off else content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(Handler) as keys, _serving(Handler) as tokens:
        trusted = "" if authority is None else _speak_tls(tokens, authority)
        # Keys are always given without TLS: a broker that is told whom to trust wants to log in.
        endpoint = TokenEndpoint(
            f"http{'s' if trusted else ''}://127.0.0.1:{tokens.server_port}/token",
            f"http://127.0.0.1:{keys.server_port}/keys",
            clients,
            life_s,
            trusted,
        )
        yield endpoint


@contextlib.contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _speak_tls(server: ThreadingHTTPServer, authority: Authority) -> str:
    """Make the server use TLS. Return the options of a login module that trusts it."""
    authority.make()
    file = authority.folder / "endpoint.pem"
    file.write_text(
        "".join(as_pem(authority.issue("endpoint", "SAN=ip:127.0.0.1"), authority.password))
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    # A client that says nothing must not keep others waiting.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    store = authority.trust(authority.folder / "trusted.p12")
    given = {"location": store, "password": authority.password, "type": "PKCS12"}
    return " ".join(f'ssl.truststore.{key}="{value}"' for key, value in given.items())


def _part(value: object) -> str:
    return _text(json.dumps(value).encode())


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
