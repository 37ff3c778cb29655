"""Who may allow a webhook to leave the public networks, and how: a sink's option, the setting for all sinks, the
server's owner, a proxy."""

import shutil
import ssl

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.certificates import Authority
from outbox_rig.receiver import SECRET

QUICK = {"retry": "50ms..200ms", "max_attempts": "1000"}


def last_step(db, name: str = "crm") -> tuple[str, bool, str, str]:
    return db.sql("SELECT step, ok, message, hint FROM outbox.probe(%s)", name)[-1]


def wait_state(db, state: str, name: str = "crm") -> None:
    wait_until(lambda: db.state(name) == state, 10, lambda: f"{state}: {db.sink('state, last_error', name)}")


# ---- the option and the setting --------------------------------------------------------------------------------

def test_the_setting_comes_on_top_of_the_option(db, receiver, setting):
    db.webhook_sink("crm", receiver, SECRET, **QUICK, allow_networks="10.1.0.0/16")
    db.enqueue("Order", "1")
    wait_state(db, "circuit open")
    assert db.sink("last_error")[0].endswith("""ALTER SERVER "crm" OPTIONS (SET allow_networks '10.1.0.0/16, 127.0.0.0/8')""")
    setting("outbox.allow_networks", "10.2.0.0/16, 127.0.0.1")
    wait_until(lambda: db.pending() == 0, 10, "the event")
    db.sql("ALTER SERVER crm OPTIONS (DROP allow_networks)")
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "an event by the setting alone")
    assert db.sink("dead, retried") == (0, 0)


def test_what_a_refusal_says_can_be_pasted(db, receiver):
    """Whatever the server's name is; for many networks, words replace a truncated statement."""
    for name, more in (('user', {}), ('My "CRM"; --', {"allow_networks": "10.1.0.0/16, fd00::/8"})):
        db.webhook_sink(name, receiver, SECRET, **QUICK | {"allow_networks": "10.1.0.0/16"} | more)
        if not more:
            db.sql('ALTER SERVER "user" OPTIONS (DROP allow_networks)')
        step, ok, _, hint = last_step(db, name)
        assert (step, ok) == ("guard", False)
        db.sql(hint[hint.index("ALTER SERVER"):])
        assert last_step(db, name)[1]
    many = ", ".join(f"10.{n}.0.0/16" for n in range(40))
    db.webhook_sink("crm", receiver, SECRET, **QUICK, allow_networks=many)
    step, ok, _, hint = last_step(db)
    assert (step, ok) == ("guard", False)
    assert hint == "If events are meant to go there, a superuser adds 127.0.0.0/8 to the server's option allow_networks"


# ---- an owner who is no superuser ------------------------------------------------------------------------------

@pytest.fixture
def owner(db):
    db.sql("CREATE ROLE hook_owner")
    db.sql("GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO hook_owner")
    yield "hook_owner"
    db.sql("DROP OWNED BY hook_owner CASCADE")
    db.sql("DROP ROLE hook_owner")


def test_an_owner_cannot_lead_a_sink_elsewhere(db, receiver, owner):
    db.webhook_sink("crm", receiver, SECRET, **QUICK)
    db.sql(f"ALTER SERVER crm OWNER TO {owner}")
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "an event to where the superuser said")

    elsewhere = f"http://127.0.0.1:{receiver.port}/elsewhere"
    with db.connect() as connection:
        connection.execute(f"SET ROLE {owner}")
        connection.execute(f"ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (ADD url '{elsewhere}')")
    wait_state(db, "misconfigured")
    assert "cannot go together with" in db.sink("last_error")[0] and "owner is no superuser" in db.sink("last_error")[0]
    step, ok, message, hint = last_step(db)
    assert not ok and "cannot go together with" in message and "ALTER SERVER" in hint
    db.enqueue("Order", "1")
    assert {d.path for d in receiver.deliveries} == {"/hook"} and db.pending() == 1

    db.sql(f"ALTER ROLE {owner} SUPERUSER")  # a role that may set all of it
    wait_until(lambda: db.pending() == 0, 10, "the event")
    assert receiver.deliveries[-1].path == "/elsewhere"
    db.sql(f"ALTER ROLE {owner} NOSUPERUSER")
    wait_state(db, "misconfigured")
    db.sql("ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (DROP url)")
    wait_state(db, "idle")


# ---- a proxy ---------------------------------------------------------------------------------------------------

