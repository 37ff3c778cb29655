"""Notices when this process stood still: the endpoint, a part of it, answered nobody meanwhile, and may have taken a
request whose sender had long given up."""

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
        """When, since the last time it was asked."""
        found, self._stalls = self._stalls, []
        return found
