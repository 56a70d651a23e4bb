"""A server that answers each request at once: ``python -m support.rest.idle_server``.

The time of its answers shows what the machine itself costs at that moment. It prints its URL, and
ends when its standard input does.
"""

import socket
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def serve(listener: socket.socket) -> None:
    while True:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(65_536)
            accepted.sendall(ANSWER)


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
