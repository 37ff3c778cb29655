"""The faults. Each one begins, lasts and ends; afterwards its part is healthy again."""

import operator
import os
import signal
import time
from collections.abc import Callable

import psycopg
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.postgres import alive, children
from outbox_rig.receiver import HANG, Mode, status
from plan import Plan, Step
from sinks import SINKS
from world import World


class NothingToHit(Exception):
    """The part cannot be hit now, for example because it is being restarted."""


Action = Callable[[World, Plan], None]


def nothing(world: World, plan: Plan) -> None:
    pass


def call(method: str, *arguments: str) -> Action:
    """Calls world.kafka.kill() for "kafka.kill"."""
    return lambda world, plan: operator.attrgetter(method)(world)(*arguments)


def answer(mode: Mode) -> Action:
    """The endpoint answers every request so."""
    return lambda world, plan: setattr(world.endpoint.receiver, "mode", mode)


# ---- the server ------------------------------------------------------------------------------------------------


def _process(world: World, kind: str) -> int:
    rows = world.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = %s AND datname IS NOT DISTINCT FROM %s",
                     kind, world.db.name if kind == "outbox worker" else None)
    if not rows:
        raise NothingToHit(f"no {kind}")
    return rows[0][0]


def kill_worker(world: World, plan: Plan) -> None:
    """The postmaster then restarts all processes of the server."""
    world.pg.kill_child(_process(world, "outbox worker"))


def terminate_worker(world: World, plan: Plan) -> None:
    worker = _process(world, "outbox worker")
    world.sql("SELECT pg_terminate_backend(%s, 10000)", worker)


def kill_postmaster(world: World, plan: Plan) -> None:
    """Kills only the postmaster: its children must exit by themselves."""
    family = children(world.pg.pid)
    os.kill(world.pg.pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in [world.pg.pid, *family]), 30, "orphans to leave")
    world.pg.start()


def kill_server(world: World, plan: Plan) -> None:
    world.pg.kill()
    world.pg.start()


def stop_wal_writer(world: World, plan: Plan) -> None:
    """A kill that follows loses all WAL that was not flushed explicitly."""
    stop_asleep(world, "backend_type = 'walwriter'")


def kill_server_draining(world: World, plan: Plan) -> None:
    """Kills the server in the middle of a backlog, while no commit of an application flushes the worker's
    recordings."""
    pending = world.pending()
    stop_wal_writer(world, plan)
    wait_until(lambda: world.pending() <= pending * (1 - plan.drained), 30, "the backlog to shrink", 0.005)
    kill_server(world, plan)


def fill_disk(world: World, plan: Plan) -> None:
    """The volume of the database's tables is full; WAL has one of its own."""
    if world.volume is None:
        raise NothingToHit("no volume can be mounted here")
    world.volume.fill()


# ---- the network -----------------------------------------------------------------------------------------------


def cut(network: str) -> Action:
    def begin(world: World, plan: Plan) -> None:
        """Drops all packets; the connections stay."""
        if (found := getattr(world, network)) is None:
            raise NothingToHit("no network namespace is permitted here")
        found.cut()
    return begin


# ---- the endpoint ----------------------------------------------------------------------------------------------


def restart_endpoint(world: World, plan: Plan) -> None:
    world.endpoint.receiver.stop()
    world.endpoint.receiver.start()


# ---- the clock ---------------------------------------------------------------------------------------------------


def set_clock(world: World, plan: Plan) -> None:
    """Sets the server's wall clock forwards or backwards by whole seconds."""
    world.clock.set(plan.dice("clock").choice([offset for offset in (-30, 0, 30) if offset != world.clock.offset]))


# ---- settings --------------------------------------------------------------------------------------------------


def change_workers(world: World, plan: Plan) -> None:
    """Changes outbox.workers. This is no fault for the events: it explains no duplicate. The change is complete once
    the other faults are over."""
    world.set_workers(plan.dice("workers").choice([n for n in (1, 2, 3, 4) if n != world.workers]))


def alter_server(world: World, name: str, plan: Plan) -> None:
    world.sql(f"ALTER SERVER {name} OPTIONS (SET retry 'exponential 50ms..{400 + plan.cycle % 50}ms')")


# ---- routes ------------------------------------------------------------------------------------------------------


def take(world: World, events: str) -> None:
    """Both sinks change at once: otherwise an event that is enqueued in between would have one sink."""
    world.sql("DO $$ BEGIN " + " ".join(f"ALTER SERVER {sink} OPTIONS (SET events '{events}');" for sink in SINKS) + " END $$")


def take_none(world: World, plan: Plan) -> None:
    """What is enqueued from now on waits."""
    take(world, "none")


def take_all(world: World, plan: Plan) -> None:
    take(world, "*")


def take_all_behind_a_lock(world: World, plan: Plan) -> None:
    """The lock of CREATE INDEX stops the routing of what waits, and no producer, for longer than the worker waits for it."""
    try:
        with world.db.connect(autocommit=False) as holder:
            holder.execute("SET lock_timeout = '5s'")
            holder.execute("LOCK TABLE outbox_internal.rescan_queue IN SHARE MODE")
            take_all(world, plan)
            time.sleep(1.5)
    except psycopg.OperationalError:  # the server was lost, or the lock not to be had
        pass
    take_all(world, plan)


FAULTS: dict[str, tuple[Action, Action]] = {
    "kill_worker": (kill_worker, nothing),
    "terminate_worker": (terminate_worker, nothing),
    "kill_postmaster": (kill_postmaster, nothing),
    "kill_server": (kill_server, nothing),
    "kill_server_draining": (kill_server_draining, nothing),
    "kill_server_unflushed": (stop_wal_writer, kill_server),
    "stop_immediate": (call("pg.restart", "immediate"), nothing),
    "restart_fast": (call("pg.restart", "fast"), nothing),
    "fill_disk": (fill_disk, call("volume.free")),
    # Without synchronous commits a failover loses transactions that the applications were told are committed.
    "promote_standby": (call("add_standby"), call("promote_standby")),
    "upgrade_server": (call("upgrade_server"), nothing),
    "cut_broker": (cut("broker_network"), call("broker_network.mend")),
    "cut_endpoint": (cut("endpoint_network"), call("endpoint_network.mend")),
    "kill_broker": (call("kafka.kill"), call("kafka.start")),
    "pause_broker": (call("kafka.pause"), call("kafka.resume")),
    "endpoint_refuses": (call("endpoint.receiver.stop"), call("endpoint.receiver.start")),
    "endpoint_restarts": (restart_endpoint, nothing),
    "endpoint_hangs": (answer(HANG), call("endpoint.heal")),
    "endpoint_fails": (answer(status(500)), call("endpoint.heal")),
    "set_clock": (set_clock, nothing),
    "change_workers": (change_workers, nothing),
    "sinks_leave": (take_none, take_all),
    "sinks_leave_behind_a_lock": (take_none, take_all_behind_a_lock),
    "alter_kafka": (lambda world, plan: alter_server(world, "kafka", plan), nothing),
    "alter_webhook": (lambda world, plan: alter_server(world, "crm", plan), nothing),
}


def moments(steps: list[Step]) -> list[tuple[float, Step, int]]:
    """When each fault begins and ends: (seconds, step, 0 = begin or 1 = end)."""
    return sorted([(s.at, s, 0) for s in steps] + [(s.at + s.lasts, s, 1) for s in steps], key=lambda m: (m[0], m[2]))
