"""A network in between: a proxy that delays each byte, in both directions."""

import asyncio
import contextlib
import threading

from .process import Part


class Delay(Part):
    """From `port` to the other port, both of this machine. It may be cut, and made whole again. `takes`: new connections; others are closed at
    once."""

    def __init__(self, port: int, to: int, round_trip_ms: float):
        self._port, self._to, self._delay = port, to, round_trip_ms / 2000
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.takes = True
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
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._one_way(reader, far_writer), self._one_way(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self._loop.call_later(self._delay, self._write, writer, data)
        self._loop.call_later(self._delay, writer.close)

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.is_closing():
            writer.write(data)
