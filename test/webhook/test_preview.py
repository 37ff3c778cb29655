"""outbox.preview() of webhooks shows exactly what is sent."""

import base64
import hmac
import json
import time

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET, Delivery

TOKEN, PASSWORD, KEY = "t0p-secret-token", "t0p $ecret p'ss\"word`", "t0p-secret-key"
OLD_SECRET = "whsec_" + base64.b64encode(b"o" * 24).decode()
SECRETS = (TOKEN, PASSWORD, KEY, SECRET, SECRET.removeprefix("whsec_"), OLD_SECRET.removeprefix("whsec_"), base64.b64encode(f"us er:{PASSWORD}".encode()).decode())
EVIL = ["'; touch pwned; '", "$(touch pwned)", "`touch pwned`", "!touch !! !$", "\\' touch pwned", '"; touch pwned; "', "&& touch pwned || touch pwned",
        "> pwned", "%s%n %(", "-o pwned", "@/etc/passwd", "${PWD:-$(touch pwned)}", "# touch pwned", "\\", "'", "~ * ? [a-z] {a,b}", "Zoë 日本語 😀"]
# Control characters; not used in the names and values of headers.
KEYS = ["\n touch pwned\n", "\r touch pwned\r", "\x1b[201~\ntouch pwned\n", "\x03\x04 \x16\x15touch pwned\n", "\u009b201~\u0085touch pwned", "\u202e)denwp hcuot($"]
HEADERS = {f"x-{n}": text for n, text in enumerate(EVIL)} | {"!#$%&'*+-.^_`|~": "$(touch pwned)", "x-tab": "a\tb", "x-c1": "a\u0085b", "x-empty": "", "x-blank": "  "}
SINKS = {  # options of the server, of the user mapping
    "plain": ({"forward_headers": "*"}, {}),
    "signed": ({"forward_headers": "*", "headers": json.dumps({"X-Shell": "".join(EVIL).replace("${", "$ {"), "X-Blank": " ", "accept": "text/plain"})}, {"secret": SECRET, "token": TOKEN}),
    "odd_url": ({"url": "{url}?q=';touch$IFS/pwned;'&$(touch)&!!"}, {"secret": SECRET}),
    "basic": ({"forward_headers": "*", "method": "PUT", "idempotency_key": "true", "format": "raw", "url": "{url}/${aggregate_id}/x"},
              {"secret": f"{SECRET}, {OLD_SECRET}", "user": "us er", "password": PASSWORD, "headers": json.dumps({"X-Api-Key": KEY, "x-accept": "y"})}),
    "cloud": ({"format": "cloudevents", "forward_headers": "*"}, {"secret": SECRET}),
    "secret_url": ({}, {"url": "{url}/" + TOKEN, "secret": SECRET}),
}
PER_ATTEMPT = ("webhook-timestamp", "webhook-signature")


def payloads() -> list[dict]:
    texts = EVIL + KEYS
    return ([{"payload": json.dumps(text), "headers": json.dumps(HEADERS) if n == 0 else None} for n, text in enumerate(texts)]
            + [{"payload_bytes": text.encode(), "content_type": "text/plain"} for text in texts]
            + [{"payload": None}, {"payload_bytes": b""}, {"payload_bytes": b"\x00\xff\r\n\x1b", "content_type": "application/x; a='b`c`'"},
               {"payload_bytes": b"line\n"}, {"payload": json.dumps("x" * 100_000)}, {"payload_bytes": b"'" * 40_000}])


FEW = [payloads()[0], {"payload": None}, {"payload_bytes": b"\x00\xff", "content_type": "a/b"}]


def rows(connection, sink: str, event: str) -> list[tuple]:
    return connection.execute("SELECT part, name, value, bytes FROM outbox.preview(%s, %s)", (event, sink)).fetchall()


def one(rows: list[tuple], part: str) -> str | bytes | None:
    [(value, data)] = [(value, data) for found, _, value, data in rows if found == part]
    return data if data is not None else value


