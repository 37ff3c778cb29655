"""The parts that all measures use: one server, one broker, a database for each."""

import json
import subprocess
import time
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Iterator

import confluent_kafka
from outbox_rig import BUILD, Kafka, Postgres, Rig, wait_until
from outbox_rig.crashes import crashes
from outbox_rig.database import Database
from outbox_rig.kafka import java
from results import Failure

PROGRAMS = BUILD / "bench"
PARTITIONS = 12
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",  # no checkpoint during a measurement
    "checkpoint_timeout": "30min",
    "outbox.shutdown_timeout": "20s",  # events in flight when a measure pauses arrive, and are not sent again
    "outbox.worker_idle_timeout": "0",  # also while another measure takes minutes
    "max_connections": "400",  # one of the measures uses hundreds of open transactions
}


class Stage:
    """A dot in a setting's name is written as two underscores."""

    def __init__(self, rig: Rig, linger_ms: str, kafka: Kafka | None = None, **settings: str):
        self.rig, self.linger_ms = rig, linger_ms
        print(f"starting a private PostgreSQL{'' if kafka else ' and Apache Kafka'} ...")
        self.pg: Postgres = rig.postgres(settings=SETTINGS | {name.replace("__", "."): value for name, value in settings.items()})
        self.kafka: Kafka = kafka or rig.kafka(partitions=PARTITIONS, proxied=True)
        self.reach = self.kafka.bootstrap  # where producers find the broker; consumers are beside it
        self.partitions = PARTITIONS
        self.directory = rig.dir / "files"
        self.directory.mkdir(exist_ok=True)

    @contextmanager
    def server(self, **settings: str) -> Iterator["Stage"]:
        """A second server with settings of its own and the same broker."""
        own = Stage(self.rig, self.linger_ms, self.kafka, **settings)
        try:
            yield own
        finally:
            own.pg.close()
            if found := crashes(own.pg.log):
                raise Failure("the server's log tells of a crash:\n" + "\n".join(found))

    @contextmanager
    def far(self, round_trip_ms: float, partitions: int) -> Iterator["Stage"]:
        """The same, with so much of a network between the producers and the broker."""
        far = copy(self)
        far.reach, far.partitions = f"127.0.0.1:{self.kafka.proxy_port}", partitions
        with self.program("delay", self.kafka.proxy_port, self.kafka.proxied_port, int(round_trip_ms * 500)) as proxy:
            try:
                proxy.stdout.readline()
                yield far
            finally:
                proxy.kill()

    @property
    def broker_pid(self) -> int:
        return int((BUILD / "run" / f"{self.kafka.name}.pid").read_text())

    @contextmanager
    def database(self, name: str) -> Iterator[Database]:
        database = Database(self.pg, name)
        database.create()
        try:
            yield database
        finally:
            self.switch(True)  # also after a failure
            database.drop()

    def kafka_sink(self, db: Database, **options: str) -> None:
        db.kafka_sink("main", self.kafka, bootstrap_servers=self.reach, linger_ms=self.linger_ms, compression_type="lz4", **options)

    def switch(self, on: bool) -> None:
        """outbox.enabled for the whole server: it is off during loading."""
        self.set("outbox.enabled", "on" if on else "off")

    def set(self, setting: str, value: str | int) -> None:
        with self.pg.connect() as admin:
            admin.execute(f"ALTER SYSTEM SET {setting} = '{value}'")
        self.pg.reload()

    def pause(self, db: Database) -> None:
        self.switch(False)
        wait_until(lambda: not self.workers(db), 30, "the workers to end")

    def workers(self, db: Database) -> list[int]:
        return [pid for pid, in db.sql("SELECT pid FROM outbox.workers WHERE database = current_database()")]

    def wait_for_worker(self, db: Database) -> int:
        return wait_until(lambda: self.workers(db), 30, "a worker", interval=0.002)[0]

    def delivered(self, db: Database, but: str = "") -> int:
        """Recorded deliveries, optionally without one sink's, from shared memory: this does not read the table."""
        return int(db.value("""SELECT coalesce(sum(delivered), 0) FROM outbox_internal.sink_statistics()
                               WHERE server NOT IN (SELECT oid FROM pg_foreign_server WHERE srvname = %s)""", but))

    def must_be_done(self, db: Database) -> None:
        left = db.sql("SELECT status, count(*), min(last_error) FROM outbox.events GROUP BY status")
        retried, dead = db.sql("SELECT sum(retried), sum(dead) FROM outbox_internal.sink_statistics()")[0]
        if left or retried or dead:
            raise Failure(f"events are left: {left}, {retried} retried, {dead} dead")

    def load(self, db: Database, kind: str, events: int, aggregate_type: str, first: int = 1,
             into: str = "outbox.events (aggregate_type, aggregate_id, event_type, payload)") -> None:
        """Loads the events from `first` on, of a kind of events.h, with COPY."""
        with self.program("events", kind, first, first + events - 1, aggregate_type) as child, db.connect() as connection:
            with connection.cursor().copy(f"COPY {into} FROM STDIN") as copy:
                while block := child.stdout.buffer.read(1 << 18):
                    copy.write(block)
        if child.returncode:
            raise Failure(f"events ended with code {child.returncode}")

    def must_have_arrived(self, topic: str, events: int) -> dict:
        """Checks that events 1 to `events` arrived once, in the order of their keys, each with an id of its own."""
        return self.run("consume", self.kafka.bootstrap, topic, self.partitions, events)

    def program(self, name: str, *arguments: Any) -> subprocess.Popen:
        return subprocess.Popen([PROGRAMS / name, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, name: str, *arguments: Any) -> dict:
        """Runs a load program and returns its output."""
        with self.program(name, *arguments) as child:
            return finish(child)

    def produce(self, topic: str, *arguments: Any) -> subprocess.Popen:
        return self.program("produce", self.reach, topic, self.linger_ms, *arguments)

    def java_produce(self, topic: str, kind: str, events: int, *arguments: Any) -> subprocess.Popen:
        """Kafka's own producer, warmed up with a topic of its own."""
        self.kafka.create_topic(f"{topic}-warm", self.partitions)
        made = self.program("events", kind, 1, events, "-")
        program, *rest = java(str(Path(__file__).with_name("Produce.java")), self.reach, topic, self.linger_ms, f"{topic}-warm", *map(str, arguments),
                              heap="2g", tier=4, options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
        child = subprocess.Popen([Path(program), *rest], stdin=made.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        made.stdout.close()
        return child

    def consumer(self, topic: str) -> confluent_kafka.Consumer:
        """A consumer of every partition from the beginning; fetches wait at the broker, so no poll is late."""
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": self.kafka.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0,
            "auto.offset.reset": "error", "fetch.queue.backoff.ms": 1, "queued.max.messages.kbytes": 131072,
        })
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(self.partitions)])
        return consumer


def has_java_compiler() -> bool:
    """A runtime alone cannot run a source file."""
    try:
        return "jdk.compiler@" in subprocess.run(["java", "--list-modules"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return False


def end_of(consumer: confluent_kafka.Consumer, topic: str) -> int:
    """The number of events in the topic."""
    ends = (consumer.get_watermark_offsets(partition, timeout=10) for partition in consumer.assignment())
    return sum(high - low for low, high in ends)


def finish(child: subprocess.Popen, timeout: float = 180) -> dict:
    """The output of a load program after a successful end; it never outlives this process."""
    try:
        out, error = child.communicate(timeout=timeout)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode:
        raise Failure(error.strip() or f"{child.args[0].name} ended with code {child.returncode}")
    return json.loads(out)


def progress(text: str) -> None:
    print(f"    {time.strftime('%H:%M:%S')}  {text}")
