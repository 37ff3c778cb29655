"""A NATS server that attacks: it knows as much of the protocol as a publisher needs."""

import json

from hostile import Fake, Request, Talk

INFO = {"server_id": "x", "version": "2.10.0", "headers": True, "max_payload": 1048576}


def message(subject: bytes, body: bytes) -> bytes:
    return b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(body), body)


class NatsServer(Fake):
    extension = "outbox_nats"
    chatter = b"+OK\r\n"
    lines = True
    nonsense = {"max_payload": 1}
    sequence = 0

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_nats OPTIONS (hosts '127.0.0.1:{self.port}'{more})"]

    def serve(self, talk: Talk) -> None:
        nonsense = self.nonsense if talk.attack.name == "nonsense limits" else {}
        talk.send(b"INFO " + json.dumps(INFO | nonsense).encode() + b"\r\n")
        while True:
            line = talk.line()
            words = line.split()
            if words[0] == b"PING":
                talk.send(b"PONG\r\n")
            elif words[0] in (b"PUB", b"HPUB"):
                body = talk.read(int(words[-1]) + 2)
                if not body.endswith(b"\r\n") or len(words) != (5 if words[0] == b"HPUB" else 4):
                    self.faults.append(f"a message that cannot be read: {line!r}")
                headers = body[:int(words[3])] if words[0] == b"HPUB" else b""
                talk.answer(Request(headers + body, words[2]))
            elif words[0] not in (b"CONNECT", b"SUB", b"UNSUB", b"PONG"):
                self.faults.append(f"an operation that nobody knows: {line!r}")

    def answer(self, request: Request, refused: bool = False) -> bytes:
        if refused:
            return message(request.about, b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}')
        self.sequence += 1
        return message(request.about, b'{"stream":"S", "seq":%d}' % self.sequence)

    def enormous(self, request: Request) -> bytes:
        return b"MSG %s 1 99999999999999\r\n" % request.about

    def wrong_order(self, request: Request) -> bytes:
        return b"INFO {}\r\nPONG\r\n" * 3 + b'{"stream":"S", "seq":1}\r\n'

    def unknown(self, request: Request) -> bytes:
        inbox = request.about.rsplit(b".", 1)[0]
        return b"".join(message(subject, b'{"stream":"S", "seq":1}') for subject in (inbox + b".999999", inbox + b".x", inbox, b"other.1"))

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        return b"INFO ", b"x" * 10000
