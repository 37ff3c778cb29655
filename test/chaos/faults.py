"""The faults. Each one begins, lasts and ends; afterwards its part is healthy again."""

import operator
import time
from collections.abc import Callable

import psycopg
from outbox_rig import wait_until
from outbox_rig.asleep import stop_asleep
from outbox_rig.receiver import HANG, Mode, status
from plan import Plan, Step
from outbox_rig.kafka import Kafka
from sinks import BLOCKING, LISTS, SINKS, STRANGER
from world import NETWORKS, World
from writers import SHARED_KEYS, own_keys


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
    worker = _process(world, "outbox worker")
    world.pg.forget_crashes()  # the pauses after several would be longer than those between the faults
    world.pg.kill_child(worker)


def terminate_worker(world: World, plan: Plan) -> None:
    worker = _process(world, "outbox worker")
    world.sql("SELECT pg_terminate_backend(%s, 10000)", worker)


def kill_postmaster(world: World, plan: Plan) -> None:
    """Kills only the postmaster: its children must exit by themselves."""
    world.pg.kill_postmaster()
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
    def shrunk() -> bool:
        """Or only events are left that wait behind a dead letter, whose redrive would be a commit."""
        return world.pending() <= pending * (1 - plan.drained) or world.sql("SELECT sum(due) + sum(failing) + sum(in_flight) FROM outbox.sinks") == [(0,)]

    pending = world.pending()
    stop_wal_writer(world, plan)
    wait_until(shrunk, 30, lambda: f"the backlog to shrink: {world.sql('TABLE outbox.sinks')}", 0.005)
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


# ---- the brokers -----------------------------------------------------------------------------------------------


def brokers(world: World, plan: Plan) -> list[Kafka]:
    """One or all."""
    all_of_them = [*world.kafka.brokers.values()]
    return plan.dice("brokers").choice([*([broker] for broker in all_of_them), all_of_them])


def kill_broker(world: World, plan: Plan) -> None:
    for broker in brokers(world, plan):
        broker.kill()


def start_broker(world: World, plan: Plan) -> None:
    killed = brokers(world, plan)
    for broker in killed:
        broker.begin_start()
    for broker in killed:
        broker.wait_started()


def pause_broker(world: World, plan: Plan) -> None:
    for broker in brokers(world, plan):
        broker.pause()


def resume_broker(world: World, plan: Plan) -> None:
    for broker in brokers(world, plan):
        broker.resume()


def silent_broker(world: World, plan: Plan) -> None:
    """Nothing is in flight to it. Then it is sent a few events, and the other broker refuses some, and leads shared keys, which must go on."""
    world.drain()
    led = {broker: world.topics.keys_of(broker) for broker in world.kafka.brokers}
    world.silent = plan.dice("brokers").choice([broker for broker, keys in led.items() if set(SHARED_KEYS) - set(keys)])
    world.silenced = led[world.silent]
    world.kafka.brokers[world.silent].pause()


def silent_broker_answers(world: World, plan: Plan) -> None:
    # The refused events' topic has partitions on the silent broker: it waits.
    world.wait_for_others("kafka", world.silenced + own_keys())
    world.kafka.brokers[world.silent].resume()


# ---- the endpoint ----------------------------------------------------------------------------------------------


def restart_endpoint(world: World, plan: Plan) -> None:
    world.endpoint.receiver.stop()
    world.endpoint.receiver.start()


def silent_endpoint_answers(world: World, plan: Plan) -> None:
    world.wait_for_others("crm", another=LISTS)
    world.endpoint.heal()


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
    world.sql(f"ALTER SERVER {world.name(name)} OPTIONS (SET retry '50ms..{400 + plan.cycle % 50}ms')")


# ---- routes ------------------------------------------------------------------------------------------------------


def take(world: World, events: str) -> None:
    """All sinks change at once: otherwise an event that is enqueued in between would have fewer."""
    world.sql("DO $$ BEGIN " + " ".join(f"ALTER SERVER {world.name(sink)} OPTIONS (SET events '{events}');" for sink in SINKS) + " END $$")


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


# ---- names -------------------------------------------------------------------------------------------------------


def rename_sink(world: World, plan: Plan) -> None:
    sink = plan.dice("names").choice(SINKS)
    world.change(f"ALTER SERVER {world.name(sink)} RENAME TO {sink}_{plan.cycle}")


