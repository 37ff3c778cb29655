"""The order of the database's collation changes below existing indexes, as with a new C library, ICU or image."""

from outbox_rig import wait_until
from outbox_rig.database import Database
from outbox_rig.receiver import SECRET

# In C's order, which is not that of en-US: it ignores case and punctuation first.
SINKS = ["B", "D2", "E", "a-10", "a-9", "c-100", "c-20", "c-3", "d_1", "e", "f-1", "f-11", "f-2"]
KEY = "(ARRAY['K-', 'k-', 'k_'])[1 + n % 3] || n"
N = 3000


def test_a_changed_collation_leaves_nothing_behind(rig, receiver):
    with rig.postgres(settings={"outbox.poll_interval": "1s"}) as pg:
        db = Database(pg, "postgres")
        column = "daticulocale" if db.value("SELECT current_setting('server_version_num')::int") < 170000 else "datlocale"
        db.sql("CREATE EXTENSION outbox; CREATE EXTENSION outbox_inbox")
        for name in SINKS:
            db.webhook_sink(name, receiver, SECRET, events="none")
        db.sql("SELECT outbox.pause(name) FROM outbox.sinks")
        db.sql(f"SELECT count(outbox.enqueue('Order', 'x' || n, 'e', '{{}}'::jsonb, sink => (%s::text[])[1 + n %% 13],"
               f" available_at => now() + interval '6 s', dedup_key => {KEY.replace('%', '%%')})) FROM generate_series(1, %s) AS n", SINKS, N)
        db.sql("SELECT outbox_inbox.mark_processed(gen_random_uuid(), 'h' || n) FROM generate_series(1, 10) AS n")
        db.disconnect()
        pg.stop()
        pg.alone(f"UPDATE pg_database SET datlocprovider = 'i', {column} = 'en-US', datcollversion = '1' WHERE datname = 'postgres'")
        pg.start()

        assert db.value(f"SELECT count(outbox.enqueue('Order', 'again', 'e', '{{}}'::jsonb, sink => 'B', dedup_key => {KEY}))"
                        f" FROM generate_series(1, {N}) AS n") == N
        db.sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
        assert db.value("SELECT count(*) FROM outbox.events WHERE aggregate_id = 'again'") == 0, "known dedup keys were accepted again"
        db.disconnect()
        assert sorted(db.sql("SELECT name::text, pending FROM outbox.sinks")) == [(s, N // 13 + (1 + i in range(2, 2 + N % 13))) for i, s in enumerate(SINKS)]

        status, detail, hint = db.doctor("collation")
        assert status == "warning" and detail.startswith("The collation version has changed for 1 database: postgres (1, now ")
        db.sql(hint)
        db.sql("ALTER DATABASE postgres REFRESH COLLATION VERSION")
        assert db.doctor("collation")[0] == "ok"

        db.sql("SELECT outbox.resume(name) FROM outbox.sinks")
        wait_until(lambda: len({d.id for d in receiver.accepted()}) == N, 60, "all events")
        db.sql("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
        wait_until(lambda: db.value("SELECT count(*) FROM outbox.events") == 0, 20, "all to be recorded")
