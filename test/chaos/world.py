"""The real parts of a run: started once, broken and repaired in all cycles."""

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from history import Event, History, Transaction
from outbox_rig import Postgres, Rig, wait_until
from outbox_rig.certificates import Authority
from outbox_rig.clock import Clock
from outbox_rig.database import Database
from outbox_rig.namespace import Namespace
from outbox_rig.namespace import NotPermitted as NoNetwork
from outbox_rig.receiver import SECRET
from outbox_rig.volume import NotPermitted as NoVolume
from outbox_rig.volume import Volume
from pulse import Pulse
from sinks import BLOCKING, LISTS, STRANGER, TAKES, Endpoint, Topics, is_poisoned, takers
from writers import all_keys, own_keys

MAX_IN_FLIGHT = 40  # small, so that the bound on duplicates is tested
STUCK_S = 20  # give up when nothing changes for this many seconds although every part is healthy
# At debug2 workers log what test/protocols/trace.py replays.
# The name tells that a cluster which pg_upgrade has made is the same one.
SETTINGS = {"outbox.cluster_name": "chaos", "outbox.max_in_flight": str(MAX_IN_FLIGHT), "outbox.poll_interval": "1s", "max_prepared_transactions": "50",
            "log_min_messages": "debug2"}
NETWORKS = "127.0.0.0/8, 10.0.0.0/8"
VOLUME_MB = 2048  # of memory at most; a cycle needs some 2 MB
SCHEMAS = [Path(__file__).with_name(name) for name in ("schema.sql", "triggers.sql")]


def _network(rig: Rig) -> Namespace | None:
    """None where namespaces are not permitted: then no network is cut."""
    try:
        return rig.namespace()
    except (OSError, NoNetwork):
        return None


def _volume(rig: Rig) -> Volume | None:
    """None where nothing may be mounted: then no disk is full."""
    try:
        return rig.volume(VOLUME_MB) if os.getuid() == 0 else None
    except NoVolume:
        return None


def _tablespace(volume: Volume) -> str:
    return f"CREATE TABLESPACE chaos LOCATION '{volume.path}'"


