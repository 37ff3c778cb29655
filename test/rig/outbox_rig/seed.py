"""What a test draws at random: the same each time, except that `make nightly` sets $SEED."""

import os


def seed() -> int:
    """Prints it, so that what failed can be repeated."""
    number = int(os.environ.get("SEED") or 1)
    print(f"SEED={number}")
    return number
