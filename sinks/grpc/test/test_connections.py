"""TLS, credentials, options and probes."""

import contextlib
import ctypes
import errno
import os
import re
import socket
from pathlib import Path

import psycopg
import pytest
from outbox_rig import wait_until
from outbox_rig.kind_fixtures import advice_is, an_endpoint_without_an_answer_is_named, worker_pid
from outbox_rig.certificates import Authority
from outbox_rig.preload import compiled
from outbox_rig.process import free_port

from conftest import GrpcDatabase
from test_delivery import state_is

HERE = Path(__file__).parent


def probe(db, send: bool = False) -> dict[str, tuple]:
    return {step: (ok, message, hint) for step, ok, message, hint in db.sql("SELECT step, ok, message, hint FROM outbox.probe('grpc', send => %s)", send)}


def test_mutual_tls(db, tls_service, tls_sink):
    tls_sink(tls_service)
    db.enqueue("Order", "1")
    [call] = tls_service.wait_for(1)
    assert call.user and db.sink("target", "grpc") == (tls_service.url,)
    steps = probe(db, True)
    assert list(steps) == ["resolve", "connect", "TLS", "gRPC", "send"] and all(ok for ok, _, _ in steps.values()), steps
    others = [each for each in tls_service.wait_for(3) if each.message != call.message]
    assert [(each.method, bool(each.message), each.metadata.get("outbox-probe")) for each in others] == [
        ("/grpc.health.v1.Health/Check", False, None), ("/outbox.v1.Sink/Publish", True, "true")]
    assert "PRIVATE KEY" not in str(db.sql("SELECT * FROM outbox.sinks"))


def test_the_kernel_ends_a_connection_that_acknowledges_nothing(db, tls_service, tls_sink):
    """After a minute, as those of the other kinds; its own limit is a quarter of an hour."""
    tls_sink(tls_service)
    tls_service.behave(sleep=2)
    db.enqueue("Order", "1")
    tls_service.wait_for(1)
    assert [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each in sockets_to(tls_service.port, worker_pid(db))] == [60_000]


def sockets_to(port: int, pid: int) -> list[socket.socket]:
    """Copies of a process's sockets that are connected to this port."""
    pidfd_getfd, process, found = 438, os.pidfd_open(pid), []
    for number in os.listdir(f"/proc/{pid}/fd"):
        if os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
            copy = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, process, int(number), 0)
            if copy < 0 and ctypes.get_errno() == errno.EPERM:
                pytest.skip("copies of another process's sockets are not permitted here")
            with contextlib.suppress(OSError, TypeError, IndexError):
                each = socket.socket(fileno=copy)
                if each.getpeername()[1] == port:
                    found.append(each)
    os.close(process)
    return found


def test_a_peer_that_does_not_answer(db, authority):
    an_endpoint_without_an_answer_is_named(db, "grpc", authority, "HTTP/2", url="URL")


def test_a_server_of_another_authority(db, tls_service):
    db.grpc_sink("grpc", tls_service, ssl_ca_pem=Authority("another").certificate)
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "TLS failed")
    assert db.value("SELECT max(attempts) FROM outbox.events") == 0
    assert not probe(db)["TLS"][0]


def test_a_missing_client_certificate(db, tls_service, authority):
    db.grpc_sink("grpc", tls_service, ssl_ca_pem=authority.certificate)
    db.enqueue("Order", "1")
    state_is(db, "circuit open")
    assert not all(ok for ok, _, _ in probe(db).values())


def test_a_token_is_shown_nowhere(db, service):
    service.behave(code="UNAUTHENTICATED", text="no user has the token correct-horse-battery")
    db.grpc_sink("grpc", service, {"token": "correct-horse-battery"}, retry="30min")
    db.enqueue("Order", "1")
    wait_until(lambda: db.value("SELECT max(attempts) FROM outbox.events") == 1, 20)
    steps = probe(db, True)
    assert not steps["gRPC"][0] and "token" in steps["gRPC"][2]
    shown = str(db.sql("SELECT * FROM outbox.sinks")) + str(db.sql("SELECT * FROM outbox.events")) + str(steps)
    assert "UNAUTHENTICATED: no user has the token ***" in shown and "correct-horse" not in shown


def test_a_missing_method(db, service):
    db.grpc_sink("grpc", service, method="/missing.Service/Method")
    steps = probe(db, True)
    assert steps["gRPC"][0] and not steps["send"][0] and "option method" in steps["send"][1]