class World:
    def __init__(self, rig: Rig):
        self._rig = rig
        self.clock = Clock(rig.dir / "clock")
        self.broker_network, self.endpoint_network = _network(rig), _network(rig)
        self.volume = _volume(rig)
        self.standby: Postgres | None = None
        self.pg = rig.postgres(settings=SETTINGS, env=self.clock.env())
        # Each partition has one replica: what a silent broker leads waits for it.
        self.kafka = rig.kafka_cluster(brokers=2, properties={"min.insync.replicas": "1"}, namespace=self.broker_network)
        self.endpoint = Endpoint("crm", rig.receiver(secret=SECRET, namespace=self.endpoint_network))
        ours = Authority("ours")
        tls = ours.issue("audit", "127.0.0.1").server_context(clients=Authority("clients"), optional=True)
        self.audit = Endpoint(BLOCKING, rig.receiver(secret=SECRET, tls=tls))
        self.topics = Topics(self.kafka)
        self.alone = threading.Event()  # the writers keep no transaction open
        self.silent = 0  # a broker
        self.silenced: list[str] = []  # the keys that it leads
        self.db = Database(self.pg, "chaos")
        if self.volume:
            with self.pg.connect() as admin:
                admin.execute(_tablespace(self.volume))
        self.db.create("chaos" if self.volume else "pg_default")
        for schema in SCHEMAS:
            self.db.sql(schema.read_text())
        self.db.sql("INSERT INTO chaos.aggregates SELECT unnest(%s::text[])", all_keys() + [f"echo-{key}" for key in own_keys()])
        retry = {"retry": "50ms..500ms", "max_attempts": "12", "events": "*"}
        self.db.kafka_sink("kafka", self.kafka, **retry, **TAKES["kafka"])
        # Events are kept for a day, so that both ways of recording a delivery are used.
        self.db.webhook_sink("crm", self.endpoint.receiver.url + "/${aggregate_id}", SECRET, timeout="2s", retention="1d", allow_networks=NETWORKS,
                             **retry, **TAKES["crm"])
        self.db.webhook_sink("audit", self.audit.receiver, SECRET, on_dead_letter="block", ssl_ca_pem=ours.certificate,
                             **retry | {"max_attempts": "2"}, **TAKES["audit"])
        self.db.webhook_sink(LISTS, self.endpoint.receiver.url.replace("/hook", f"/{LISTS}"), SECRET, batch="20, 1MB, 5ms", timeout="2s", allow_networks=NETWORKS,
                             **retry, **TAKES[LISTS])
        for sink in TAKES:
            self.db.sql(f"COMMENT ON SERVER {sink} IS '{sink}'")
        self.workers = self._workers_before = 1
        self.pulse = Pulse()

    def close(self) -> None:
        self.db.disconnect()

    def sql(self, query: str, *parameters: Any) -> list[tuple]:
        """Runs a statement as soon as the server accepts it; only for statements that may run twice."""
        def answer():
            try:
                return [self.db.sql(query, *parameters)]
            except psycopg.OperationalError:
                self.db.disconnect()

        return wait_until(answer, 60, f"an answer to: {query}", 0.1)[0]

    def pending(self) -> int:
        return self.sql("SELECT count(*) FROM outbox.events_pending")[0][0]

    def waits_for_its_time(self) -> bool:
        """The row of a failed event contains the time of its next attempt, which is late if the clock was set back."""
        return self.sql("SELECT EXISTS (SELECT FROM outbox.events_pending WHERE available_at BETWEEN clock_timestamp() AND clock_timestamp() + '1 minute')")[0][0]

    def name(self, sink: str) -> str:
        """The present name of its foreign server."""
        return self.sql("SELECT name FROM chaos.sinks WHERE sink = %s", sink)[0][0]

    def change(self, *statements: str) -> None:
        """In one transaction, whose locks wait for those that have enqueued. A lost server may have made it or not."""
        def made() -> bool:
            try:
                with self.db.connect(autocommit=False) as session:
                    session.execute("SET LOCAL lock_timeout = '300ms'")
                    for statement in statements:
                        session.execute(statement)
            except psycopg.errors.LockNotAvailable:
                return False
            except psycopg.OperationalError:
                pass
            return True

        self.alone.set()
        try:
            wait_until(made, 30, statements[0], 0.05)
        finally:
            self.alone.clear()

    def set_workers(self, n: int) -> None:
        self._workers_before = max(self._workers_before, self.workers)
        self.workers = n
        self.sql(f"ALTER SYSTEM SET outbox.workers = {n}")
        self.sql("SELECT pg_reload_conf()")

    def bound(self) -> int:
        """The maximum number of events in flight, including those of exiting workers."""
        return MAX_IN_FLIGHT * max(self.workers, self._workers_before)

    # ---- another server ------------------------------------------------------------------------------------------------

    def add_standby(self) -> None:
        """Returns when commits wait for it."""
        volume = self._rig.volume(VOLUME_MB) if self.volume else None
        moved = {self.volume.path: volume.path} if self.volume and volume else {}
        self.standby = self._rig.postgres(settings=SETTINGS, standby_of=self.pg, env=self.clock.env(), tablespaces=moved)
        self._volume_after = volume
        self.pg.set("synchronous_standby_names", "standby")
        wait_until(lambda: self.sql("SELECT sync_state, state FROM pg_stat_replication") == [("sync", "streaming")], 30, "the standby to be synchronous")

    def promote_standby(self) -> None:
        """The primary dies, and its standby takes its place."""
        former, former_volume = self.pg, self.volume
        former.kill()
        assert self.standby
        self.standby.promote()
        self.volume = self._volume_after
        self._continue_on(self.standby)
        self.standby = None
        if former_volume:
            self._rig.drop(former_volume)

    def upgrade_server(self) -> None:
        """pg_upgrade to a new cluster of the same version, which it refuses while there is a tablespace."""
        former = self.pg
        former.stop()
        if self.volume:
            former.alone("ALTER DATABASE chaos SET TABLESPACE pg_default", "DROP TABLESPACE chaos")
        upgraded = self._rig.postgres(start=False, settings=SETTINGS, env=self.clock.env())
        upgraded.upgrade_from(former)
        if self.volume:
            upgraded.alone(_tablespace(self.volume), "ALTER DATABASE chaos SET TABLESPACE chaos")
        upgraded.start()
        self._continue_on(upgraded)

    def _continue_on(self, server: Postgres) -> None:
        former, self.pg, self.db.pg = self.pg, server, server
        self.db.disconnect()
        self.set_workers(self.workers)  # ALTER SYSTEM is neither replicated nor upgraded
        shutil.rmtree(former.dir)

    # ---- the end of a cycle ------------------------------------------------------------------------------------

    def redrive(self) -> int:
        """The endpoint whose dead letters block their keys takes them now. Returns their number."""
        dead = self.sql("SELECT f.id::text, f.sink FROM outbox.events_failed AS f JOIN chaos.sinks AS s ON s.name = f.sink WHERE s.sink = %s", BLOCKING)
        for letter in dead:
            self.audit.repaired.add(letter[0])
            self.sql("SELECT outbox.redrive(%s, %s)", *letter)
        return len(dead)

    def repair_outage(self) -> None:
        """Two keys whose first events that endpoint refuses by closing the connection, with no other key due, are an outage to the worker:
        it spends no attempt until somebody mends the endpoint."""
        heads = [id for (id,) in self.sql("SELECT e.id::text FROM outbox.events_pending AS e JOIN outbox.sinks AS o ON o.name = e.sink"
                                          " JOIN chaos.sinks AS s ON s.name = e.sink WHERE s.sink = %s AND o.state = 'circuit open'"
                                          " AND e.blocked_by IS NULL", BLOCKING)]
        if len(heads) > 1 and all(map(is_poisoned, heads)):
            self.audit.repaired.update(heads)

    def wait_for_others(self, sink: str, keys: list[str] | None = None, another: str | None = None) -> None:
        """Until the events of other sinks (but for another one that may wait, too), or of other keys of this one, are delivered; these as
        long as it has room in flight."""
        def left() -> list[tuple]:
            self.redrive()
            if keys and self.sql("SELECT FROM outbox.sinks WHERE name = (SELECT s.name FROM chaos.sinks AS s WHERE s.sink = %s) AND in_flight >= %s",
                                 sink, MAX_IN_FLIGHT // len(TAKES)):
                return []
            return self.sql("SELECT s.sink, e.aggregate_id, e.available_at, e.blocked_by FROM outbox.events_pending AS e LEFT JOIN chaos.sinks AS s ON s.name = e.sink"
                            " WHERE (s.sink IS DISTINCT FROM %s OR e.aggregate_id <> ALL (%s::text[])) AND s.sink IS DISTINCT FROM %s", sink, keys, another or STRANGER)

        wait_until(lambda: not left(), STUCK_S, lambda: f"events beside those of {sink} that cannot be delivered: {left()[:10]}")

    def drain(self) -> float:
        """Waits until nothing is pending, or nothing changes any more. Returns seconds."""
        started = moved = time.monotonic()
        before = -1
        while (pending := self.pending() + self.redrive()) and time.monotonic() < moved + STUCK_S:
            if pending != before or (time.monotonic() > moved + STUCK_S / 2 and self.waits_for_its_time()):
                before, moved = pending, time.monotonic()
            if time.monotonic() > moved + STUCK_S / 4:
                self.repair_outage()
            time.sleep(0.02)
        wait_until(lambda: self.sql("SELECT count(*), min(workers), max(workers) FROM outbox.workers WHERE database = %s", self.db.name)
                   == [(self.workers, self.workers, self.workers)], 90, f"{self.workers} workers", 0.05)
        self._workers_before = self.workers
        # Events that were deleted or given up while in flight may still be at the sinks.
        still = time.monotonic() + 5
        while self.endpoint.receiver.open_requests + self.audit.receiver.open_requests and time.monotonic() < still:
            time.sleep(0.02)
        return time.monotonic() - started

    def observe(self, histories: dict[int, History], cycle_of: dict[str, int], history: History) -> set[int]:
        """Assigns arrivals to the cycles of their events and settles this cycle. Returns the cycles with new
        arrivals."""
        touched = {history.cycle}
        ledger = {str(id): (n, key) for id, n, key in self.sql("SELECT id, n, key FROM chaos.ledger WHERE cycle = %s", history.cycle)}
        by_trigger = Transaction("of a recording", "trigger", outcome="unknown")
        for id in ledger.keys() - history.events.keys():
            history.add(Event(id, ledger[id][1], by_trigger))
        for event in history.events.values():
            event.sinks = takers(event.key)
        history.settle({id: n for id, (n, _) in ledger.items()})
        history.redriven = (BLOCKING,)
        cycle_of.update(dict.fromkeys(history.events, history.cycle))
        # After a synchronous commit, all rows that are checked survive the next crash.
        self.sql("SET synchronous_commit = on")
        self.sql("INSERT INTO chaos.ledger VALUES (gen_random_uuid(), 0, 0)")
        # Neither upper() nor psycopg takes a text that is cut within a character.
        self.sql("SELECT upper(last_error) FROM outbox.events UNION ALL SELECT upper(last_error) FROM outbox.sinks")
        # Read the table first: an event that has left it has arrived.
        history.waiting = {(str(id), sink): status for id, sink, status in self.sql(
            "SELECT e.id, coalesce(s.sink, e.sink), coalesce(e.status, 'PENDING') FROM outbox.events AS e LEFT JOIN chaos.sinks AS s ON s.name = e.sink"
            " WHERE e.status IS DISTINCT FROM 'SENT'")}
        for arrival in self.topics.read() + self.endpoint.read() + self.audit.read():
            cycle = cycle_of.get(arrival.id or arrival.body_id, history.cycle)
            histories[cycle].arrivals.append(arrival)
            touched.add(cycle)
        return touched

    def state(self) -> list[str]:
        """The state of the server for a report: what an operator would look at."""
        found = [f"  {row}" for row in self.sql("SELECT name, state, pending, blocked, in_flight, dead, last_error FROM outbox.sinks")]
        found += [f"  {row}" for row in self.sql("SELECT * FROM outbox.workers")]
        found += [f"  {row}" for row in self.sql("SELECT \"check\", status, detail FROM outbox.doctor() WHERE status <> 'ok'")]
        return found + [f"  {row}" for row in self.sql(
            "SELECT position, id::text, sink, aggregate_id, attempts, blocked_by, available_at - now(), xact::text, last_error"
            " FROM outbox.events_pending ORDER BY position LIMIT 10")]
