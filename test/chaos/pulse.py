"""Detects that this process stood still. The endpoint, which runs in it, then answered no request, and may have
accepted a request whose sender had timed out long ago."""

import threading
import time

BEAT_S = 0.05
LATE_S = 0.5  # well below the timeout of the webhook sink


class Pulse(threading.Thread):
    def __init__(self):
        super().__init__(name="pulse", daemon=True)
        self._stalls: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        last = time.time()
        while True:
            time.sleep(BEAT_S)
            now = time.time()
            if now - last > BEAT_S + LATE_S:
                self._stalls.append((last, now))
            last = now

    def stalls(self) -> list[tuple[float, float]]:
        """The stalls since the last call."""
        found, self._stalls = self._stalls, []
        return found
