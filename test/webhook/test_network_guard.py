"""A resolver with changing answers: the server, in a network namespace, never connects to an address that is not
public, whatever the resolver answers."""

import re
import time

import pytest
from outbox_rig import wait_until
from outbox_rig.namespace import NotPermitted
from outbox_rig.receiver import EMPTY, OK, SECRET, Status
from outbox_rig.resolver import Ears, Resolver

PUBLIC = "203.0.114.7"  # looks public to the guard; inside the namespace it is the namespace's own
ELSEWHERE = "203.0.114.8"  # looks public too
INNER = ["127.0.0.1", "10.9.8.7", "100.64.0.7", "192.168.77.1", "172.16.7.7", "169.254.169.254", "169.254.7.7", "168.63.129.16",
         "198.18.7.7", "::1", "fd00::7", "fd00:ec2::254", "64:ff9b::a09:807", "2002:a09:807::1", "2001:db8::7"]
LEADS_THERE = ["0.0.0.0", "::", "::ffff:10.9.8.7", "::ffff:127.0.0.1"]  # a listener of INNER would notice a connection
# In a refusal, these appear as networks of their own, or as part of a network's text.
NAMED = {"169.254.169.254", "168.63.129.16", "fd00:ec2::254", "::1", "::", "0.0.0.0"}
ONCE = Status(headers={"Connection": "close"})  # so that the next request asks the resolver again


def last_step(db, name: str) -> tuple[str, bool, str, str]:
    return db.sql("SELECT step, ok, message, hint FROM outbox.probe(%s)", name)[-1]


@pytest.fixture(scope="module")
def network(rig):
    try:
        network = rig.namespace()
    except (OSError, NotPermitted) as why:
        pytest.skip(f"network namespaces are not permitted here: {why}")
    for address in [PUBLIC, ELSEWHERE, *INNER]:
        if address not in ("127.0.0.1", "::1"):
            network.add_address(address)
    return network


@pytest.fixture(scope="module")
def resolver(network):
    resolver = Resolver(network)
    yield resolver
    resolver.stop()


@pytest.fixture(scope="module")
def pg(rig, network, resolver):
    """The server, inside the namespace."""
    return rig.postgres(settings={"outbox.poll_interval": "1s"}, namespace=network)


@pytest.fixture
def far(rig, network):
    with rig.receiver(secret=SECRET, namespace=network, address=PUBLIC, mode=ONCE) as receiver:
        yield receiver


@pytest.fixture
def ears(network, far):
    ears = Ears(network, INNER, far.port)
    yield ears
    ears.stop()


@pytest.fixture
def crm(db, far):
    """A sink without allow_networks."""
    db.sql(f"CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'http://hooks.test:{far.port}/hook', allow_http 'true', "
           "retry '50ms..200ms')")
    db.create_mapping("crm", {"secret": SECRET})
    return db


def test_a_name_that_moves_inside_and_back(crm, far, ears, resolver, network, pg):
    resolver.answers = [PUBLIC]
    events = [crm.enqueue("Order", "1") for _ in range(3)]
    wait_until(lambda: crm.pending() == 0, 10, "the first events")

    resolver.answers = INNER + LEADS_THERE
    def refused() -> bool:
        events.append(crm.enqueue("Order", str(len(events))))
        return crm.state("crm") == "circuit open"
    wait_until(refused, 20, "the refusal")
    begun = network.connects()
    crm.sql("ALTER SERVER crm OPTIONS (SET retry '60ms..200ms')")  # opened again: it tries at once
    wait_until(lambda: crm.state("crm") == "circuit open", 10, "another refusal")
    assert network.connects() == begun, "not one SYN left"
    error = crm.value("SELECT last_error FROM outbox.sinks")
    assert "ALTER SERVER" in error and not any(address in error for address in {*INNER, *LEADS_THERE} - NAMED)
    assert "refused to connect to " in pg.log.read_text(), "the log knows the address"

    resolver.answers = ["10.9.8.7", "::1", PUBLIC]
    wait_until(lambda: crm.pending() == 0, 20, "what waited, to the one good address")
    assert sorted({d.id for d in far.accepted()}) == sorted(events)
    assert crm.sql("SELECT dead, retried FROM outbox.sinks") == [(0, 0)]
    assert ears.heard == []


def test_a_refusal_names_the_networks_of_all_addresses(crm, far, resolver):
    """A name such as localhost has several addresses. If one is allowed and does not answer, the others are the cause."""
    resolver.answers = ["::1", "127.0.0.1"]
    step, ok, message, hint = last_step(crm, "crm")
    assert (step, ok) == ("guard", False), message
    named = re.search(r"ADD allow_networks '([^']*)'", hint)[1]
    assert sorted(named.split(", ")) == ["127.0.0.0/8", "::1"], hint
    crm.sql("ALTER SERVER crm OPTIONS (ADD allow_networks '::1')")
    crm.enqueue("Order", "1")
    words = "allow_networks '::1, 127.0.0.0/8'"
    wait_until(lambda: words in (crm.sink("last_error")[0] or ""), 20, lambda: crm.sink("last_error")[0])
    error = crm.sink("last_error")[0]
    assert "Connection refused" in error and "has an address that is the database server itself, and was not tried" in error, error
    step, ok, message, _ = last_step(crm, "crm")
    assert (step, ok) == ("connect", False) and words in message, message


