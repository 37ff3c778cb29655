"""A network in between: a proxy that delays each byte, in both directions, and that can be made worse."""

import asyncio
import contextlib
import threading

from .process import Part

Connection = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Delay(Part):
    """From `port` to the other port, both of this machine. It may be cut, and made whole again. Each of these may be changed at any time.
    `takes`: new connections; others are closed at once. `held`: nothing passes, and nothing is lost. `loses_answers`: what the other port sends
    is dropped. `breaks_after`: so many bytes of a connection, which is then reset. `rate`: bytes per second of a connection in each
    direction."""

    def __init__(self, port: int, to: int, round_trip_ms: float):
        self._port, self._to, self._delay = port, to, round_trip_ms / 2000
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.takes, self.held, self.loses_answers = True, False, False
        self.breaks_after: int | None = None
        self.rate: float | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self.mend()

    def mend(self) -> None:
        async def listen() -> None:
            self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._run(listen())

    def cut(self) -> None:
        """Closes all connections and refuses new ones."""
        async def close() -> None:
            if self._server:
                self._server.close()
            for writer in self._writers:
                writer.transport.abort()
        self._run(close())

    def cut_one(self) -> None:
        """Closes one connection."""
        async def close() -> None:
            next(iter(self._writers)).transport.abort()
        self._run(close())

    def stop(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.takes:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, far_writer)
        self._writers |= {*both}
        try:
            await asyncio.gather(self._one_way(reader, far_writer, both, False), self._one_way(far_reader, writer, both, True))
        finally:
            self._writers -= {*both}

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: Connection, answers: bool) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 12 if self.rate else 1 << 16):
                while self.held:
                    await asyncio.sleep(0.01)
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
                passed += len(data)
                if self.breaks_after and passed > self.breaks_after:
                    for each in both:
                        each.transport.abort()
                elif not (answers and self.loses_answers):
                    self._loop.call_later(self._delay, self._write, writer, data)
        self._loop.call_later(self._delay, writer.close)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.is_closing():
            writer.write(data)
