"""Peers that do what no peer should: the attacks that outbox-sink-test plays on every kind, and what a kind's fake peer is made of (sinks/new-sink.md).

A fake peer speaks its protocol as far as a sink needs it. It takes no message apart: what it gets from a sink is a Request, and the tags in it say which
events it holds. Whatever it answers to one goes through Talk.answer(), which plays the attack."""

import contextlib
import random
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

TAG = re.compile(rb"tag-\d{6}")
POISON = b"poison"  # is in the payload of an event to which the peer objects
INJECTED = re.compile(rb"^injected\b", re.MULTILINE | re.IGNORECASE)  # a line of its own only if an event's text has become one of the protocol
MEGABYTE = b"x" * 1_000_000


@dataclass
class Request:
    """What a sink wants to be acknowledged at once; `about` is the fake's own, such as the number by which it answers."""
    body: bytes
    about: object = None
    tags: list[str] = field(init=False)
    poison: bool = field(init=False)

    def __post_init__(self):
        self.tags = list(dict.fromkeys(tag.decode() for tag in TAG.findall(self.body)))
        self.poison = POISON in self.body


class Fake:
    """The base of a kind's fake peer. It has a class attribute `extension`, statements(), serve() and answer(); each of the others makes an attack possible,
    and `without` says why one is not."""

    without: dict[str, str] = {}  # attack -> why this kind cannot be attacked so
    gaps: dict[str, str] = {}  # attack -> what this kind is known not to stand, and why
    passes: dict[str, str] = {}  # attack -> what gets through, where that differs from the table's
    chatter = b""  # what the peer may send whenever it likes, and means nothing
    keeps_idle = False  # a sink that is dropped may leave connections open on which nothing is in flight
    lines = False  # the protocol has lines, in which an event's text could become one

    def __init__(self):
        self.attack: Attack = HEALTHY
        self.acknowledged: set[str] = set()  # tags
        self.seen: set[str] = set()
        self.faults: list[str] = []
        self.talks: set[Talk] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    # ---- what a kind says ----

    extension: str

    def statements(self, more: str) -> list[str]:
        """SQL that creates the sink `sut`; `more` are further options, which begin with a comma."""
        raise NotImplementedError

    def serve(self, talk: "Talk") -> None:
        """Speaks with a sink until it hangs up: every request goes to talk.answer(Request(...))."""
        raise NotImplementedError

    def answer(self, request: Request, refused: bool = False) -> bytes:
        """What a healthy peer answers: all of the request is stored, or nothing of it, with the protocol's own words for "not this event"."""
        raise NotImplementedError

    def stored_besides(self, request: Request) -> list[str]:
        """The tags of those that the refusal of a request with one bad event says are stored."""
        return []

    # ---- the frame ----

    def possible(self, attack: "Attack") -> str:
        """Why it is not, or nothing."""
        if attack.name in self.without:
            return self.without[attack.name]
        return "" if not attack.needs or getattr(self, attack.needs, b"") else f"the fake has no {attack.needs}"

    def play(self, attack: "Attack") -> None:
        """From now on, for new connections; the others end."""
        self.attack = attack
        self.hang_up()

    def hang_up(self) -> None:
        with self._lock:
            talks = list(self.talks)
        for talk in talks:
            talk.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                talk = Talk(self, self._listener.accept()[0])
                with self._lock:
                    self.talks.add(talk)
                threading.Thread(target=self._serve, args=(talk,), daemon=True).start()

    def _serve(self, talk: "Talk") -> None:
        try:
            with contextlib.suppress(OSError, EOFError, ValueError, struct.error):
                self.serve(talk)
        finally:
            talk.close()
            with self._lock:
                self.talks.discard(talk)

    def note(self, request: Request) -> None:
        self.seen.update(request.tags)
        if self.lines and INJECTED.search(request.body):
            self.faults.append(f"an event's text has become a line of the protocol: {request.body[:500]!r}")

    def acknowledge(self, request: Request) -> None:
        self.acknowledged.update(request.tags)


class Talk:
    """A sink's connection, as its fake peer sees it."""

    def __init__(self, fake: Fake, client: socket.socket):
        self.fake, self._client, self._reader, self._sends = fake, client, client.makefile("rb"), threading.Lock()
        self.attack, self.flooded, self.settled = fake.attack, False, True  # settled: all that was asked is answered
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, n: int) -> bytes:
        data = self._reader.read(n)
        if len(data) < n:
            raise EOFError
        return data

    def line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line

    def send(self, data: bytes) -> None:
        with self._sends:
            self._client.sendall(data)

    def drip(self, data: bytes) -> None:
        for i in range(len(data)):
            self.send(data[i:i + 1])
            threading.Event().wait(min(0.01, 2 / len(data)))  # this is the attack; a long answer stays within a sink's timeout

    def forever(self, data: bytes) -> None:
        while True:
            self.send(data)

    def beside(self, data: bytes) -> None:
        """Sends it again and again, while answers go on."""
        def flood():
            with contextlib.suppress(OSError):
                self.forever(data)

        if not self.flooded:
            self.flooded = True
            threading.Thread(target=flood, daemon=True).start()

    def reset(self) -> None:
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._reader.close()
        self._client.close()  # with what was not read, or without a pause: RST
        raise EOFError

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def ack(self, request: Request) -> bytes:
        """The answer by which the request is acknowledged."""
        self.fake.acknowledge(request)
        return self.fake.answer(request)

    def refuse(self, request: Request) -> None:
        answer = self.fake.answer(request, refused=True)
        self.fake.acknowledged.update(self.fake.stored_besides(request) if request.poison else ())
        self.send(answer)
        self.settled = True

    def answer(self, request: Request) -> None:
        self.settled = False
        self.fake.note(request)
        self.attack.play(self, request)


