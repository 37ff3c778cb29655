"""Waiting on conditions, never for luck."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 30, what: str | Callable[[], str] = "the condition",
               interval: float = 0.02) -> T:
    """The first true value of condition(). TimeoutError after `timeout` seconds, saying `what` did not come true."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise TimeoutError(f"waited {timeout:g} s in vain for {said}; last value: {value!r}")
        time.sleep(interval)