def swap_sinks(world: World, plan: Plan) -> None:
    one, other = world.name(BLOCKING), world.name(plan.dice("names").choice([sink for sink in SINKS if sink != BLOCKING]))
    world.change(f"ALTER SERVER {one} RENAME TO passing", f"ALTER SERVER {other} RENAME TO {one}", f"ALTER SERVER passing RENAME TO {other}")


def replace_sink(world: World, plan: Plan) -> None:
    """A new sink gets the former name; nothing is for it."""
    sink = plan.dice("names").choice(SINKS)
    name, url = world.name(sink), world.endpoint.receiver.url.replace("/hook", f"/{STRANGER}")
    world.change(f"ALTER SERVER {name} RENAME TO {sink}_{plan.cycle}",
                 f"CREATE SERVER {name} FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '{url}', allow_http 'true', allow_networks '{NETWORKS}', events 'none')",
                 f"COMMENT ON SERVER {name} IS '{STRANGER}'")


def drop_stranger(world: World, plan: Plan) -> None:
    for (name,) in world.sql("SELECT name FROM chaos.sinks WHERE sink = %s", STRANGER):
        world.sql(f"DROP SERVER IF EXISTS {name}")


# ---- recordings --------------------------------------------------------------------------------------------------


def keep(keys: str) -> Action:
    """A trigger lets no event of these keys leave, of one sink."""
    return lambda world, plan: world.sql("INSERT INTO chaos.kept VALUES (%s, %s)", plan.dice("kept").choice(SINKS), keys) and None


def let_go(world: World, plan: Plan) -> None:
    world.sql("TRUNCATE chaos.kept")


def let_go_after_others(world: World, plan: Plan) -> None:
    world.wait_for_others(plan.dice("kept").choice(SINKS))
    let_go(world, plan)


def _day(world: World) -> tuple[str, int | None]:
    """Today's partition of delivered events, and its OID if it is there."""
    return world.sql("SELECT day, to_regclass(day)::oid::bigint FROM concat('outbox.events_sent_', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')) AS day")[0]


def drop_day(world: World, plan: Plan) -> None:
    day, oid = _day(world)
    while world.sql("SELECT FROM pg_class WHERE oid = %s", oid):
        world.change(f"DROP TABLE IF EXISTS {day}")


def detach_day(world: World, plan: Plan) -> None:
    """It keeps its name, so that none can be made."""
    day, oid = _day(world)
    if oid is None:
        raise NothingToHit("no day of delivered events")
    world.change(f"ALTER TABLE outbox.events_sent DETACH PARTITION {day}")


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
    "kill_broker": (kill_broker, start_broker),
    "pause_broker": (pause_broker, resume_broker),
    "silent_broker": (silent_broker, silent_broker_answers),
    "endpoint_refuses": (call("endpoint.receiver.stop"), call("endpoint.receiver.start")),
    "endpoint_restarts": (restart_endpoint, nothing),
    "endpoint_hangs": (answer(HANG), call("endpoint.heal")),
    "silent_endpoint": (answer(HANG), silent_endpoint_answers),
    "endpoint_fails": (answer(status(500)), call("endpoint.heal")),
    "set_clock": (set_clock, nothing),
    "change_workers": (change_workers, nothing),
    "sinks_leave": (take_none, take_all),
    "sinks_leave_behind_a_lock": (take_none, take_all_behind_a_lock),
    "rename_sink": (rename_sink, nothing),
    "swap_sinks": (swap_sinks, nothing),
    "replace_sink": (replace_sink, drop_stranger),
    "recordings_fail": (keep("%"), let_go),
    "some_recordings_fail": (keep("%-1"), let_go),
    "long_recordings_fail": (keep("%"), let_go_after_others),
    "drop_day": (drop_day, nothing),
    "detach_day": (detach_day, drop_day),
    "alter_kafka": (lambda world, plan: alter_server(world, "kafka", plan), nothing),
    "alter_webhook": (lambda world, plan: alter_server(world, "crm", plan), nothing),
}


def moments(steps: list[Step]) -> list[tuple[float, Step, int]]:
    """When each fault begins and ends: (seconds, step, 0 = begin or 1 = end)."""
    return sorted([(s.at, s, 0) for s in steps] + [(s.at + s.lasts, s, 1) for s in steps], key=lambda m: (m[0], m[2]))
