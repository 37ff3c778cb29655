"""The disk itself: what a power cut leaves of a file, and calls that fail."""

import os
import random
import subprocess
import sys

import pytest
from disk import HEAP, SYNC, WAL, WRITE, Cut, Disk


class Certain(random.Random):
    """Chooses one kind of loss, and all else at random."""

    def __init__(self, how: str):
        super().__init__(1)
        self.how = how

    def choices(self, *_):
        return [self.how]


class Server:
    """Runs code with the disk preloaded, in a folder like a data directory."""

    def __init__(self, folder):
        self.folder, self.disk = folder / "data", Disk(folder / "disk")
        for name in ("pg_wal", "base"):
            (self.folder / name).mkdir(parents=True)

    def run(self, *lines: str) -> None:
        code = "\n".join(["import os", "f = os.open('pg_wal/1', os.O_RDWR | os.O_CREAT)", *lines])
        subprocess.run([sys.executable, "-c", code], cwd=self.folder, env=os.environ | self.disk.env(), check=True)

    def cut(self, how: str = "all is lost") -> Cut:
        return self.disk.cut(self.folder / "pg_wal", Certain(how))

    def content(self) -> bytes:
        return (self.folder / "pg_wal" / "1").read_bytes()


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_synced_writes_stay(server):
    for sync in ("fsync", "fdatasync"):
        server.run("os.pwrite(f, b'a' * 8192, 0)", "os.pwritev(f, [b'b' * 4096, b'c' * 4096], 4096)", f"os.{sync}(f)")
        assert not server.disk.is_unsynced() and server.cut() == Cut("all is lost")
        assert server.content() == b"a" * 4096 + b"b" * 4096 + b"c" * 4096


def test_writes_after_the_sync_are_lost(server):
    server.run("os.pwrite(f, b'a' * 8192, 0)", "os.fsync(f)", "os.pwrite(f, b'b' * 4096, 1000)", "os.lseek(f, 2000, 0)", "os.write(f, b'c' * 9000)")
    assert server.disk.is_unsynced() and len(server.content()) == 11000
    cut = server.cut()
    assert cut.writes == 2 and cut.sectors > 0
    assert server.content() == b"a" * 8192
    assert server.cut().writes == 0, "the cut is over"


def test_a_renamed_file_and_a_new_one_in_its_place(server):
    server.run("os.pwrite(f, b'a' * 512, 0)", "os.fsync(f)", "os.pwrite(f, b'b' * 512, 0)", "os.rename('pg_wal/1', 'pg_wal/2')",
               "f = os.open('pg_wal/1', os.O_RDWR | os.O_CREAT)", "os.pwrite(f, b'c' * 512, 0)", "os.fsync(f)")
    assert server.cut().sectors == 1
    assert (server.folder / "pg_wal" / "2").read_bytes() == b"a" * 512
    assert server.content() == b"c" * 512


@pytest.mark.parametrize("how, unit", [("sectors survive", 512), ("pages survive", 4096)])
def test_some_writes_survive_in_any_state(server, how, unit):
    server.run("os.pwrite(f, b'a' * 65536, 0)", "os.fsync(f)", "os.pwrite(f, b'b' * 65536, 0)", "os.pwrite(f, b'c' * 65536, 0)")
    server.cut(how)
    content = server.content()
    units = [content[at:at + unit] for at in range(0, 65536, unit)]
    assert {bytes(set(each)) for each in units} == {b"a", b"b", b"c"}


def test_a_prefix_survives(server):
    server.run("os.pwrite(f, b'a' * 65536, 0)", "os.fsync(f)", "os.pwrite(f, b'b' * 65536, 0)")
    server.cut("the end is lost")
    content = server.content()
    assert content == b"b" * content.count(b"b") + b"a" * content.count(b"a") and b"a" in content


def test_synchronous_writes_and_other_files_stay(server):
    server.run("os.fsync(f)", "g = os.open('pg_wal/1', os.O_WRONLY | os.O_DSYNC)", "os.pwrite(g, b'a' * 512, 0)",
               "h = os.open('base/1', os.O_WRONLY | os.O_CREAT)", "os.pwrite(h, b'a' * 512, 0)")
    assert server.cut().writes == 0
    assert server.content() == b"a" * 512


@pytest.mark.parametrize("kind, path", [(WAL, "pg_wal/1"), (HEAP, "base/1")])
@pytest.mark.parametrize("call, code", [(WRITE, "os.pwrite(g, b'a', 0)"), (SYNC, "os.fdatasync(g)")])
def test_the_nth_call_fails(server, kind, path, call, code):
    server.disk.fail(kind, call, 2, "ENOSPC")
    server.run("import errno", f"g = os.open('{path}', os.O_RDWR | os.O_CREAT)", code, "try:", f"    {code}", "    raise SystemExit('no error')",
               "except OSError as e:", "    assert e.errno == errno.ENOSPC", code)
    assert server.disk.has_failed and server.disk.count(kind, call) == 3