def headers(rows: list[tuple]) -> dict[str, str]:
    """The headers that are shown completely; no name occurs twice."""
    shown = [(name.lower(), data.decode().strip(" \t")) for part, name, _, data in rows if part == "header" and data is not None]
    assert len(shown) == len(dict(shown))
    return dict(shown)


def signature(headers: dict[str, str], body: bytes) -> str | None:
    """The signature, for the sink with these headers; None if it does not sign."""
    if "webhook-signature" not in headers:
        return None
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, "sha256")).decode()
                    for secret in ([SECRET, OLD_SECRET] if "idempotency-key" in headers else [SECRET]))


def attempt(headers: dict[str, str], field: str) -> str | None:
    """webhook-signature or webhook-timestamp."""
    return next((value for name, value in headers.items() if name in PER_ATTEMPT and name.endswith(field)), None)


def event_id(delivery: Delivery) -> str:
    return delivery.id


@pytest.fixture(scope="module")
def shown(pg, rig):
    """Every event with every sink: its preview, and what the sink then sent."""
    db, receiver = Database(pg, "preview_webhook"), rig.receiver()
    db.create()
    for name, (options, mapping) in SINKS.items():
        db.webhook_sink(name, receiver.url, **({"events": "none"} | {key: value.replace("{url}", receiver.url) if key == "url" else value for key, value in options.items()}))
        if mapping:
            db.create_mapping(name, {key: value.replace("{url}", receiver.url) for key, value in mapping.items()})
    db.sql("ALTER SERVER secret_url OPTIONS (DROP url)")
    previews = {}
    with db.connect(autocommit=False) as connection:
        for sink in SINKS:
            for n, columns in enumerate(payloads() if sink in ("plain", "signed", "secret_url") else FEW):
                given = {"payload": None, "payload_bytes": None, "content_type": None, "headers": None} | columns
                [(event,)] = connection.execute(
                    "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, sink) VALUES "
                    "('Order', %(n)s, 'x', %(payload)s::jsonb, %(payload_bytes)s, %(content_type)s, %(headers)s::jsonb, %(sink)s) RETURNING id::text",
                    given | {"n": str(n), "sink": sink})
                previews[sink, event] = rows(connection, sink, event)
        connection.commit()
    wait_until(lambda: db.pending() == 0, 30, "the events to be sent")
    by_sink = {event_id(d): d for d in receiver.accepted()}
    assert len(by_sink) == len(previews)
    yield db, previews, by_sink
    receiver.stop()
    db.drop()


def test_what_is_shown_is_sent(shown):
    """All headers on the wire and no others, including those of libcurl; the signature is valid."""
    _, previews, by_sink = shown
    for (sink, event), preview in previews.items():
        delivery, told = by_sink[event], headers(preview)
        masked = {name.lower() for part, name, _, data in preview if part == "header" and data is None}
        assert masked == {"secret_url": {"host"}, "signed": {"authorization"}, "basic": {"authorization", "x-api-key", "x-accept"}}.get(sink, set())
        assert one(preview, "method") == (b"PUT" if sink == "basic" else b"POST") and (one(preview, "body") or b"") == delivery.body
        if sink == "secret_url":
            assert (one(preview, "url"), delivery.path) == ("(in the user mapping)", f"/hook/{TOKEN}")
        else:
            assert one(preview, "url").decode().endswith(delivery.path), preview
        assert attempt(told, "signature") == signature(told, delivery.body) and attempt(delivery.headers, "signature") == signature(delivery.headers, delivery.body)
        assert (attempt(told, "signature") is None) == (attempt(delivery.headers, "signature") is None) == (sink == "plain")
        assert abs(int(attempt(told, "timestamp")) - time.time()) < 120
        assert told.keys() | masked == delivery.headers.keys()
        assert all(delivery.headers[name] == value for name, value in told.items() if name not in PER_ATTEMPT)


def test_no_secret_is_shown(shown):
    """To no role, superusers included."""
    _, previews, *_ = shown
    text = str(previews)
    assert not [secret for secret in SECRETS if secret in text]
    assert all(word in text for word in ("(Bearer ***)", "(Basic ***)", "(***)"))


