"""Waits for conditions instead of sleeping, and knows how long to wait before it calls something hung.

A bound in a test is written for a quiet machine. $PATIENCE, which suites.py sets, makes every bound longer in one place, so that a loaded machine fails
no test; a test that passes takes as long as before. A bound that is itself what a test asserts is `exactly`."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = float(os.environ.get("PATIENCE") or 1)
LEAST_S = 60 if PATIENCE > 1 else 0


def patient(seconds: float) -> float:
    """How long to wait for something that takes at most `seconds` on a quiet machine."""
    return max(seconds * PATIENCE, LEAST_S)


class Deadline:
    def __init__(self, seconds: float, exactly: bool = False):
        """`seconds`: on a quiet machine, or `exactly` those on any."""
        self.seconds = seconds if exactly else patient(seconds)
        self._end = time.monotonic() + self.seconds

    def over(self) -> bool:
        return time.monotonic() > self._end

    def left(self) -> float:
        return self._end - time.monotonic()

    def sleep(self, interval: float) -> None:
        """Time in which this process stood still, for example because the machine was suspended, does not count."""
        began = time.monotonic()
        time.sleep(interval)
        self.give_back(began, interval)

    def give_back(self, began: float, interval: float) -> None:
        """The same for another pause of at most `interval` that began at `began`."""
        stood_still = time.monotonic() - began - interval
        if stood_still > 0.5:
            self._end += stood_still


def wait_until(condition: Callable[[], T], timeout: float = 30, what: str | Callable[[], str] = "the condition",
               interval: float = 0.02, exactly: bool = False) -> T:
    """Returns the first true value of condition(). Raises TimeoutError with `what` after patient(timeout) seconds, or
    `exactly` after `timeout`."""
    deadline = Deadline(timeout, exactly)
    while True:
        value = condition()
        if value:
            return value
        if deadline.over():
            said = what() if callable(what) else what
            raise TimeoutError(f"waited {deadline.seconds:g} s in vain for {said}; last value: {value!r}")
        deadline.sleep(interval)
