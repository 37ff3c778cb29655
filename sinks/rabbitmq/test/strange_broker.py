"""A broker that knows as much of AMQP 0-9-1 as a publisher needs, and does with it what no broker does."""

import contextlib
import socket
import struct
import threading

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


START = method(0, 10, 10, b"\x00\x09" + long(b"") + long(b"PLAIN EXTERNAL") + long(b"en_US"))
BLOCKED = method(0, 10, 60, short(b"alarm"))


def tune(frame_max: int) -> bytes:
    return method(0, 10, 30, struct.pack(">HIH", 2047, frame_max, 30))


RETURN = method(1, 60, 50, struct.pack(">H", 312) + short(b"NO_ROUTE") + short(b"e") + short(b"k"))


def returned(header: bytes, body: bytes) -> bytes:
    """What comes back of a message that cannot be routed."""
    return RETURN + frame(HEADER, 1, header) + frame(BODY, 1, body)


def ack(tag: int) -> bytes:
    return method(1, 60, 80, struct.pack(">QB", tag, 0))


class StrangeBroker:
    """`answers` replaces what is sent for a method, (class, method) -> bytes, or for a whole message, "message". Bytes that are an iterator are sent until
    the client hangs up."""

    def __init__(self, **answers):
        self.answers, self.messages, self.connections, self.hung_up = answers, 0, 0, threading.Event()
        self.tag, self.header, self.body = 0, b"", b""  # of the last message of a connection
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
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error, IndexError), client:
            reader = client.makefile("rb")
            reader.read(8)
            self._say(client, "start", START)
            self.tag, left = 0, 0
            while head := reader.read(7):
                kind, channel, size = struct.unpack(">BHI", head)
                payload = reader.read(size + 1)[:-1]
                if kind == METHOD:
                    self._on_method(client, channel, struct.unpack(">HH", payload[:4]))
                elif kind in (HEADER, BODY):
                    left = struct.unpack(">Q", payload[4:12])[0] if kind == HEADER else left - size
                    self.header, self.body = (payload, b"") if kind == HEADER else (self.header, payload)
                    if left == 0:
                        self.tag += 1
                        self.messages += 1
                        self._say(client, "message", ack(self.tag))
        self.hung_up.set()

    def _on_method(self, client: socket.socket, channel: int, which: tuple[int, int]) -> None:
        name, usual = {
            (10, 11): ("tune", tune(131072)),
            (10, 40): ("open", method(0, 10, 41, b"\x00")),
            (20, 10): ("channel", method(channel, 20, 11, long(b""))),
            (85, 10): ("confirm", method(channel, 85, 11)),
            (40, 10): ("exchange", method(channel, 40, 11)),
        }.get(which, (None, b""))
        if name:
            self._say(client, name, usual)

    def _say(self, client: socket.socket, name: str, usual: bytes) -> None:
        answer = self.answers.get(name, usual)
        if isinstance(answer, bytes):
            client.sendall(answer)
            return
        try:
            for part in answer():
                client.sendall(part)
        finally:
            self.hung_up.set()