# ---- the attacks ----

NOTHING, GOOD, EVERYTHING = "nothing", "all but one", "everything"  # gets through while it is played


@dataclass(frozen=True)
class Attack:
    name: str
    play: Callable[[Talk, Request], None]
    passes: str = NOTHING
    needs: str = ""  # of the fake
    events: str = "plain"  # or "poison", of which one is; "control", with control characters in each column
    busy: bool = False  # the peer sends as much as it can
    most_dead: int = 0  # events that may have become dead letters before ten keys in a row show that the peer refuses everything


ATTACKS: dict[str, Attack] = {}


def attack(name: str, **options) -> Callable:
    def add(play: Callable[[Talk, Request], None]) -> Callable:
        ATTACKS[name] = Attack(name, play, **options)
        return play

    return add


def healthy(talk: Talk, request: Request) -> None:
    talk.send(talk.ack(request))
    talk.settled = True


HEALTHY = Attack("healthy", healthy, EVERYTHING)


@attack("truncated frame")
def _(talk: Talk, request: Request) -> None:
    answer = talk.fake.answer(request)
    talk.send(answer[:len(answer) // 2])
    talk.close()


@attack("enormous length", needs="enormous", busy=True)
def _(talk: Talk, request: Request) -> None:
    talk.send(talk.fake.enormous(request))
    talk.forever(MEGABYTE)


@attack("wrong order", needs="wrong_order")
def _(talk: Talk, request: Request) -> None:
    talk.send(talk.fake.wrong_order(request))


@attack("unknown id", needs="unknown")
def _(talk: Talk, request: Request) -> None:
    talk.send(talk.fake.unknown(request))


@attack("duplicate answers", passes=EVERYTHING)
def _(talk: Talk, request: Request) -> None:
    talk.send(talk.ack(request) * 3)
    talk.settled = True
    threading.Event().wait(0.2)  # what is asked meanwhile is not acknowledged


@attack("flood", needs="chatter", busy=True)
def _(talk: Talk, request: Request) -> None:
    talk.beside(talk.fake.chatter * (100_000 // len(talk.fake.chatter) + 1))


@attack("flood beside answers", needs="chatter", passes=EVERYTHING, busy=True)
def _(talk: Talk, request: Request) -> None:
    talk.beside(talk.fake.chatter * (100_000 // len(talk.fake.chatter) + 1))
    talk.send(talk.ack(request))


@attack("drip", passes=EVERYTHING)
def _(talk: Talk, request: Request) -> None:
    talk.drip(talk.ack(request))
    talk.settled = True


@attack("endless drip", needs="chatter")
def _(talk: Talk, request: Request) -> None:
    while True:
        talk.drip(talk.fake.chatter)


@attack("never-ending answer", needs="endless", busy=True)
def _(talk: Talk, request: Request) -> None:
    begin, part = talk.fake.endless(request)
    talk.send(begin)
    talk.forever(part)


@attack("silence")
def _(talk: Talk, request: Request) -> None:
    pass


@attack("garbage")
def _(talk: Talk, request: Request) -> None:
    talk.send(random.Random(1).randbytes(1000))


@attack("reset at one event", passes=GOOD, events="poison")
def _(talk: Talk, request: Request) -> None:
    talk.reset() if request.poison else healthy(talk, request)


@attack("reset at every event")
def _(talk: Talk, request: Request) -> None:
    talk.reset()


@attack("nonsense limits", needs="nonsense")
def _(talk: Talk, request: Request) -> None:
    """The fake has said them at the login, or says them with its answer."""
    if talk.fake.passes.get("nonsense limits") == EVERYTHING:
        healthy(talk, request)


@attack("refused by everybody", most_dead=9)
def _(talk: Talk, request: Request) -> None:
    talk.refuse(request)


@attack("refused for one", passes=GOOD, events="poison")
def _(talk: Talk, request: Request) -> None:
    if request.poison:
        talk.refuse(request)
    else:
        healthy(talk, request)


@attack("control characters", passes=EVERYTHING, events="control")
def _(talk: Talk, request: Request) -> None:
    healthy(talk, request)

