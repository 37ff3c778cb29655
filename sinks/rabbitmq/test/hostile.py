"""A broker that attacks: it knows as much of AMQP 0-9-1 as a publisher needs."""

import struct

from hostile import Fake, Request, Talk
from strange_broker import BODY, HEADER, HEARTBEAT, METHOD, START, frame, long, method, short, tune


def settled(channel: int, tag: int, method_id: int) -> bytes:
    return method(channel, 60, method_id, struct.pack(">QB", tag, 0))


class Broker(Fake):
    extension = "outbox_rabbitmq"
    chatter = frame(HEARTBEAT, 0, b"")
    nonsense = tune(8)

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_rabbitmq OPTIONS (hosts '127.0.0.1:{self.port}', exchange 'e'{more})"]

    def serve(self, talk: Talk) -> None:
        talk.read(8)
        talk.send(START)
        tags: dict[int, int] = {}
        left, body = 0, b""
        while True:
            kind, channel, size = struct.unpack(">BHI", talk.read(7))
            payload = talk.read(size + 1)[:-1]
            if kind == METHOD:
                which = struct.unpack(">HH", payload[:4])
                if which == (20, 10):
                    tags[channel] = 0
                self._on_method(talk, channel, which)
            elif kind in (HEADER, BODY):
                left = struct.unpack(">Q", payload[4:12])[0] if kind == HEADER else left - size
                body = payload if kind == HEADER else body + payload
                if left == 0:
                    tags[channel] = tags.get(channel, 0) + 1
                    talk.answer(Request(body, (channel, tags[channel])))

    def _on_method(self, talk: Talk, channel: int, which: tuple[int, int]) -> None:
        usual = {
            (10, 11): self.nonsense if talk.attack.name == "nonsense limits" else tune(131072),
            (10, 40): method(0, 10, 41, b"\x00"),
            (20, 10): method(channel, 20, 11, long(b"")),
            (85, 10): method(channel, 85, 11),
            (40, 10): method(channel, 40, 11),
        }
        if which in usual:
            talk.send(usual[which])

    def answer(self, request: Request, refused: bool = False) -> bytes:
        channel, tag = request.about
        if refused:  # larger than max_message_size
            return method(channel, 20, 40, struct.pack(">H", 406) + short(b"PRECONDITION_FAILED - message size is larger than configured max size") + bytes(4))
        return settled(channel, tag, 80)

    def enormous(self, request: Request) -> bytes:
        return struct.pack(">BHI", BODY, request.about[0], 2**32 - 1)

    def wrong_order(self, request: Request) -> bytes:
        channel = request.about[0]
        return frame(HEADER, channel, struct.pack(">HHQH", 60, 0, 0, 0)) + method(channel, 85, 11) + method(0, 10, 41, b"\x00") + method(2, 40, 11)

    def unknown(self, request: Request) -> bytes:
        channel = request.about[0]
        return settled(channel, 2**63, 80) + settled(channel, 2**40, 120) + settled(channel, 10**6, 80)

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        """A message comes back whose body is as long as a number can be."""
        channel = request.about[0]
        returned = method(channel, 60, 50, struct.pack(">H", 312) + short(b"NO_ROUTE") + short(b"e") + short(b"k"))
        return returned + frame(HEADER, channel, struct.pack(">HHQH", 60, 0, 2**63, 0)), frame(BODY, channel, b"x" * 60_000)
