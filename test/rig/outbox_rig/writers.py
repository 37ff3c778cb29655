"""Threads that write until they are stopped."""

import threading


class Writers:
    """Runs write(number) on `count` threads for the duration of a `with` block, repeatedly until `stopping` is set."""

    def __init__(self, count: int):
        self.stopping = threading.Event()
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._run, args=[number]) for number in range(count)]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Raises the first error of a thread."""
        self.stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self, number: int) -> None:
        try:
            self.write(number)
        except Exception as e:
            self.errors.append(e)

    def write(self, number: int) -> None:
        raise NotImplementedError
