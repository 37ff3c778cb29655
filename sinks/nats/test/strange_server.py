"""A server that knows as much of NATS as a publisher needs, and answers a message what no stream does."""

import contextlib
import json
import socket
import threading

INFO = {"server_id": "x", "version": "2.10.0", "headers": True, "max_payload": 1048576}


def message(subject: bytes, body: bytes, headers: bytes = b"") -> bytes:
    if not headers:
        return b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(body), body)
    return b"HMSG %s 1 %d %d\r\n%s%s\r\n" % (subject, len(headers), len(headers) + len(body), headers, body)


class StrangeServer:
    """`on_message(subject, reply)` gives what is sent for a message; `then`, a function, what is sent after the login, until the client hangs up."""

    def __init__(self, on_message=None, then=None, info: dict = INFO, pong: bool = True):
        self.on_message, self.then, self.info = on_message or (lambda _, reply: message(reply, b'{"stream":"S", "seq":1}')), then, info
        self.pong, self.messages, self.begun, self.hung_up = pong, 0, threading.Event(), threading.Event()
        self.body = b""  # of the last message
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client:
            client.sendall(b"INFO " + json.dumps(self.info).encode() + b"\r\n")
            reader, begun = client.makefile("rb"), False
            while line := reader.readline():
                words = line.split()
                if words[:1] == [b"PING"]:
                    if self.pong:
                        client.sendall(b"PONG\r\n")
                    if self.then and not begun:
                        begun = True
                        self._flood(client)
                elif words[:1] in ([b"PUB"], [b"HPUB"]):
                    self.body = reader.read(int(words[-1]) + 2)
                    self.messages += 1
                    client.sendall(self.on_message(words[1], words[2]))

    def _flood(self, client: socket.socket) -> None:
        try:
            for part in self.then():
                client.sendall(part)
                self.begun.set()
        finally:
            self.hung_up.set()