def test_the_url_that_is_used_is_shown_or_none(db):
    """If the user mapping has a URL, the server's is ignored by the preview and by the check of an event."""
    with db.role("crm_user"):
        db.sql("GRANT USAGE ON SCHEMA outbox TO crm_user; GRANT INSERT ON outbox.events TO crm_user; GRANT EXECUTE ON FUNCTION outbox.preview TO crm_user")
        with db.connect() as connection:
            connection.execute("CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://of-server.example/${header.tenant}')")
            connection.execute("GRANT USAGE ON FOREIGN SERVER crm TO crm_user")
            connection.execute(f"CREATE USER MAPPING FOR PUBLIC SERVER crm OPTIONS (url 'https://of-mapping.example/{TOKEN}')")
            connection.execute("SET ROLE crm_user")
            [(event,)] = connection.execute("SELECT outbox.enqueue('Order', '1', 'x', '{}', sink => 'crm', available_at => 'infinity')::text")
            preview = rows(connection, "crm", event)
            assert one(preview, "url") == "(in the user mapping)" and "example" not in str(preview) and TOKEN not in str(preview)
            connection.execute("RESET ROLE")
            assert connection.execute("SELECT target FROM outbox.sinks").fetchall() == [("(in the user mapping)",)]
            assert one(rows(connection, "crm", event), "url") == "(in the user mapping)"

            connection.execute("ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (DROP url)")
            connection.execute("SET ROLE crm_user")
            with pytest.raises(psycopg.Error, match="event has no value for"):
                rows(connection, "crm", event)
            with pytest.raises(psycopg.Error, match="event has no value for"):
                connection.execute("SELECT outbox.enqueue('Order', '1', 'x', '{}', sink => 'crm')")
            [(event,)] = connection.execute("SELECT outbox.enqueue('Order', '1', 'x', '{}', '{\"tenant\": 7}', sink => 'crm', available_at => 'infinity')::text")
            assert one(rows(connection, "crm", event), "url") == b"https://of-server.example/7"
            connection.execute("RESET ROLE")
            assert connection.execute("SELECT target FROM outbox.sinks").fetchall() == [("https://of-server.example/${header.tenant}",)]


def test_who_sees_a_signature(shown):
    """Only the roles to which pg_user_mappings shows PUBLIC's options."""
    db, *_ = shown
    db.sql("DROP ROLE IF EXISTS crm_owner, crm_member, crm_user")
    db.sql("CREATE ROLE crm_owner; CREATE ROLE crm_member IN ROLE crm_owner; CREATE ROLE crm_user")
    try:
        for role in ("crm_owner", "crm_member", "crm_user"):
            db.sql(f"GRANT USAGE ON SCHEMA outbox TO {role}; GRANT EXECUTE ON FUNCTION outbox.preview TO {role}; GRANT USAGE ON FOREIGN SERVER signed TO {role}")
        db.sql("GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO crm_owner; ALTER SERVER signed OWNER TO crm_owner")
        with db.connect() as connection:
            [(event,)] = connection.execute("SELECT outbox.enqueue('Order', '1', 'x', '{}', sink => 'signed', available_at => 'infinity')::text")
            seen = {}
            for role in ("crm_owner", "crm_member", "crm_user"):
                connection.execute(f"SET ROLE {role}")
                preview = rows(connection, "signed", event)
                [(may_read,)] = connection.execute("SELECT umoptions IS NOT NULL FROM pg_user_mappings WHERE srvname = 'signed'")
                seen[role] = "webhook-signature" in headers(preview)
                assert seen[role] == may_read, (role, preview)
                assert TOKEN not in str(preview)
                connection.execute("RESET ROLE")
        assert list(seen.values()) == [True, True, False]
        values = {name: value for part, name, value, _ in preview if part == "header"}
        assert values["webhook-signature"].startswith("(v1,***") and values["Authorization"].startswith("(Bearer *** or Basic ***")
    finally:
        db.sql("ALTER SERVER signed OWNER TO CURRENT_USER")
        db.sql("DROP OWNED BY crm_owner, crm_member, crm_user; DROP ROLE crm_owner, crm_member, crm_user")