@pytest.fixture
def proxy(rig):
    """tinyproxy, which requires a password."""
    program = shutil.which("tinyproxy") or "/usr/bin/tinyproxy"
    conf = r'Port {port}\nListen 127.0.0.1\nTimeout 60\nBasicAuth courier let-me-out\n'
    command = f"""f=$(mktemp) && printf '{conf}' >"$f" && exec {program} -d -c "$f" """
    with rig.service(argv=["sh", "-c", command]) as service:
        yield service


def test_through_a_proxy(db, rig, receiver, proxy):
    url = f"http://127.0.0.1:{proxy.port}"
    db.webhook_sink("crm", receiver, SECRET, **QUICK, proxy=url)
    db.enqueue("Order", "1")
    wait_state(db, "circuit open")
    assert "HTTP 407" in db.sink("last_error")[0] and not receiver.deliveries
    db.sql("ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (ADD proxy_user 'courier', ADD proxy_password 'let-me-out')")
    wait_until(lambda: db.pending() == 0, 10, "the event")
    assert "tinyproxy" in receiver.deliveries[-1].headers["via"] and receiver.deliveries[-1].verified
    assert "proxy-authorization" not in receiver.deliveries[-1].headers

    # Over TLS it only forwards bytes.
    authority = Authority("rig CA")
    certificate = authority.issue("peer", "127.0.0.1")
    chain = rig.dir / "peer.pem"
    chain.write_text(certificate.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    peer = rig.receiver(secret=SECRET, tls=context)
    db.sql(f"ALTER SERVER crm OPTIONS (SET url '{peer.url}', ADD ssl_ca_pem '{authority.certificate}')")
    db.enqueue("Order", "1")
    wait_until(lambda: db.pending() == 0, 10, "the event over TLS")
    assert f"CONNECT 127.0.0.1:{peer.port}" in proxy.printed()
    assert "via" not in peer.deliveries[-1].headers and peer.deliveries[-1].verified
    peer.stop()

    # A wrong password is not the event's fault, and appears nowhere.
    db.set_mapping("crm", proxy_password="let-me-in")
    db.enqueue("Order", "1")
    wait_state(db, "circuit open")
    # tinyproxy closes the connection with its response, which may be lost: the next probe reports it.
    said = f" from the proxy {url}: it refuses proxy_user and proxy_password of the user mapping"
    wait_until(lambda: said in db.sink("last_error")[0], 20, lambda: db.sink("last_error"))
    wait_until(lambda: last_step(db)[0] == "proxy", 20, lambda: last_step(db))
    assert said in last_step(db)[2]
    assert "let-me" not in db.sink("last_error")[0] + db.pg.log.read_text()
    assert db.sink("dead, retried") == (0, 0)


def test_a_proxy_leads_past_no_guard(db, receiver, proxy):
    """The proxy's own address is checked, and an address in the URL; names are resolved by the proxy."""
    url = f"http://127.0.0.1:{proxy.port}"
    db.webhook_sink("crm", f"http://hooks.invalid:{receiver.port}/", SECRET, **QUICK, proxy=url)
    db.sql("ALTER USER MAPPING FOR PUBLIC SERVER crm OPTIONS (ADD proxy_user 'courier', ADD proxy_password 'let-me-out')")
    db.sql("ALTER SERVER crm OPTIONS (DROP allow_networks)")
    step, ok, message, _ = last_step(db)
    assert (step, ok, message) == ("guard", False, "The proxy has an address that is the database server itself")
    db.sql("ALTER SERVER crm OPTIONS (ADD allow_networks '127.0.0.1')")
    for host in ("127.0.0.2", "0x7f.2", "2130706434", "[::1]", "[::ffff:127.0.0.2]", "%31%32%37.2", "169.254.169.254"):
        db.set_sink("crm", url=f"http://{host}:{receiver.port}/")
        db.enqueue("Order", host)
        wait_until(lambda: "The url's host has an address" in (db.sink("last_error")[0] or ""), 10, host)
        step, ok, message, _ = last_step(db)
        assert (step, ok) == ("guard", False) and message.startswith("The url's host has an address"), (host, message)
    for url in (f"http://①②⑦.⓪.⓪.②:{receiver.port}/", f"http:///127.0.0.2:{receiver.port}/", "http:///${aggregate_id}/x"):
        with pytest.raises(psycopg.Error, match='option "url"'):
            db.set_sink("crm", url=url)
    assert not receiver.deliveries and "Request (" not in proxy.printed()
