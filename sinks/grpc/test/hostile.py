"""A gRPC server over plain HTTP/2 that attacks: its frames are made by hand, and its headers are never compressed."""

import struct

from hostile import Fake, Request, Talk

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def fields(status: str = "", **named: str) -> bytes:
    """Literals without an index; names and values have fewer than 127 bytes. `status`: of HTTP."""
    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    pairs = ({":status": status} if status else {}) | {name.replace("_", "-"): value for name, value in named.items()}
    return b"".join(b"\x00" + text(name) + text(value) for name, value in pairs.items())


class GrpcServer(Fake):
    extension = "outbox_grpc"
    keeps_idle = True
    passes = {"flood beside answers": "nothing"}  # nghttp2 ends a connection that is flooded with PINGs
    chatter = frame(PING, 0, 0, b"attack!!")
    nonsense = struct.pack(">HIHIHI", 3, 0, 5, 16384, 6, 1)  # no streams at once, the smallest frames, a list of headers of one byte

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_grpc OPTIONS (url 'http://127.0.0.1:{self.port}', allow_http 'true',"
                f" allow_networks '127.0.0.0/8', timeout '5s'{more})"]

    def serve(self, talk: Talk) -> None:
        talk.read(24)
        talk.send(frame(SETTINGS, 0, 0, self.nonsense if talk.attack.name == "nonsense limits" else struct.pack(">HI", 4, 1 << 20))
                  + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 24)))
        bodies: dict[int, bytes] = {}
        while True:
            head = talk.read(9)
            [size], kind, flags, [stream] = struct.unpack(">I", b"\0" + head[:3]), head[3], head[4], struct.unpack(">I", head[5:])
            payload = talk.read(size)
            if kind == SETTINGS and not flags & 1:
                talk.send(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags & 1:
                talk.send(frame(PING, 1, 0, payload))
            elif kind == DATA:
                bodies[stream] = bodies.get(stream, b"") + payload
                if flags & END_STREAM:
                    talk.answer(Request(bodies.pop(stream), stream))

    def head(self, stream: int) -> bytes:
        return frame(HEADERS, END_HEADERS, stream, fields(status="200", content_type="application/grpc"))

    def answer(self, request: Request, refused: bool = False) -> bytes:
        stream = request.about
        if refused:  # INVALID_ARGUMENT
            return frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(status="200", content_type="application/grpc", grpc_status="3", grpc_message="not%20this"))
        return self.head(stream) + frame(DATA, 0, stream, bytes(5)) + frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(grpc_status="0"))

    def enormous(self, request: Request) -> bytes:
        return b"\xff\xff\xff" + bytes([DATA, 0]) + struct.pack(">I", request.about)

    def wrong_order(self, request: Request) -> bytes:
        stream = request.about
        return frame(DATA, 0, stream, bytes(5)) + frame(CONTINUATION, END_HEADERS, stream, fields(grpc_status="0")) + self.head(stream)

    def unknown(self, request: Request) -> bytes:
        return b"".join(self.head(stream) + frame(HEADERS, END_HEADERS | END_STREAM, stream, fields(grpc_status="0")) for stream in (request.about + 1000, 2))

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        return self.head(request.about), frame(DATA, 0, request.about, bytes(16384))
