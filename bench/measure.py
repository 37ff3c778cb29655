"""Measures what processes cost, and describes the machine."""

import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from outbox_rig import BUILD, ROOT
from outbox_rig.database import Database
from stage import Stage

TICK = 1 / os.sysconf("SC_CLK_TCK")
CORES = 2


def use_two_cores() -> None:
    """On a larger machine; child processes inherit it."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def _cpu_seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def _thread_seconds(thread: Path) -> float:
    """In nanoseconds if the kernel counts them, otherwise in ticks of 10 ms."""
    try:
        if ran := int((thread / "schedstat").read_text().split()[0]):
            return ran / 1e9
    except OSError:
        pass
    return _cpu_seconds(thread / "stat")


def thread_seconds(pid: int) -> float:
    """For a process with one thread: more exact than its ticks."""
    return _thread_seconds(Path(f"/proc/{pid}/task/{pid}"))


def cpu_seconds(pids: list[int]) -> float:
    return sum(_cpu_seconds(Path(f"/proc/{pid}/stat")) for pid in pids)


def disk_seconds() -> float:
    """Seconds in which a process waited for the disk, from the kernel's pressure figures; 0 if there are none."""
    try:
        return int(re.search(r"some .*total=(\d+)", Path("/proc/pressure/io").read_text())[1]) / 1e6
    except OSError:
        return 0.0


def machine_seconds() -> float:
    """Busy seconds over all cores: user, nice, system, irq, softirq; without time stolen from a guest."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) * TICK


@dataclass
class Cpu:
    """CPU seconds of the worker (its first thread and the others), the broker and the whole machine; and the seconds
    in which a process waited for the disk."""
    wall: float
    worker_main: float
    worker: float
    broker: float
    machine: float
    disk: float

    @staticmethod
    def now(worker: int | list[int], broker: int) -> "Cpu":
        """The sum over several workers."""
        workers = worker if isinstance(worker, list) else [worker]
        return Cpu(time.monotonic(), sum(_thread_seconds(Path(f"/proc/{pid}/task/{pid}")) for pid in workers),
                   sum(_cpu_seconds(Path(f"/proc/{pid}/stat")) for pid in workers),
                   _cpu_seconds(Path(f"/proc/{broker}/stat")) if broker else 0, machine_seconds(), disk_seconds())

    def since(self, start: "Cpu") -> "Cpu":
        return Cpu(*(getattr(self, name) - getattr(start, name) for name in ("wall", "worker_main", "worker", "broker", "machine", "disk")))

    def limit(self) -> str:
        """What limited the speed, in words."""
        main, threads, broker, machine = (value / self.wall for value in (self.worker_main, self.worker - self.worker_main, self.broker, self.machine))
        other = machine - main - threads - broker  # the clocks differ: it may be a little below 0
        rest = f", all else {other:.2f}" if other >= 0.005 else ""
        shares = f"worker {main:.2f} + its threads {threads:.2f}, broker {broker:.2f}{rest} of {CORES} cores"
        if machine > 0.92 * CORES:
            return f"CPU of the machine: {shares}"
        if main > 0.85:
            return f"the worker's main thread: {shares}"
        if self.disk > 0.3 * self.wall:
            return f"the disk, waited for in {self.disk / self.wall:.0%} of the time: {shares}"
        return f"waiting: {shares}"

    def shares(self) -> dict[str, float]:
        return {"worker_main": round(self.worker_main / self.wall, 3), "worker_threads": round((self.worker - self.worker_main) / self.wall, 3),
                "broker": round(self.broker / self.wall, 3), "machine": round(self.machine / self.wall, 3),
                "disk_waits": round(self.disk / self.wall, 3)}


def private_memory(pid: int) -> int:
    """Bytes of the process's private memory, without the server's shared buffers."""
    return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def sizes(stage: Stage, db: Database) -> dict[str, float]:
    """MB of the pending table, of its indexes, and of the worker's own memory."""
    [(table, indexes)] = db.sql("SELECT pg_table_size(oid), pg_indexes_size(oid) FROM (SELECT 'outbox.events_pending'::regclass AS oid) AS t")
    return {"table": table / 2**20, "indexes": indexes / 2**20, "worker": private_memory(stage.wait_for_worker(db)) / 2**20}


def in_words(found: dict[str, float]) -> str:
    return "pending table {table:,.0f} MB, its indexes {indexes:,.0f} MB, the worker {worker:.1f} MB".format(**found)


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _output(*argv: str) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def describe_machine() -> dict:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores_used": len(os.sched_getaffinity(0)),
        "cores": os.cpu_count(),
        "memory_mb": int(memory[1]) // 1024,
        "kernel": platform.release(),
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def describe_commit() -> str:
    commit = _output("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    return commit + ("+changes" if _output("git", "status", "--porcelain", "--untracked-files=no") else "")


def kafka_version() -> str:
    jars = sorted((BUILD / "kafka").glob("kafka_2.13-*.jar"))
    return jars[-1].stem.removeprefix("kafka_2.13-") if jars else "unknown"


def describe_versions(stage: Stage) -> dict:
    with stage.database("versions") as db:
        server = db.value("SELECT current_setting('server_version')")
        libraries = db.libraries()
    return {"postgresql": server, "libraries": libraries, "kafka": kafka_version(),
            "consumer": f"librdkafka {confluent_kafka.libversion()[0]}", "commit": describe_commit()}
