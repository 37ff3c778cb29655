"""Three servers, and streams with three replicas."""

import pytest
from nats.errors import Error
from outbox_rig import wait_until
from outbox_rig.process import free_port

from streams import Stream
from test_delivery import sinks
from test_failures import Steady, arrived_once_in_order, numbers


@pytest.fixture(scope="module")
def cluster(make_server):
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    return [make_server(config=f"cluster {{ name: test; listen: 127.0.0.1:{port}; routes: [{routes}] }}") for port in ports]


def replicated(server, name: str) -> Stream:
    stream = Stream(server, name, create=False, num_replicas=3)

    def created() -> bool:
        try:
            stream.create()
            return True
        except (Error, TimeoutError):
            return False  # the servers have not yet chosen their leader

    wait_until(created, 60, "the cluster to create a stream")
    return stream


@pytest.mark.parametrize("fault", ["kill", "freeze"])
def test_a_leader_that_is_lost(db, cluster, name, fault):
    """Another server leads the stream; no event is lost, and none is there twice."""
    stream = replicated(cluster[0], name)
    leader = server_of(cluster, stream)
    rest = [server for server in cluster if server is not leader]
    db.nats_sink("nats", leader, subject=f"{name}.${{event_type}}", hosts=", ".join(f"127.0.0.1:{server.port}" for server in [leader, *rest]), connect_timeout="1s",
                 heartbeat="1s")
    with Steady(db) as traffic:
        wait_until(lambda: traffic.n > 2000, 60)
        getattr(leader, fault)()
        enough = traffic.n + 2000
        wait_until(lambda: traffic.n > enough, 60)
        stream.server = rest[0]
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events_pending WHERE (payload->>'n')::int < %s", enough) == 0, 90, sinks(db))
        leader.start() if fault == "kill" else leader.thaw()
    wait_until(lambda: db.pending() == 0, 90, sinks(db))
    stream.read_all()
    assert set(numbers(stream.messages)) == set(range(traffic.n))
    arrived_once_in_order(stream.messages)
    assert db.value("SELECT count(*) FROM outbox.events") == 0


def server_of(cluster, stream: Stream):
    """The one that leads the stream."""
    leader = stream.server.run(lambda js: js.stream_info(stream.name)).cluster.leader
    return next(server for server in cluster if server.name == leader)
