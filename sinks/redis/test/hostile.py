"""A Redis that attacks: it knows as much of the protocol as a writer needs."""

from hostile import Fake, Request, Talk


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text.encode())


HELLO = b"*14\r\n" + b"".join(map(bulk, ["server", "redis", "version", "7.0.0"])) + bulk("proto") + b":2\r\n" + bulk("id") + b":3\r\n" + \
    b"".join(map(bulk, ["mode", "standalone", "role", "master", "modules"])) + b"*0\r\n"
USUAL = {b"HELLO": HELLO, b"PING": b"+PONG\r\n", b"WAIT": b":1\r\n", b"TYPE": b"+none\r\n", b"CONFIG": b"*0\r\n"}


class Redis(Fake):
    extension = "outbox_redis"
    chatter = b"$400000\r\n"  # the beginning of a reply: Redis sends nothing that was not asked for
    passes = {"flood beside answers": "nothing"}
    without = {"unknown id": "replies have no ids", "nonsense limits": "Redis tells no limits"}
    entries = 0

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_redis OPTIONS (hosts '127.0.0.1:{self.port}', stream 's'{more})"]

    def serve(self, talk: Talk) -> None:
        while True:
            words = []
            for _ in range(int(talk.line()[1:])):
                words.append(talk.read(int(talk.line()[1:])))
                talk.read(2)
            if words[0] == b"XADD":
                talk.answer(Request(b"\0".join(words)))
            else:
                talk.send(USUAL.get(words[0], b"+OK\r\n"))

    def answer(self, request: Request, refused: bool = False) -> bytes:
        if refused:
            return b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n"
        self.entries += 1
        return bulk(f"1-{self.entries}")

    def enormous(self, request: Request) -> bytes:
        return b"$1000000000000000\r\n"

    def wrong_order(self, request: Request) -> bytes:
        return b"+PONG\r\n:1\r\n*0\r\n"

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        return b"+", b"x" * 10000
