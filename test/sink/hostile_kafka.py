"""A Kafka broker that attacks: it knows the four requests of an idempotent producer, in old versions of them."""

import struct

from hostile import Fake, Request, Talk

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
VERSIONS = {PRODUCE: 7, FETCH: 4, METADATA: 2, API_VERSIONS: 0, INIT_PRODUCER_ID: 1}
UNSUPPORTED_VERSION, INVALID_RECORD = 35, 87


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def response(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


class Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        [value] = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def bytes(self, length: int) -> bytes:
        self.at += max(length, 0)
        return self.data[self.at - max(length, 0):self.at]

    def string(self) -> bytes:
        return self.bytes(self.take("h"))


class Broker(Fake):
    extension = "outbox"
    chatter = response(987654321)
    offset = 0
    passes = {"flood beside answers": "nothing"}  # a broker is hung up on after a thousand answers that nobody has asked for
    gaps = {"unknown id": "librdkafka reads no names of topics in the answer to its request, so one for another topic counts"}
    without = {"nonsense limits": "a producer believes no limit of a broker"}

    def statements(self, more: str) -> list[str]:
        return [f"CREATE SERVER sut FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:{self.port}'{more})"]

    def serve(self, talk: Talk) -> None:
        while True:
            [size] = struct.unpack(">i", talk.read(4))
            reader = Reader(talk.read(size))
            api, version, correlation = reader.take("h"), reader.take("h"), reader.take("i")
            reader.string()
            if api == API_VERSIONS:
                error = UNSUPPORTED_VERSION if version > 0 else 0
                talk.send(response(correlation, struct.pack(">hi", error, len(VERSIONS)) + b"".join(struct.pack(">hhh", key, 0, most) for key, most in VERSIONS.items())))
            elif api == METADATA:
                talk.send(response(correlation, self._metadata([reader.string() for _ in range(max(reader.take("i"), 0))])))
            elif api == INIT_PRODUCER_ID:
                talk.send(response(correlation, struct.pack(">ihqh", 0, 0, 1, 0)))
            elif api == PRODUCE:
                talk.answer(Request(reader.data, (correlation, self._partitions(reader))))

    def _metadata(self, topics: list[bytes]) -> bytes:
        partition = struct.pack(">hii", 0, 0, 1) + struct.pack(">ii", 1, 1) * 2
        return (struct.pack(">ii", 1, 1) + string(b"127.0.0.1") + struct.pack(">ih", self.port, -1) + string(b"cluster") + struct.pack(">ii", 1, len(topics))
                + b"".join(struct.pack(">h", 0) + string(topic) + struct.pack(">bi", 0, 1) + partition for topic in topics))

    def _partitions(self, reader: Reader) -> list[tuple[bytes, int]]:
        reader.string()
        reader.take("h")
        reader.take("i")
        found = []
        for _ in range(reader.take("i")):
            topic = reader.string()
            for _ in range(reader.take("i")):
                found.append((topic, reader.take("i")))
                reader.bytes(reader.take("i"))
        return found

    def _of(self, correlation: int, partitions: list[tuple[bytes, int]], error: int) -> bytes:
        self.offset += 1000
        body = struct.pack(">i", len(partitions)) + b"".join(
            string(topic) + struct.pack(">iihqqq", 1, partition, error, self.offset if not error else -1, -1, 0) for topic, partition in partitions)
        return response(correlation, body + struct.pack(">i", 0))

    def answer(self, request: Request, refused: bool = False) -> bytes:
        return self._of(*request.about, INVALID_RECORD if refused else 0)

    def enormous(self, request: Request) -> bytes:
        return struct.pack(">ii", 2**31 - 1, request.about[0])

    def wrong_order(self, request: Request) -> bytes:
        return response(request.about[0] - 1) + response(request.about[0] + 1)

    def unknown(self, request: Request) -> bytes:
        correlation, partitions = request.about
        return self._of(correlation + 1000, partitions, 0) + self._of(correlation, [(topic + b"x", 77) for topic, _ in partitions], 0)

    def endless(self, request: Request) -> tuple[bytes, bytes]:
        return struct.pack(">iii", 90_000_000, request.about[0], 2**31 - 1), string(b"topic") + struct.pack(">iihqqq", 1, 0, 0, 1, -1, 0)
