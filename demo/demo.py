"""The demo: in one minute, outbox with a real PostgreSQL, a real Kafka and a real webhook endpoint."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

import psycopg
import screen
from app import CUSTOMERS
from ledger import Arrivals, Ledger, Listener
from outbox_rig import Delivery, Record, Rig, wait_until
from outbox_rig.paths import LOGS
from outbox_rig.process import Process
from outbox_rig.receiver import SECRET

# way: (purchases, per second)
WAYS = {"outbox": (10_000, 360), "commit-then-produce": (3_000, 120), "produce-then-commit": (3_000, 120)}
TOPICS = {"outbox.event.Purchase": "outbox", "commit-then-produce": "commit-then-produce",
          "produce-then-commit": "produce-then-commit"}


class Demo:
    def __init__(self, rig: Rig):
        print("starting a private PostgreSQL ...")
        self.pg = rig.postgres()
        print("starting Apache Kafka ...")
        self.kafka = rig.kafka(jit=False, killed=True)  # started at twice the rate, because the application is not the bottleneck here
        self.receiver = rig.receiver(secret=SECRET, on_delivery=self.on_webhook)
        print(f"a webhook endpoint listens on {self.receiver.url}; all logs are in {LOGS}")
        self.sql = self.pg.connect()
        self.records: dict[str, Record] = {}  # records by event id
        self.webhooks: dict[str, Delivery] = {}
        self.by_way = {way: Arrivals() for way in WAYS}  # arrivals in Kafka
        self.by_webhook = Arrivals()
        self.apps: dict[str, Process] = {}
        for topic in TOPICS:
            self.kafka.create_topic(topic)
        self.listener = Listener(self.kafka.bootstrap, ["outbox.event.Order", *TOPICS], self.on_record)
        self.listener.start()

    # ---- what arrives ------------------------------------------------------------------------------------------

    def on_record(self, record: Record) -> None:
        self.records.setdefault(record.id, record)
        if way := TOPICS.get(record.topic):
            self.by_way[way].add(record.id, record.key, json.loads(record.value)["number"])

    def on_webhook(self, delivery: Delivery) -> None:
        if not delivery.verified or not delivery.accepted():
            return
        self.webhooks.setdefault(delivery.id, delivery)
        event = delivery.json()
        if event["type"] == "purchase.made":
            self.by_webhook.add(delivery.id, event["data"]["customer"], event["data"]["number"])

    def show_arrival(self, id: str, committed: float) -> None:
        record = wait_until(lambda: self.records.get(id), 30, "the event in Kafka")
        delivery = wait_until(lambda: self.webhooks.get(id), 30, "the webhook")
        screen.arrived("Kafka", f"{record.topic}[{record.partition}]  key {record.key}  id {id}  {record.value.decode()}"
                                f"  ({(record.at - committed) * 1000:.0f} ms after COMMIT)")
        screen.arrived("webhook", f"signature verified  webhook-id {id}  {delivery.body.decode()}")

    # ---- the steps ---------------------------------------------------------------------------------------------

    def introduce(self) -> None:
        screen.heading("The extension, and one foreign server per sink")
        screen.run(self.sql, "CREATE EXTENSION outbox")
        screen.run(self.sql, f"""
            CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka
              OPTIONS (bootstrap_servers '{self.kafka.bootstrap}', retry '100ms..2s')""")
        screen.run(self.sql, "BEGIN")
        screen.run(self.sql, f"""
            CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook
              OPTIONS (url '{self.receiver.url}', allow_http 'true', allow_networks '127.0.0.0/8',
                       retry '100ms..2s')""")
        screen.run(self.sql, f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (secret '{SECRET}')")
        screen.run(self.sql, "COMMIT")

    def one_by_one(self) -> None:
        screen.heading("An event in the transaction that changes the data")
        sql = self.sql
        screen.run(sql, "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric NOT NULL)")
        screen.run(sql, "BEGIN")
        screen.run(sql, "INSERT INTO orders VALUES (1, 49.90)")
        [(event,)] = screen.run(sql, """SELECT outbox.enqueue('Order', 1, 'order.created', '{"total": 49.90}')""")
        committed = time.time()
        screen.run(sql, "COMMIT")
        self.show_arrival(str(event), committed)

        screen.heading("A transaction that rolls back publishes nothing")
        screen.run(sql, "BEGIN")
        screen.run(sql, "INSERT INTO orders VALUES (2, 10.00)")
        [(rolled_back,)] = screen.run(sql, """SELECT outbox.enqueue('Order', 2, 'order.created', '{"total": 10.00}')""")
        screen.run(sql, "ROLLBACK")

        screen.heading("Plain INSERT works, as ORMs write it, many rows at once")
        committed = time.time()
        rows = screen.run(sql, """
            INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
            VALUES ('Order', '3', 'order.created', '{"total": 12.00}'),
                   ('Order', '4', 'order.created', '{"total": 8.50}'),
                   ('Order', '1', 'order.paid',    '{"by": "card"}') RETURNING id""")
        for (event,) in rows:
            self.show_arrival(str(event), committed)
        if str(rolled_back) in self.records or str(rolled_back) in self.webhooks:
            raise SystemExit("the rolled-back event arrived")
        screen.note("the event of the rolled-back transaction has not arrived")

    def start_apps(self, start: float) -> None:
        for way, (count, per_second) in WAYS.items():
            self.apps[way] = Process(f"demo-{way}", [sys.executable, str(Path(__file__).with_name("app.py")), way, self.pg.dsn(),
                                                     self.kafka.bootstrap, str(count), str(per_second), str(start)],
                                     LOGS / f"demo-app-{way}.log")

    def burst(self) -> None:
        screen.heading("10,000 purchases by four writers, and three faults")
        screen.run(self.sql, "CREATE TABLE customers (id text PRIMARY KEY, purchases integer NOT NULL)")
        screen.run(self.sql, "CREATE TABLE purchases (id uuid PRIMARY KEY, way text, customer text, number integer)")
        for way in WAYS:
            self.sql.execute("INSERT INTO customers SELECT %s || '-' || n, 0 FROM generate_series(0, %s) n",
                             [way, CUSTOMERS - 1])
        print("""each purchase is one transaction; one in fifty is rolled back at the end:
  UPDATE customers SET purchases = purchases + 1 WHERE id = $1 RETURNING purchases;
  INSERT INTO purchases VALUES ($2, ...);
  SELECT outbox.enqueue('Purchase', $1, 'purchase.made', '{"customer": ..., "number": ...}', id => $2);
