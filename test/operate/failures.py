"""Failures that keep events from moving, each in a database of its own with the sink crm: for tests of what a person then sees."""

import os
import signal
from collections.abc import Callable

from outbox_rig import Kafka, Rig, wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import HANG, SECRET, Receiver, status

SETTINGS = {"outbox.poll_interval": "1s", "max_worker_processes": "40", "max_connections": "200", "outbox.worker_idle_timeout": "0"}


class Stage:
    """A server with a database for each failure, so that all begin at once."""

    def __init__(self, rig: Rig):
        self.rig = rig
        self.pg = rig.postgres(settings=SETTINGS)
        self.receivers: dict[str, Receiver] = {}
        self.undo: list[Callable[[], object]] = []

    def webhook(self, name: str, mode, **options: str) -> Database:
        db = Database(self.pg, name).create()
        self.receivers[name] = self.rig.receiver(secret=SECRET, mode=mode)
        db.webhook_sink("crm", self.receivers[name], SECRET, **options)
        return db

    def kafka(self, name: str, **properties: str) -> tuple[Database, Kafka]:
        broker = self.rig.kafka(properties=properties, jit=False, heap="256m")
        db = Database(self.pg, name).create()
        db.kafka_sink("crm", broker)
        return db, broker

    # ---- the failures --------------------------------------------------------------------------------------------

    def broker_is_down(self, name):
        db, broker = self.kafka(name)
        broker.stop()
        return db

    def broker_hangs(self, name):
        db, broker = self.kafka(name)
        self.enqueue_and_wait(db)
        broker.pause()
        self.undo.append(broker.resume)
        return db

    def topic_is_missing(self, name):
        return self.kafka(name, **{"auto.create.topics.enable": "false"})[0]

    def endpoint_answers_500(self, name):
        return self.webhook(name, status(500))

    def endpoint_answers_401(self, name):
        return self.webhook(name, status(401))

    def endpoint_answers_410(self, name):
        return self.webhook(name, status(410))

    def endpoint_is_silent(self, name):
        return self.webhook(name, HANG, timeout="2s")

    def one_event_is_refused(self, name):
        return self.webhook(name, lambda delivery: status(400 if b"poison" in delivery.body else 200), max_attempts="3", retry="100ms")

    def sink_is_paused(self, name):
        db = self.webhook(name, status(200))
        db.sql("SELECT outbox.pause('crm')")
        return db

    def worker_stands_still(self, name):
        db = self.webhook(name, status(200))
        self.enqueue_and_wait(db)
        pid = self.worker(db)
        os.kill(pid, signal.SIGSTOP)
        self.undo.append(lambda: os.kill(pid, signal.SIGCONT))
        return db

    def row_is_locked(self, name):
        db = self.webhook(name, status(200))
        db.sql("SELECT outbox.pause('crm')")
        db.enqueue("Order", "locked")
        holder = db.connect(autocommit=False)
        holder.execute("SELECT 1 FROM outbox.events_pending FOR UPDATE")
        self.undo.append(holder.close)
        db.sql("SELECT outbox.resume('crm')")
        return db

    def database_was_restored(self, name):
        db = self.webhook(name, status(200))
        db.sql("SET session_replication_role = replica; INSERT INTO outbox.events (id, aggregate_type, event_type, position, sink, origin) "
               "VALUES (gen_random_uuid(), 'Order', 'e', 1, 'crm', 42)")
        return db

    def backlog_grows(self, name):
        return self.webhook(name, status(200), rate_limit="1/30s")

    def enqueue_and_wait(self, db: Database) -> None:
        db.enqueue("Order", "before")
        wait_until(lambda: db.pending() == 0, 60, "the first delivery")

    def worker(self, db: Database) -> int:
        return wait_until(lambda: db.value("SELECT pid FROM outbox.workers WHERE database = current_database()"), 30, "a worker")
