"""docs/high-availability.md and docs/patroni.yml with two nodes on this machine and etcd: the leader is killed, then there is a switchover, under
load."""

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.paths import LOGS, ROOT, pg_config
from outbox_rig.process import Process, free_port
from outbox_rig.postgres import alive, stopped_family
from outbox_rig.receiver import SECRET
from outbox_rig.traffic import Traffic

PAGE = (ROOT / "docs/high-availability.md").read_text().partition("## Patroni\n")[2].partition("\n## ")[0]
YAML = (ROOT / "docs/patroni.yml").read_text()
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()]


def as_postgres() -> list[str]:
    """PostgreSQL refuses to run as root."""
    user = pwd.getpwnam("postgres")
    return [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if os.getuid() == 0 else []


class Node:
    def __init__(self, name: str, directory: Path, etcd: int):
        self.name, self.port, self.rest = name, free_port(), free_port()
        self.data, self.config = directory / name, directory / f"{name}.yml"
        text = YAML
        for theirs, ours in {"name: node1": f"name: {name}", "10.0.0.1:8008": f"127.0.0.1:{self.rest}", "10.0.0.9:2379": f"127.0.0.1:{etcd}",
                             "10.0.0.1:5432": f"127.0.0.1:{self.port}", "/var/lib/postgresql/15/shop": str(self.data),
                             "/usr/lib/postgresql/15/bin": str(pg_config("bindir")), "10.0.0.0/24": "127.0.0.1/32", "ttl: 30": "ttl: 20",
                             "loop_wait: 10": "loop_wait: 2", "retry_timeout: 10": "retry_timeout: 3", "local all all peer": "local all all trust"}.items():
            assert theirs in text
            text = text.replace(theirs, ours)
        # The user may not be able to write to the machine's own socket directory.
        self.config.write_text(text + f"  pgpass: {directory}/{name}.pgpass\n  parameters:\n    unix_socket_directories: {directory}\n    max_wal_size: 1GB\n")
        self.log = LOGS / f"patroni-{name}.log"
        self.log.unlink(missing_ok=True)
        self._process: Process | None = None

    def start(self) -> None:
        self._process = Process(self.name, ["patroni", str(self.config)], self.log, setpriv=as_postgres())

    def stop(self) -> None:
        if self._process:
            self._process.stop(60)
            self._process = None

    def kill(self) -> None:
        """As if the machine had lost power: Patroni first, so that it cannot clean up."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        self._process.kill()
        self._process = None
        family = [postmaster, *stopped_family(postmaster)]
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_until(lambda: not any(alive(pid) for pid in family), 20, "the node to be gone")


class Cluster:
    """What Database needs of a server, for the current leader."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.etcd_port, peer = free_port(), free_port()
        client = f"http://127.0.0.1:{self.etcd_port}"
        log = LOGS / "patroni-etcd.log"
        log.unlink(missing_ok=True)
        self._etcd = Process("etcd", ["etcd", "--data-dir", str(directory / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
                                      "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                                      "--initial-cluster", f"default=http://127.0.0.1:{peer}"], log, setpriv=as_postgres())
        self.nodes = [Node(f"node{n}", directory, self.etcd_port) for n in (1, 2)]

    def patronictl(self, command: str) -> str:
        """A command of the page."""
        argv = shlex.split(command.replace("/etc/patroni/node1.yml", str(self.nodes[0].config)))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100, env=os.environ | {"LC_ALL": "C.UTF-8"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def members(self) -> dict[str, dict]:
        for node in self.nodes:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{node.rest}/cluster", timeout=5) as answer:
                    return {member["name"]: member for member in json.load(answer)["members"]}
            except OSError:
                continue
        return {}

    def leader(self) -> Node | None:
        return next((node for node in self.nodes if self.members().get(node.name, {}).get("role") == "leader"), None)

    def in_step(self) -> bool:
        return sorted((member["role"], member["state"] in ("running", "streaming")) for member in self.members().values()) == [
            ("leader", True), ("sync_standby", True)]

    def wait_ready(self) -> None:
        wait_until(self.in_step, 100, self.members)

    def connect(self, dbname: str = "postgres", autocommit: bool = True, **options) -> psycopg.Connection:
        hosts, ports = ",".join("127.0.0.1" for _ in self.nodes), ",".join(str(node.port) for node in self.nodes)
        return psycopg.connect(f"host={hosts} port={ports} user=postgres password='change me' dbname={dbname} target_session_attrs=read-write",
                               autocommit=autocommit, connect_timeout=5, **options)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self._etcd.stop()


@pytest.fixture
def cluster():
    LOGS.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="outbox-patroni-", dir="/tmp"))
    if os.getuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    cluster = Cluster(directory)
    try:
        for node in cluster.nodes:
            node.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.timeout(400)
def test_a_new_leader_goes_on(cluster, receiver):
    db = Database(cluster, "shop")
    db.create()
    db.webhook_sink("crm", receiver, SECRET)

    # The page's commands, as for an existing cluster.
    for command in COMMANDS:
        cluster.patronictl(command)
    cluster.wait_ready()
    db.disconnect()
    wait_until(lambda: db.value("SHOW outbox.retention") == "1d", 30, "the setting to arrive")
    assert db.value("SHOW shared_preload_libraries") == "outbox"
    first = cluster.leader()

    def arrived() -> int:
        return len(receiver.accepted())

    with Traffic(db, "Order", writers=3) as traffic:
        wait_until(lambda: arrived() > 200, 60, "delivery by the first leader")
        first.kill()
        killed, before = time.monotonic(), traffic.committed
        wait_until(lambda: traffic.committed > before + 50, 100, "commits on the new leader")
        count = arrived()
        wait_until(lambda: arrived() > count + 200, 60, "delivery by the new leader")
        print(f"{time.monotonic() - killed:.0f} s from the kill of the leader to 200 events by the new one, of which the lease takes 20")
        assert cluster.leader() is not first

        first.start()  # it has been rewound and follows
        cluster.wait_ready()
        cluster.patronictl(f"patronictl -c /etc/patroni/node1.yml switchover --force --candidate {first.name} shop")
        wait_until(lambda: cluster.leader() is first, 60, "the switchover")
        cluster.wait_ready()
        count = arrived()
        wait_until(lambda: arrived() > count + 200, 60, "delivery after the switchover")
    db.disconnect()
    traffic.drain()
    traffic.check(receiver.accepted(), max_duplicates=2000)
    with psycopg.connect(f"host=127.0.0.1 port={next(node for node in cluster.nodes if node is not first).port} user=postgres password='change me' dbname=shop") as standby:
        assert standby.execute("SELECT pg_is_in_recovery(), (SELECT count(*) FROM outbox.workers)").fetchone() == (True, 0)
        assert standby.execute("SELECT name FROM outbox.sinks").fetchall() == [("crm",)]
