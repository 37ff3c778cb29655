"""A real webhook endpoint that verifies Standard Webhooks signatures, and fails on demand."""

import asyncio
import json
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
from standardwebhooks import Webhook, WebhookVerificationError

from .namespace import Namespace
from .process import Part, free_port

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # the public example of the specification


@dataclass
class Delivery:
    """One received request."""

    path: str
    headers: dict[str, str]  # header names in lower case
    body: bytes
    verified: bool | None  # None: there is no secret to verify with
    at: float = field(default_factory=time.time)
    answered: int | None = None  # the status of the response; None if there was none

    @property
    def id(self) -> str | None:
        return self.headers.get("webhook-id")

    def json(self) -> Any:
        return json.loads(self.body)

    def accepted(self) -> bool:
        return self.answered is not None and 200 <= self.answered < 300


# ---- how to answer: Receiver.mode is one of these, or a function from a Delivery to one of these ----------------


@dataclass
class Status:
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0


@dataclass
class Raw:
    """Sends bytes instead of an HTTP response, then closes the connection."""

    data: bytes


@dataclass
class Hang:
    """Sends no response until Receiver.release() is called."""


@dataclass
class Huge:
    """Sends an endless body as fast as the client reads it."""

    size: int = 1 << 30


@dataclass
class Open:
    """Sends a complete head and the beginning of a body, and never its end."""


OK = Status()
EMPTY = Raw(b"")
HANG = Hang()
HUGE = Huge()


def status(code: int, retry_after: int | str | None = None, body: bytes = b"") -> Status:
    return Status(code, {} if retry_after is None else {"Retry-After": str(retry_after)}, body)


def slow(seconds: float) -> Status:
    return Status(delay=seconds)


def redirect(location: str, code: int = 302) -> Status:
    return Status(code, {"Location": location})


def garbage() -> Raw:
    return Raw(b"\x00\xff no HTTP at all " + os.urandom(200) + b"\r\n\r\n")


Mode = Status | Raw | Hang | Huge | Open