def test_an_answer_before_the_message(db, service):
    """libcurl 7.88 loses up to a quarter of them."""
    db.grpc_sink("grpc", service, method="/missing.Service/Method")
    assert [step for step in [probe(db, True) for _ in range(60)] if not step["gRPC"][0] or "option method" not in step["send"][1]] == []


def test_the_doctor_and_the_metrics_tell_of_a_wrong_method(db, service):
    db.grpc_sink("grpc", service, method="/missing.Service/Method")
    db.sql("SELECT outbox.enqueue('Order', n::text, 'order.made', '1') FROM generate_series(1, 20) AS n")
    state_is(db, "circuit open", "UNIMPLEMENTED")
    status, detail, hint = db.doctor("sink grpc")
    assert status == "error" and "Correct option method" in detail and "outbox.probe('grpc')" in hint
    assert re.search(r'^outbox_sink_circuit_open\{.*sink="grpc".*\} 1$', db.value("SELECT outbox.metrics()"), re.MULTILINE)


# Named by the probe: a libcurl that takes "te: trailers" away, and how the server answers then.
STRIPS = {0x080b01: False, 0x080c00: True, 0x080c01: True, 0x080d00: True, 0x080e00: False}


@pytest.mark.parametrize("version", STRIPS)
def test_a_libcurl_that_removes_te_is_named(rig, service, version):
    """The library says that it is this version; the metadata arrives all the same, so the other steps pass."""
    with rig.postgres(env={"LD_PRELOAD": str(compiled(HERE / "curl_version.c")), "CURL_VERSION_NUM": str(version)}) as pg:
        db = GrpcDatabase(pg, "te")
        db.create()
        db.sql("CREATE EXTENSION outbox_grpc")
        db.grpc_sink("grpc", service)
        steps = probe(db)
        assert steps["gRPC"][0] and ("libcurl" in steps) == STRIPS[version], steps
        if STRIPS[version]:
            ok, message, hint = steps["libcurl"]
            assert not ok and f"libcurl {version >> 16}.{version >> 8 & 255}.{version & 255} " in message and "te: trailers" in message and "8.14" in hint


def test_nobody_listens(db, service):
    service.stop()
    db.grpc_sink("grpc", service)
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "refused")
    assert not probe(db)["connect"][0]


def test_a_private_network_is_refused(db, service):
    db.grpc_sink("grpc", service, allow_networks="10.0.0.0/8")
    db.enqueue("Order", "1")
    state_is(db, "circuit open", "has an address that is")
    assert not service.read() and not probe(db)["guard"][0]
    assert db.sql("SELECT reason FROM outbox.failure_metrics") == [("blocked",)]


BAD = [
    ({"url": "localhost:50051"}, "Expected an https URL"),
    ({"url": "https://h:1/outbox.v1.Sink/Publish"}, "It ends after the port"),
    ({"url": "http://h:1"}, "unencrypted"),
    ({"method": "Publish"}, "Expected /PACKAGE.SERVICE/METHOD"),
    ({"format": "json"}, "event, payload_bytes"),
    ({"max_message": "10"}, ""),
    ({"headers": '{"grpc-timeout": "1S"}'}, "written by the sink itself"),
    ({"headers": '{"x": "ä"}'}, "printable ASCII"),
    ({"headers": '{"authorization": "Bearer x"}'}, "readable by everybody"),
    ({"token": "x"}, "Every role can read"),
    ({"timeot": "1s"}, 'Perhaps you meant the option "timeout".'),
]


@pytest.mark.parametrize("options, said", BAD)
def test_options_that_are_refused(db, options, said):
    with pytest.raises(psycopg.Error) as refused:
        db._create_server("grpc", "outbox_grpc", {"url": f"https://127.0.0.1:{free_port()}"} | options)
    assert said in f"{refused.value.diag.message_detail} | {refused.value.diag.message_hint}"


def test_a_server_needs_a_url(db):
    with pytest.raises(psycopg.Error, match='option "url" is required'):
        db.sql("CREATE SERVER grpc FOREIGN DATA WRAPPER outbox_grpc")


@pytest.mark.parametrize("url, most, checks", [("http://service.example:50051", 4194305, ["encryption", "size"]), ("https://service.example", 4194304, []),
                                               ("http://[::1]:50051", 1024, [])])
def test_typical_mistakes(db, url, most, checks):
    db.sql(f"CREATE SERVER grpc FOREIGN DATA WRAPPER outbox_grpc OPTIONS (url '{url}', allow_http 'true', max_message '{most}')")
    advice_is(db, "grpc", *checks)