in parallel, the same application makes 2 x 3,000 purchases with a naive dual write: COMMIT and produce, in either order.
""")
        start = time.time()
        self.start_apps(start)
        ticker = Ticker(self, start)
        ticker.start()
        try:
            self.faults(start, ticker)
            for app in self.apps.values():
                app.wait(120)
            ticker.say("all purchases are made; pending events are being delivered")
            wait_until(self.drained, 45, "the outbox to drain", 0.1)
        except TimeoutError as e:
            ticker.say(str(e))  # the ledger below shows what is missing
        finally:
            ticker.end()
        self.listener.finish()

    def faults(self, start: float, ticker: "Ticker") -> None:
        """Called on the main thread: a process ends with the thread that started it."""
        time.sleep(max(0, start + 5 - time.time()))
        ticker.say("Kafka is stopped")
        self.kafka.stop()
        time.sleep(3)
        with ticker.silence():
            screen.run(self.sql, """
                SELECT name, state, pending, in_flight, oldest_pending_age AS oldest, left(last_error, 60) AS last_error
                FROM outbox.sinks ORDER BY name DESC""")
        ticker.say("kill -9 of all three applications; they are started again")
        for app in self.apps.values():
            app.kill()
        self.start_apps(start)
        time.sleep(2)
        before = {way: len(arrivals.ids) for way, arrivals in self.by_way.items()}
        ticker.say("Kafka is started")
        self.kafka.start()
        ticker.say("Kafka responds")
        # The next fault must hit all three applications while they are publishing.
        wait_until(lambda: all(len(found.ids) > before[way] + 200 for way, found in self.by_way.items()), 60,
                   "events to flow again", 0.1)
        time.sleep(max(0, start + 18 - time.time()))
        ticker.say("kill -9 of PostgreSQL: the postmaster, every backend, and the worker")
        self.pg.kill()
        self.pg.start()
        ticker.say("PostgreSQL has recovered")
        self.sql = self.pg.connect()

    def drained(self) -> bool:
        return self.sql.execute("SELECT NOT EXISTS (SELECT FROM outbox.events WHERE status = 'PENDING')").fetchone()[0]

    def account(self) -> bool:
        screen.heading("The sinks")
        screen.run(self.sql, """
            SELECT name, kind, target, state, pending, dead, delivered AS delivered_since_restart
            FROM outbox.sinks ORDER BY name DESC""")
        screen.heading("What the consumers saw")
        last = self.by_way["outbox"]
        for where, found in (("Kafka", last), ("webhook", self.by_webhook)):
            key, numbers = max(found.numbers.items(), key=lambda item: len(item[1]))
            screen.arrived(where, f"{len(found.ids):,} events of {len(found.numbers)} customers; {key} made "
                                  f"purchases {', '.join(map(str, numbers[:5]))} ... {', '.join(map(str, numbers[-3:]))}")
        committed = {way: {str(id) for (id,) in self.sql.execute("SELECT id FROM purchases WHERE way = %s", [way])} for way in WAYS}
        ledgers = {"outbox to Kafka": Ledger(committed["outbox"], self.by_way["outbox"]),
                   "outbox to webhook": Ledger(committed["outbox"], self.by_webhook)}
        naive = {"COMMIT, then produce": Ledger(committed["commit-then-produce"], self.by_way["commit-then-produce"]),
                 "produce, then COMMIT": Ledger(committed["produce-then-commit"], self.by_way["produce-then-commit"])}
        screen.heading("The ledger: purchases in the database against events that arrived")
        for name, ledger in ledgers.items():
            print(f"{name:<22}" + screen.paint("1;32" if ledger.clean() else "1;31", str(ledger)))
        print("naive dual writes of the same application, under the same faults:")
        for name, ledger in naive.items():
            print(f"{name:<22}" + screen.paint("32" if ledger.clean() else "31", str(ledger)))
        return all(ledger.clean() for ledger in ledgers.values())


class Ticker(threading.Thread):
    """The progress line during the burst."""

    def __init__(self, demo: Demo, start: float):
        super().__init__(daemon=True)
        self.demo, self.start_time = demo, start
        self._ending = threading.Event()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def silence(self):
        with self._lock:
            screen.progress("", False)
            yield

    def say(self, text: str) -> None:
        with self.silence():
            screen.note(f"{time.time() - self.start_time:5.1f} s  ── {text}")

    def run(self) -> None:
        connection, last, tick = None, (self.start_time, 0), 0
        while not self._ending.wait(0.5):
            tick += 1
            try:
                connection = connection or self.demo.pg.connect()
                made = connection.execute("SELECT count(*) FROM purchases WHERE way = 'outbox'").fetchone()[0]
                sinks = {name: (state, pending, age) for name, state, pending, age in connection.execute(
                    "SELECT name, state, pending, extract(epoch FROM oldest_pending_age)::float8 FROM outbox.sinks")}
            except psycopg.OperationalError:
                connection = None
                continue
            now = time.time()
            line = f"{now - self.start_time:5.1f} s  {made:>6,} committed"
            keep = tick % 4 == 0
            line += f" {(made - last[1]) / (now - last[0]):>5,.0f}/s" if now > last[0] else ""
            if keep:
                last = (now, made)
            for name, title, arrived in (("main", "Kafka", self.demo.by_way["outbox"]), ("crm", "webhook", self.demo.by_webhook)):
                state, pending, age = sinks.get(name, ("unknown", 0, None))
                line += f" │ {title} {len(arrived.ids):>6,}, {pending:>5,} pending, oldest {age or 0:4.1f} s, {state}"
            with self._lock:
                screen.progress(line, keep)
        screen.progress("", False)

    def end(self) -> None:
        self._ending.set()
        self.join()


def main() -> int:
    started = time.monotonic()
    with Rig("demo") as rig:
        demo = Demo(rig)
        demo.introduce()
        demo.one_by_one()
        demo.burst()
        clean = demo.account()
    print(f"\n{time.monotonic() - started:.0f} s; all parts are stopped. Logs: {LOGS}")
    return 0 if clean else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\ninterrupted; all parts are stopped")
        sys.exit(130)
