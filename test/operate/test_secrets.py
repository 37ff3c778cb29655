"""Secrets appear nowhere."""

import base64
import json
import re
import threading

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.process import free_port
from outbox_rig.receiver import OK, SECRET, Delivery, Mode, redirect, status


def test_no_secret_is_shown(db, pg, receiver):
    """No view, log or error contains the signing secret or the token of a URL."""
    token, bearer = "tok3n-in-the-url", "b3arer-of-the-mapping"
    receiver.mode = status(500, body=b"no")
    db.sql("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook"
           " OPTIONS (allow_http 'true', allow_networks '127.0.0.0/8', retry '50ms..100ms', max_attempts '2')")
    start = pg.log.stat().st_size
    db.sql("SET log_statement = 'none'")
    db.sql(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url '{receiver.url}?token={token}', secret '{SECRET}',"
           f" token '{bearer}')")
    db.enqueue("Order", "1")
    wait_until(lambda: db.sink("dead") == (1,), 10, "a dead letter")
    assert token in receiver.deliveries[0].path and receiver.deliveries[0].headers["authorization"] == f"Bearer {bearer}"
    receiver.stop()
    db.enqueue("Order", "2")
    wait_until(lambda: db.sink("state") == ("circuit open",), 10, "an open circuit")
    shown = str([db.sql(f"SELECT * FROM {place}") for place in
                 ("outbox.sinks", "outbox.workers", "outbox.events", "outbox.doctor()", "outbox_internal.sink_statistics()")])
    shown += str(db.sql("SELECT * FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'"))
    shown += pg.logged(start)
    assert "circuit open" in shown
    for secret in (token, bearer, SECRET, SECRET.removeprefix("whsec_")):
        assert secret not in shown


MARK = "pl4nted"
OLD_SIGNING = base64.b64encode(f"{MARK}-signing-secret-of-the-past!!".encode()).decode()  # both start alike
SIGNING = base64.b64encode(f"{MARK}-signing-secret-of-32-bytes!".encode()).decode()


def planted(*names: str) -> dict[str, str]:
    return {name: f"{MARK}-{name}" for name in names}


class Watcher(threading.Thread):
    """Watches other sessions' visible activity as fast as it can."""

    def __init__(self, db):
        super().__init__()
        self.session, self.stopped, self.looks, self.seen = db.connect(), threading.Event(), 0, set()

    def run(self) -> None:
        while not self.stopped.is_set():
            self.seen.update(str(row) for row in self.session.execute(
                "SELECT datname, application_name, backend_type, query, wait_event FROM pg_stat_activity WHERE backend_type LIKE 'outbox%'").fetchall())
            self.looks += 1

    def stop(self) -> str:
        self.stopped.set()
        self.join()
        self.session.close()
        return str(self.seen)


def sinks_in_every_trouble(receiver, kafka) -> dict[str, tuple[str, dict, dict]]:
    """name: (wrapper, options, user mapping). Each fails in its own way, except the first."""
    http = {"allow_http": "true", "allow_networks": "127.0.0.0/8", "retry": "50ms..100ms", "max_attempts": "2"}
    there, closed = f"http://127.0.0.1:{receiver.port}", f"http://127.0.0.1:{free_port()}"
    basic = planted("user", "password")
    signed = {"secret": f"whsec_{SIGNING}, whsec_{OLD_SIGNING}"}
    sasl = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}
    return {
        "good": ("webhook", http, signed | {"url": f"{there}/good/{MARK}-path?token={MARK}-token", "token": f"{MARK}-bearer"}),
        "wrong_password": ("webhook", http, signed | basic | {"url": f"{there}/refuse/{MARK}-path"}),
        "gone": ("webhook", http, {"url": f"{there}/gone/{MARK}-path", "headers": json.dumps({"X-Api-Key": f"{MARK}-header"})}),
        "redirected": ("webhook", http, {"url": f"{there}/moved/{MARK}-path"} | basic),
        "no_tls": ("webhook", http, {"url": f"https://127.0.0.1:{receiver.port}/{MARK}-path", "token": f"{MARK}-bearer"}),
        "unreachable": ("webhook", http, {"url": f"{closed}/{MARK}-path"} | basic),
        "no_name": ("webhook", http, {"url": f"https://no-such-host.invalid/{MARK}-path"} | basic),
        "no_host": ("webhook", http, {"url": f"https://{MARK}-host.invalid/"}),
        "host_closed": ("webhook", http, {"url": f"http://{MARK}-host.localhost:{free_port()}/"}),
        "host_no_tls": ("webhook", http, {"url": f"https://{MARK}-host.localhost:{receiver.port}/"}),
        "guarded": ("webhook", http | {"allow_networks": "10.0.0.0/8"}, {"url": f"{there}/{MARK}-path"} | basic),
        "bad_proxy": ("webhook", http | {"proxy": closed}, {"url": f"{there}/{MARK}-path"} | planted("proxy_user", "proxy_password")),
        "kafka_no_sasl": ("kafka", {"bootstrap_servers": kafka.bootstrap} | sasl, planted("sasl_username", "sasl_password")),
        "kafka_unreachable": ("kafka", {"bootstrap_servers": f"127.0.0.1:{free_port()}", "debug": "all"} | sasl, planted("sasl_username", "sasl_password")),
    }


def answers(delivery: Delivery) -> Mode:
    """An endpoint that repeats the request in its response."""
    echo = f"no: {delivery.path}, {delivery.headers.get('authorization')}".encode()
    for place, mode in (("refuse", status(401, body=echo)), ("gone", status(410)), ("moved", redirect("https://elsewhere.invalid/"))):
        if place in delivery.path:
            return mode
    return OK


