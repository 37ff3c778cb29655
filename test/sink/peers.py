"""What somebody who writes a kind of sink says of its peer: a Python file with a class Peer (sinks/new-sink.md)."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass
class Arrival:
    """What the peer has got, in the order in which it got the events of a key."""
    id: str  # of the event
    payload: dict  # of the event


class Peer(Protocol):
    """Functions that make a fault and end it are optional, in pairs: what has none is not tested. Each returns when what it does is done."""
    extension: str  # for CREATE EXTENSION

    def __init__(self, directory: Path):
        """Starts the peer. `directory` is empty, and everybody may write there."""

    def statements(self) -> list[str]:
        """SQL that creates the sink `sut`, which takes all events."""

    def read(self) -> list[Arrival]:
        """What has arrived since the last call. The peer is healthy then."""

    def close(self) -> None: ...

    def kill(self) -> None: ...  # without a warning, as by kill -9
    def start(self) -> None: ...  # after kill(); nothing that the peer has acknowledged may be gone

    def hang(self) -> None: ...  # it keeps its connections and does not answer, as by kill -STOP
    def resume(self) -> None: ...

    def refuse(self) -> None: ...  # it answers that it cannot take events now
    def accept(self) -> None: ...

    def restart(self) -> None: ...


FAULTS = {"kill": "start", "hang": "resume", "refuse": "accept", "restart": ""}  # and what ends each


def load(path: Path) -> type[Peer]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, "Peer", None)
    if found is None:
        raise SystemExit(f"{path} has no class Peer")
    missing = [name for name in ("extension", "statements", "read", "close") if not hasattr(found, name)]
    missing += [f"{end}, which ends {begin}" for begin, end in FAULTS.items() if end and hasattr(found, begin) and not hasattr(found, end)]
    if missing:
        raise SystemExit(f"class Peer of {path} lacks: {'; '.join(missing)}")
    return found


def faults(peer: Peer) -> list[str]:
    return [name for name in FAULTS if hasattr(peer, name)]
