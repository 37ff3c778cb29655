"""Owns the parts of one run and stops them, however the run ends."""

import atexit
import fcntl
import shutil
import signal
import sys
from pathlib import Path

from . import memcheck
from .debezium import Debezium
from .kafka import Kafka
from .kafka_cluster import KafkaCluster
from .namespace import Namespace
from .nginx import Nginx
from .paths import BUILD, LOGS
from .pgbouncer import Pgbouncer
from .postgres import Postgres
from .prometheus import Exporter, Prometheus
from .receiver import Receiver
from .service import Service
from .volume import Volume


class Rig:
    def __init__(self, name: str):
        """Only one run of a name at a time, because its directory is emptied."""
        self.name = name
        self.dir = BUILD / "rig" / name
        self._parts: list = []
        self._namespaces: list[Namespace | Volume] = []
        self._numbers: dict[str, int] = {}
        (BUILD / "run").mkdir(parents=True, exist_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        self._lock = open(BUILD / "run" / f"{name}.lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f'a rig named "{name}" is already running in {BUILD}') from None
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        memcheck.forget()
        atexit.register(self.stop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, lambda number, _: sys.exit(128 + number))

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def _place(self, kind: str) -> tuple[str, Path, Path]:
        """Name, directory and log file of a new part."""
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        label = kind if number == 1 else f"{kind}{number}"
        log = LOGS / f"{self.name}-{label}.log"
        log.unlink(missing_ok=True)
        return f"{self.name}-{label}", self.dir / label, log

    def _add(self, part, start: bool = True):
        self._parts.append(part)
        if start:
            part.start()
        return part

    def postgres(self, start: bool = True, **options) -> Postgres:
        return self._add(Postgres(*self._place("postgres"), **options), start)

    def kafka(self, **options) -> Kafka:
        return self._add(Kafka(*self._place("kafka"), **options))

    def kafka_cluster(self, **options) -> KafkaCluster:
        return self._add(KafkaCluster(*self._place("kafka-cluster"), **options))

    def debezium(self, **options) -> Debezium:
        return self._add(Debezium(*self._place("debezium"), **options))

    def receiver(self, **options) -> Receiver:
        return self._add(Receiver(**options))

    def namespace(self) -> Namespace:
        """Adds a namespace, which is stopped after the parts in it."""
        namespace = Namespace()
        self._namespaces.append(namespace)
        return namespace

    def volume(self, megabytes: int) -> Volume:
        """Adds a volume, which is unmounted after the servers have stopped."""
        volume = Volume(megabytes)
        self._namespaces.append(volume)
        return volume

    def drop(self, volume: Volume) -> None:
        """Before the end of the run."""
        self._namespaces.remove(volume)
        volume.close()

    def nginx(self, **options) -> Nginx:
        return self._add(Nginx(*self._place("nginx"), **options))

    def pgbouncer(self, pg: Postgres, **settings) -> Pgbouncer:
        return self._add(Pgbouncer(*self._place("pgbouncer"), pg, **settings))

    def service(self, start: bool = True, **options) -> Service:
        return self._add(Service(*self._place("service"), **options), start)

    def exporter(self, **options) -> Exporter:
        return self._add(Exporter(*self._place("exporter"), **options))

    def prometheus(self, **options) -> Prometheus:
        return self._add(Prometheus(*self._place("prometheus"), **options))

    def stop(self) -> None:
        """Stops the parts in the order in which they were started: the server first, so that its worker does not log
        a dying broker. Another interrupt does not leave parts running."""
        parts, self._parts = self._parts + self._namespaces, []
        interrupted = None
        for part in parts:
            try:
                getattr(part, "close", part.stop)()
            except KeyboardInterrupt as e:
                interrupted = e
                part.kill()
            except Exception as e:  # a part that cannot be stopped must not keep the others running
                print(f"{self.name}: {type(part).__name__} did not stop: {e}", file=sys.stderr)
        atexit.unregister(self.stop)
        if interrupted:
            raise interrupted
