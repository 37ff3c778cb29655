"""A small volume for PostgreSQL, which can be full."""

import os
import pwd
import subprocess
import tempfile
from pathlib import Path


class NotPermitted(Exception):
    pass


class Volume:
    """`fill` lowers the volume's size to what it holds, so a full one takes no more memory than its files."""

    def __init__(self, megabytes: int):
        self._size = megabytes * 1024 * 1024
        self.path = Path(tempfile.mkdtemp(prefix="outbox-volume-", dir="/tmp"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", self.path], capture_output=True, text=True)
        if done.returncode:
            self.path.rmdir()
            raise NotPermitted(f"no volume can be mounted here: {done.stderr.strip()}")
        user = pwd.getpwnam("postgres")
        os.chown(self.path, user.pw_uid, user.pw_gid)

    def fill(self, leaving: int = 0) -> None:
        """Fills the volume except for `leaving` bytes."""
        for _ in range(100):  # a size below what a writer has just used is refused
            state = os.statvfs(self.path)
            if self._resize((state.f_blocks - state.f_bfree) * state.f_frsize + leaving):
                return
        raise RuntimeError(f"{self.path} cannot be filled")

    def free(self) -> None:
        if not self._resize(self._size):
            raise RuntimeError(f"{self.path} cannot be freed")

    def _resize(self, size: int) -> bool:
        return subprocess.run(["mount", "-o", f"remount,size={size}", self.path], capture_output=True).returncode == 0

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=True)
        self.path.rmdir()

    stop = kill = close
