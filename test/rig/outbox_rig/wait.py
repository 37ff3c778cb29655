"""Waits for conditions instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 30, what: str | Callable[[], str] = "the condition",
               interval: float = 0.02) -> T:
    """Returns the first true value of condition(). Raises TimeoutError with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise TimeoutError(f"waited {timeout:g} s in vain for {said}; last value: {value!r}")
        time.sleep(interval)