@pytest.fixture
def endpoint(rig):
    with rig.receiver(mode=answers) as endpoint:
        yield endpoint


@pytest.fixture
def watcher(db):
    watcher = Watcher(db)
    watcher.start()
    yield watcher
    watcher.stop()


def test_no_secret_is_told_in_any_trouble(db, pg, kafka, endpoint, watcher):
    """Sinks that succeed and sinks that fail in each way: checks the whole log at its most verbose, views,
    functions, activity and settings."""
    log = pg.log.stat().st_size
    sinks = sinks_in_every_trouble(endpoint, kafka)
    db.sql("SET log_statement = 'none'")
    for name, (kind, options, mapping) in sinks.items():
        db._create_server(name, f"outbox_{kind}", options)
        db.create_mapping(name, mapping)
    with db.connect() as verbose:
        for setting in ("log_statement = 'all'", "debug_print_parse = on", "debug_print_plan = on", "client_min_messages = debug5", "log_min_messages = debug2"):
            verbose.execute(f"SET {setting}")
        event = verbose.execute("SELECT outbox.enqueue('Order', 1, 'x', '{}')").fetchone()[0]
        settled = {"good": "idle", "wrong_password": None, "gone": "disabled: 410", "no_tls": "circuit open", "unreachable": "circuit open",
                   "no_name": "circuit open", "no_host": "circuit open", "host_closed": "circuit open", "host_no_tls": "circuit open", "bad_proxy": "circuit open", "kafka_no_sasl": "circuit open", "kafka_unreachable": "circuit open"}
        for name, state in settled.items():
            wait_until(lambda: db.sink("state", name)[0] == state or (state is None and db.sink("last_error", name)[0]), 30, lambda: f"{name} to be {state}: {db.sink('state, last_error', name)}")

        shown = [str(verbose.execute(f"SELECT * FROM {place}").fetchall()) for place in
                 ("outbox.sinks", "outbox.workers", "outbox.events", "outbox.stopped_sinks", "pg_foreign_server", "pg_settings", "pg_stat_activity")]
        functions = verbose.execute("SELECT oid::regproc::text FROM pg_proc WHERE pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND pronargs = 0"
                                    " AND prorettype <> 'trigger'::regtype").fetchall()
        shown += [str(verbose.execute(f"SELECT * FROM {name}()").fetchall()) for name, in functions]
        for name in sinks:
            shown.append(str(verbose.execute("SELECT * FROM outbox.probe(%s, '2s')", [name]).fetchall()))
            try:
                shown.append(str(verbose.execute("SELECT * FROM outbox.preview(%s, %s)", [event, name]).fetchall()))
            except psycopg.Error as error:
                shown.append(str(vars(error)) + str(error))
        for wrong in ("ADD secret 'whsec_pl4nted-no-base64!'", "SET token E'pl4nted\\nline'", "SET url 'ftp://pl4nted.example/pl4nted'", "ADD ssl_key_pem 'pl4nted'",
                      "ADD no_such 'pl4nted'", "ADD headers 'pl4nted'"):
            with pytest.raises(psycopg.Error) as error:
                db.sql("ALTER USER MAPPING FOR PUBLIC SERVER no_tls OPTIONS (" + wrong + ")")
            shown.append(" ".join(filter(None, (error.value.diag.message_primary, error.value.diag.message_detail, error.value.diag.message_hint))))
    seen = watcher.stop()
    assert watcher.looks > 100 and "outbox worker" in seen
    logged = pg.logged(log)
    assert "parse tree" in logged and "librdkafka" in logged, "there is something to look through"
    # PostgreSQL logs the text of a failed statement.
    lines = re.sub(r"STATEMENT:  ALTER USER MAPPING.*(\n\t.*)*", "", logged).splitlines()
    told = [line for text in (*shown, seen) for line in re.findall(rf".{{0,80}}(?:{MARK}|{SIGNING[:11]}).{{0,40}}", text)]
    told += [line for line in lines if MARK in line or SIGNING[:11] in line]
    assert told == [], "\n".join(told[:10])


def test_a_secret_is_refused_where_everybody_reads_it(db):
    """In the options of a server."""
    for kind, option in (("webhook", "secret"), ("webhook", "token"), ("webhook", "password"), ("webhook", "proxy_password"), ("webhook", "ssl_key_pem"),
                         ("kafka", "sasl_password"), ("kafka", "ssl_key_pem"), ("kafka", "ssl_keystore_password")):
        with pytest.raises(psycopg.Error) as error:
            db._create_server("s", f"outbox_{kind}", ({"url": "https://a.example"} if kind == "webhook" else {"bootstrap_servers": "a"}) | {option: MARK})
        assert "CREATE USER MAPPING FOR PUBLIC" in error.value.diag.message_hint, option
        assert MARK not in f"{error.value.diag.message_primary} {error.value.diag.message_detail} {error.value.diag.message_hint}"


@pytest.mark.parametrize("header", ("X-Api-Key", "Cookie", "X-Auth-Token", "Authorization"))
def test_a_secret_header_is_refused_where_everybody_reads_it(db, header):
    """And works in the user mapping, where the hint sends it."""
    headers = json.dumps({header: MARK})
    with pytest.raises(psycopg.Error) as error:
        db._create_server("s", "outbox_webhook", {"url": "https://a.example", "headers": headers})
    assert "CREATE USER MAPPING FOR PUBLIC" in error.value.diag.message_hint
    assert MARK not in f"{error.value.diag.message_primary} {error.value.diag.message_detail} {error.value.diag.message_hint}"
    db._create_server("s", "outbox_webhook", {"url": "https://a.example"})
    db.create_mapping("s", {"headers": headers})