def test_each_inner_address_by_itself(crm, far, ears, resolver, network):
    begun = network.connects()
    for address in INNER + LEADS_THERE:
        resolver.answers, asked = [address], resolver.asked
        step, ok, message, hint = last_step(crm, "crm")
        assert (step, ok) == ("guard", False), (address, message)
        assert resolver.asked > asked and (address in NAMED or address not in message + hint)
    assert network.connects() == begun
    assert ears.heard == []
    resolver.answers = [PUBLIC]
    assert last_step(crm, "crm")[1], "and the same, where the answer is good"


@pytest.mark.slow
def test_a_busy_connection_follows_its_name(crm, far, resolver, network):
    """A connection is used for a minute at most."""
    resolver.answers, far.mode = [PUBLIC], OK
    crm.enqueue("Order", "1")
    wait_until(lambda: crm.pending() == 0, 10, "an event over a connection that is kept")
    ears = Ears(network, [ELSEWHERE], far.port)
    resolver.answers = [ELSEWHERE]

    def followed() -> bool:
        crm.enqueue("Order", "1")
        return ears.heard != []
    try:
        wait_until(followed, 75, "a connection to where the name leads now")
    finally:
        ears.stop()
    resolver.answers = [PUBLIC]
    wait_until(lambda: crm.pending() == 0, 15, "the events")


def test_a_resolver_that_fails_when_a_kept_connection_breaks(crm, far, resolver):
    """libcurl would repeat the request, and needs the name's address for it. No attempt is spent."""
    resolver.answers, far.mode = [PUBLIC], Status(headers={"Keep-Alive": "timeout=60"})
    crm.enqueue("Order", "1")
    wait_until(lambda: crm.pending() == 0, 10, "an event over a connection that is kept")
    time.sleep(2.5)  # libcurl forgets the address after 2 s
    resolver.answers, far.mode = [], EMPTY
    crm.enqueue("Order", "1")
    wait_until(lambda: crm.state("crm") == "circuit open", 20, lambda: crm.sql("SELECT * FROM outbox.sinks"))
    resolver.answers, far.mode = [PUBLIC], OK
    wait_until(lambda: crm.pending() == 0, 30, lambda: crm.sql("SELECT * FROM outbox.sinks"))
    assert crm.sink("dead, retried") == (0, 0)


def test_what_a_redirect_points_at_is_not_visited(crm, far, ears, resolver):
    resolver.answers = [PUBLIC]
    far.mode = lambda d: Status(307, {"Location": f"http://127.0.0.1:{far.port}/inner"}) if len(far.deliveries) < 3 else OK
    crm.enqueue("Order", "1")
    error = wait_until(lambda: crm.value("SELECT last_error FROM outbox.sinks"), 10, "the error")
    assert "307" in error and "127.0.0.1" not in error and "inner" not in error
    wait_until(lambda: crm.pending() == 0, 10, "the event")
    assert ears.heard == []


def test_a_name_without_an_answer_holds_up_its_own_sink_alone(crm, far, resolver):
    """The C library needs ten seconds to give up: the endpoint's timeout is shorter, and other names are resolved
    meanwhile."""
    resolver.answers, resolver.unanswered = [PUBLIC], {"mute.test"}
    crm.sql("ALTER SERVER crm OPTIONS (ADD aggregates 'Order')")
    crm.sql(f"CREATE SERVER mute FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'http://mute.test:{far.port}/hook', allow_http 'true', "
            "aggregates 'Mute', timeout '1s')")
    crm.create_mapping("mute", {"secret": SECRET})
    muted = [crm.enqueue("Mute", "1") for _ in range(5)]
    of_crm = "SELECT count(*) FROM outbox.events_pending WHERE sink = 'crm'"
    n = 0
    def given_up() -> bool:
        nonlocal n
        crm.enqueue("Order", str(n := n + 1))
        wait_until(lambda: crm.value(of_crm) == 0, 5, "an event that has an address")
        return crm.state("mute") == "circuit open"
    wait_until(given_up, 20, lambda: crm.state("mute"))
    assert "timed out" in crm.value("SELECT last_error FROM outbox.sinks WHERE name = 'mute'")
    resolver.unanswered = set()
    wait_until(lambda: crm.pending() == 0, 30, "what waited")
    assert [d.id for d in far.accepted() if d.id in muted] == muted
    assert crm.sql("SELECT dead, retried FROM outbox.sinks WHERE name = 'mute'") == [(0, 0)]
