"""A network namespace, connected to the machine's by a pair of veth devices: a network that can be cut."""

import ctypes
import itertools
import os
import shutil
import subprocess
from pathlib import Path

_numbers = itertools.count()
_CLONE_NEWNET = 0x40000000
_PREFIX = "outbox-"
_CONFIGURATION = Path("/etc/netns")  # `ip netns exec` mounts the files in NAME/ over those in /etc


class NotPermitted(Exception):
    pass


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise NotPermitted(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _forget_the_dead() -> None:
    """Removes the namespaces of runs that were killed."""
    for file in Path("/run/netns").glob(f"{_PREFIX}*"):
        if not Path("/proc", file.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            subprocess.run(["ip", "netns", "delete", file.name], capture_output=True)
            shutil.rmtree(_CONFIGURATION / file.name, ignore_errors=True)


class Namespace:
    """`address` is inside, and can be reached from the machine until the link is cut."""

    def __init__(self):
        _forget_the_dead()
        # Several runs on one machine must not collide: each uses four addresses of 10.128.0.0/9.
        place = (os.getpid() % 65536) * 32 + next(_numbers) % 32
        base = (10 << 24 | 1 << 23) + place * 4
        here, self.address = (".".join(str(base + n >> shift & 255) for shift in (24, 16, 8, 0)) for n in (1, 2))
        self.name = f"{_PREFIX}{os.getpid()}-{place % 32}"
        self._device = f"ob{place:x}"
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self._device, "type", "veth", "peer", "name", "eth0", "netns", self.name)
            _ip("address", "add", f"{here}/30", "dev", self._device)
            _ip("link", "set", self._device, "up")
            for command in (["address", "add", f"{self.address}/30", "dev", "eth0"], ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
                _ip("-n", self.name, *command)
            _ip("netns", "exec", self.name, "true")
        except (OSError, NotPermitted):
            self.close()
            raise

    def cut(self) -> None:
        """Drops all packets silently in both directions."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        _ip("-n", self.name, "link", "set", "eth0", "up")

    def throttle(self, rate: str) -> None:
        """Queues packets from inside: responses arrive late."""
        _tc = ["tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "4kb", "latency", "10s"]
        subprocess.run(_tc, check=True, capture_output=True)

    def add_address(self, address: str) -> None:
        """Adds an address that leads only to the namespace itself."""
        _ip("-n", self.name, "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))

    def use_resolver(self, address: str) -> None:
        """Sets the resolver of processes that are started inside from now on."""
        directory = _CONFIGURATION / self.name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "resolv.conf").write_text(f"nameserver {address}\noptions timeout:1 attempts:1\n")

    def connects(self) -> int:
        """How many TCP connections were opened from inside."""
        lines = subprocess.run([*self.command(), "cat", "/proc/net/snmp"], check=True, capture_output=True, text=True).stdout.splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("ActiveOpens")])

    def command(self) -> list[str]:
        """The command prefix that runs a program inside."""
        return ["ip", "netns", "exec", self.name]

    def enter(self) -> None:
        """Moves the calling thread inside: its new sockets are created there."""
        with open(f"/run/netns/{self.name}") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        """The devices are removed when the last process inside has ended."""
        subprocess.run(["ip", "link", "delete", self._device], capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)
        shutil.rmtree(_CONFIGURATION / self.name, ignore_errors=True)

    stop = kill = close
