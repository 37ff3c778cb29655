"""The messages that the tests read from the server."""

import asyncio
import time
from typing import NamedTuple

from nats.errors import ConnectionClosedError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamConfig
from nats.js.errors import ServiceUnavailableError
from outbox_rig.wait import patient

from nats_server import Server


class Message(NamedTuple):
    subject: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["id"] if "id" in self.headers else self.headers.get("ce-id") or self.headers["Nats-Msg-Id"][:36]


class Stream:
    """A stream, and what has arrived in it."""

    def __init__(self, server: Server, name: str, subjects: list[str] = [], create: bool = True, **config):
        self.server, self.name, self.subjects, self.config = server, name, subjects or [f"{name}.>"], config
        self.messages: list[Message] = []
        if create:
            self.create()

    def create(self) -> None:
        self.server.run(lambda js: js.add_stream(StreamConfig(name=self.name, subjects=self.subjects, **self.config)))

    def delete(self) -> None:
        self.server.run(lambda js: js.delete_stream(self.name))

    def update(self, **config) -> None:
        self.config |= config
        self.server.run(lambda js: js.update_stream(StreamConfig(name=self.name, subjects=self.subjects, **self.config)))

    def purge(self) -> None:
        self.server.run(lambda js: js.purge_stream(self.name))

    def _state(self):
        return self._again(lambda js: js.stream_info(self.name), time.monotonic() + patient(60)).state

    def count(self) -> int:
        return self._state().messages

    def _again(self, work, deadline: float):
        """Returns the result of `work`, which begins anew while a cluster chooses a leader, and when the server has ended a connection that reads too slowly."""
        while True:
            try:
                return self.server.run(work)
            except (ConnectionClosedError, ServiceUnavailableError):
                if time.monotonic() > deadline:
                    raise

    def read(self, n: int, seconds: float = 60) -> list[Message]:
        """Reads until `n` messages have arrived in all."""
        deadline = time.monotonic() + patient(seconds)

        async def work(js) -> None:
            if len(self.messages) >= n:
                return
            consumer = await js.pull_subscribe("", stream=self.name, config=ConsumerConfig(
                ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=len(self.messages) + 1, inactive_threshold=30))
            while len(self.messages) < n:
                try:
                    for message in await consumer.fetch(1000, timeout=0.3):
                        self.messages.append(Message(message.subject, dict(message.headers or {}), message.data))
                except asyncio.TimeoutError:
                    assert time.monotonic() < deadline, f"{len(self.messages)} of {n} messages arrived"
                await asyncio.sleep(0)

        self._again(work, deadline)
        return self.messages

    def read_all(self) -> list[Message]:
        return self.read(self._state().last_seq)  # also of those that were deleted after they were read