class Receiver(Part):
    def __init__(self, secret: str | None = None, mode: Mode | Callable[[Delivery], Mode] = OK,
                 on_delivery: Callable[[Delivery], None] | None = None, namespace: Namespace | None = None,
                 tls: ssl.SSLContext | None = None, address: str | None = None):
        """`on_delivery` is called for each answered request, on the receiver's thread. `namespace`: where it
        listens, at its address or at `address`. `tls`: uses https."""
        self.mode = mode
        self.deliveries: list[Delivery] = []
        self.bytes_sent = 0
        self.open_requests = 0
        self.most_open_requests = 0
        self.connections: set[_Connection] = set()
        self._hanging: list[tuple[_Connection, Delivery]] = []
        self.on_delivery = on_delivery
        self._webhook = Webhook(secret) if secret else None
        self.port = free_port()
        self._namespace = namespace
        self._tls = tls
        self.address = address or (namespace.address if namespace else "127.0.0.1")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}:{self.port}/hook"

    def start(self) -> None:
        """Starts listening; after a stop, on the same port."""
        if self._loop:
            return
        loop = self._loop = asyncio.new_event_loop()
        listening = threading.Event()
        failure: list[Exception] = []

        async def listen():
            try:
                self._server = await loop.create_server(lambda: _Connection(self), self.address, self.port, backlog=512, ssl=self._tls)
            except OSError as e:
                failure.append(e)
            listening.set()

        def serve():
            if self._namespace:
                self._namespace.enter()
            asyncio.set_event_loop(loop)
            loop.create_task(listen())
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=serve, name="receiver", daemon=True)
        self._thread.start()
        listening.wait()
        if failure:
            self._server = None
            self.stop()
            raise failure[0]

    def stop(self) -> None:
        """Closes all connections and the port: from then on connections are refused."""
        if not self._loop:
            return
        loop, self._loop = self._loop, None

        async def close():
            if self._server:
                self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}  # connections that are being accepted
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while self.connections:
                for connection in list(self.connections):
                    connection.transport.abort()
                await asyncio.sleep(0)
            loop.stop()

        asyncio.run_coroutine_threadsafe(close(), loop)
        self._thread.join()

    kill = stop

    def accepted(self) -> list[Delivery]:
        """The requests that got a 2xx, in order of arrival."""
        return [d for d in list(self.deliveries) if d.accepted()]

    def payloads(self) -> list:
        """The payloads of their events, in format standard-webhooks."""
        return [d.json()["data"] for d in self.accepted()]

    def numbers(self, key: str) -> list[int]:
        """Of the events of Database.send()."""
        return [data["n"] for data in self.payloads() if data["key"] == key]

    def release(self, reply: Mode | Callable[[Delivery], Mode] = OK) -> None:
        """Answers the hanging requests, those too that are just arriving. Returns when it has."""
        async def answer():
            hanging, self._hanging = self._hanging, []
            for connection, delivery in hanging:
                connection._answer(delivery, reply(delivery) if callable(reply) else reply)

        if self._loop:
            asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def clear(self) -> None:
        self.deliveries.clear()

    def _verify(self, headers: dict[str, str], body: bytes) -> bool | None:
        if not self._webhook:
            return None
        try:
            self._webhook.verify(body, headers)
            return True
        except (WebhookVerificationError, ValueError):
            return False


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver):
        self._receiver = receiver
        self._parser = httptools.HttpRequestParser(self)
        self._may_write: Callable[[], None] | None = None
        self._waiting = False  # a request of this connection has no response yet

    # ---- asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport) -> None:
        self.transport = transport
        self._receiver.connections.add(self)

    def connection_lost(self, _) -> None:
        self._receiver.connections.discard(self)
        self._done()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._reply(Status(400))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._may_write:
            self._may_write()

    # ---- httptools ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._paused = b"", {}, [], False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "surrogateescape")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        receiver = self._receiver
        body = b"".join(self._body)
        delivery = Delivery(self._url.decode("latin-1"), self._headers, body, receiver._verify(self._headers, body))
        receiver.open_requests += 1
        receiver.most_open_requests = max(receiver.most_open_requests, receiver.open_requests)
        self._waiting = True
        receiver.deliveries.append(delivery)
        if delivery.verified is False:
            return self._answer(delivery, Status(401, body=b"bad signature"))
        mode = receiver.mode(delivery) if callable(receiver.mode) else receiver.mode
        if isinstance(mode, Status) and mode.delay:
            asyncio.get_running_loop().call_later(mode.delay, self._answer, delivery, mode)
        else:
            self._answer(delivery, mode)

    # ---- answers -----------------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery, mode: Mode) -> None:
        if self.transport.is_closing():
            return
        if isinstance(mode, Hang):
            self._receiver._hanging.append((self, delivery))
            return
        if isinstance(mode, Raw):
            self.transport.write(mode.data)
            self.transport.close()
        elif isinstance(mode, Open):
            delivery.answered = 200
            self.transport.write(b"HTTP/1.1 200 .\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok\n\r\n")
        elif isinstance(mode, Huge):
            delivery.answered = 200
            self._pour(mode.size)
        else:
            delivery.answered = mode.code
            self._reply(mode)
        self._done()
        if self._receiver.on_delivery:
            self._receiver.on_delivery(delivery)

    def _done(self) -> None:
        if self._waiting:
            self._waiting = False
            self._receiver.open_requests -= 1

    def _reply(self, reply: Status) -> None:
        head = [f"HTTP/1.1 {reply.code} .", *(f"{name}: {value}" for name, value in reply.headers.items())]
        if reply.code != 204:
            head.append(f"Content-Length: {len(reply.body)}")
        self.transport.write("\r\n".join(head).encode() + b"\r\n\r\n" + reply.body)

    def _pour(self, size: int) -> None:
        chunk = b"x" * 65536
        self.transport.write(f"HTTP/1.1 200 .\r\nContent-Length: {size}\r\n\r\n".encode())
        left = size

        def pour():
            nonlocal left
            while left > 0 and not self._paused and not self.transport.is_closing():
                self.transport.write(chunk[:left])
                self._receiver.bytes_sent += min(left, len(chunk))
                left -= len(chunk)

        self._may_write = pour
        pour()
