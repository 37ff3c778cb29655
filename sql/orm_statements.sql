-- The statements in which ORMs and drivers insert, as they send them, by a role that has what docs/security.md gives an application.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE ROLE regress_outbox_orm;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_orm;
GRANT INSERT, SELECT (id) ON outbox.events TO regress_outbox_orm;
CREATE VIEW pg_temp.events AS
  SELECT row_number() OVER (ORDER BY position) AS n, aggregate_id, event_type, payload, status, attempts, partition_key, sink,
         substr(id::text, 15, 1) AS v, created_at IS NOT NULL AND xact IS NOT NULL AND origin IS NOT NULL AS filled
  FROM outbox.events ORDER BY position;
CREATE TEMP TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, customer text);
GRANT ALL ON orders TO regress_outbox_orm;
SET ROLE regress_outbox_orm;

-- Hibernate: the id is the application's; pgjdbc with reWriteBatchedInserts makes one statement of a batch.
insert into outbox.events (aggregate_id,aggregate_type,created_at,event_type,headers,payload,id) values
  ('h1','Order','2026-11-01 10:00:00+00','OrderPlaced',NULL,'{"n": 1}','0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0001'),
  ('h2','Order','2026-11-01 10:00:00+00','OrderPlaced',NULL,'{"n": 2}','0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0002') returning id;
-- Prisma: createManyAndReturn names every field of the model, with DEFAULT for what this record does not give.
INSERT INTO "outbox"."events" ("id","aggregate_type","aggregate_id","event_type","payload","headers","status","attempts","created_at","sink") VALUES
  (DEFAULT,'Order','p1','OrderPlaced','{"n": 3}',DEFAULT,DEFAULT,DEFAULT,DEFAULT,DEFAULT),
  ('01890a5d-ac96-774b-bcce-b302099a8057','Order','p2','OrderPlaced',DEFAULT,'{"tenant": 7}','PENDING',0,DEFAULT,NULL)
  RETURNING "outbox"."events"."id" IS NOT NULL AS "id";
-- ... and createMany with skipDuplicates.
INSERT INTO "outbox"."events" ("id","aggregate_type","aggregate_id","event_type") VALUES
  ('01890a5d-ac96-774b-bcce-b302099a8057','Order','p2','OrderPlaced'), ('01890a5d-ac96-774b-bcce-b302099a8058','Order','p3','OrderPlaced') ON CONFLICT DO NOTHING;
-- EF Core: a statement for each row, all in one round trip.
INSERT INTO outbox.events (aggregate_id, aggregate_type, event_type, payload) VALUES ('e1', 'Order', 'OrderPlaced', '{"n": 4}') RETURNING id IS NOT NULL AS id \;
INSERT INTO outbox.events (aggregate_id, aggregate_type, event_type, payload) VALUES ('e2', 'Order', 'OrderPlaced', '{"n": 5}') RETURNING id IS NOT NULL AS id;
-- SQLAlchemy: insertmanyvalues, with the rows in a VALUES list that is sorted by a counter.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT p0::TEXT, p1::TEXT, p2::TEXT, p3::JSONB
  FROM (VALUES ('Order', 's1', 'OrderPlaced', '{"n": 6}', 0), ('Order', 's2', 'OrderPlaced', '{"n": 7}', 1), ('Order', 's3', 'OrderPlaced', '{"n": 8}', 2))
  AS imp_sen(p0, p1, p2, p3, sen_counter) ORDER BY sen_counter RETURNING outbox.events.id IS NOT NULL AS id, outbox.events.id IS NOT NULL AS id__1;
-- Django: bulk_create gives each column as an array.
INSERT INTO "outbox"."events" ("id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at")
  SELECT * FROM UNNEST((ARRAY[NULL, NULL])::uuid[], (ARRAY['Order', 'Order'])::varchar[], (ARRAY['d1', 'd2'])::varchar[], (ARRAY['OrderPlaced', 'OrderPlaced'])::varchar[],
                       (ARRAY['{"n": 9}', '{"n": 10}'])::jsonb[], (ARRAY['2026-11-01 10:00:00+00', NULL])::timestamp with time zone[])
  RETURNING "outbox"."events"."id" IS NOT NULL AS "id";
-- jOOQ, pgx, Ecto and others: one statement for the business row and its event.
WITH placed AS (INSERT INTO orders (customer) VALUES ('ada'), ('bob') RETURNING id, customer),
     event AS (INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
               SELECT 'Order', id, 'OrderPlaced', jsonb_build_object('customer', customer) FROM placed ORDER BY id RETURNING id)
SELECT count(*) AS events FROM event;
-- Nothing said at all.
\set VERBOSITY terse
INSERT INTO outbox.events DEFAULT VALUES;
\set VERBOSITY default
-- A loop over RETURNING, as PL/pgSQL and drivers with a fetch size read it.
DO $$
DECLARE
  one record;
  n integer := 0;
BEGIN
  FOR one IN INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', 'f' || i, 'OrderPlaced' FROM generate_series(1, 3) AS i RETURNING id LOOP
    n := n + (one.id IS NOT NULL)::integer;
  END LOOP;
  ASSERT n = 3;
END
$$;
-- A savepoint around each statement (Django's atomic(), pgjdbc's autosave): one that fails takes nothing along.
BEGIN;
SAVEPOINT pgjdbc_autosave;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', 'a1', 'OrderPlaced', 'once');
RELEASE SAVEPOINT pgjdbc_autosave;
SAVEPOINT pgjdbc_autosave;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', 'a2', 'OrderPlaced', 'once');
ROLLBACK TO SAVEPOINT pgjdbc_autosave;
SAVEPOINT pgjdbc_autosave;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', 'a3', 'OrderPlaced', 'twice');
RELEASE SAVEPOINT pgjdbc_autosave;
COMMIT;
RESET ROLE;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events, outbox_internal.dedup;

-- MERGE inserts what is not there; it reads the table, which takes SELECT.
SELECT current_setting('server_version_num')::integer >= 170000 AS merge_returns \gset
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'm1', 'there');
MERGE INTO outbox.events AS e
  USING (VALUES ('01890a5d-ac96-774b-bcce-b302099a8057'::uuid, 'm1'), ('01890a5d-ac96-774b-bcce-b302099a8058', 'm2'), (NULL, 'm3')) AS v (id, aggregate_id) ON e.id = v.id
  WHEN MATCHED THEN DO NOTHING
  WHEN NOT MATCHED THEN INSERT (id, aggregate_type, aggregate_id, event_type) VALUES (v.id, 'Order', v.aggregate_id, 'merged');
\if :merge_returns
MERGE INTO outbox.events AS e USING (VALUES ('m4')) AS v (aggregate_id) ON false
  WHEN NOT MATCHED THEN INSERT (aggregate_type, aggregate_id, event_type) VALUES ('Order', v.aggregate_id, 'merged') RETURNING e.aggregate_id, e.id IS NOT NULL AS id \gset merged_
\else
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', 'm4', 'merged') RETURNING aggregate_id, id IS NOT NULL AS id \gset merged_
\endif
SELECT :'merged_aggregate_id' AS aggregate_id, :'merged_id' AS id;
SELECT aggregate_id, event_type, filled FROM pg_temp.events ORDER BY aggregate_id;
TRUNCATE outbox.events;

-- ON CONFLICT names a unique index, and a table that is partitioned by status can have none of (id, sink): the partition of pending events has.
INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'x') ON CONFLICT (id) DO NOTHING;
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'x') ON CONFLICT (id, sink) DO UPDATE SET payload = excluded.payload;
\echo :LAST_ERROR_SQLSTATE
GRANT INSERT, UPDATE (payload), SELECT (id, sink, payload) ON outbox.events_pending TO regress_outbox_orm;
CREATE SERVER regress_one FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://one.example.com/');
CREATE SERVER regress_two FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://two.example.com/');
SET ROLE regress_outbox_orm;
INSERT INTO outbox.events_pending (id, aggregate_type, aggregate_id, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'c1', 'first') ON CONFLICT (id, sink) DO NOTHING RETURNING id;
INSERT INTO outbox.events_pending (id, aggregate_type, aggregate_id, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'c1', 'again') ON CONFLICT (id, sink) DO NOTHING RETURNING id;
INSERT INTO outbox.events_pending (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'c1', 'again', '{"new": 1}')
  ON CONFLICT (id, sink) DO UPDATE SET payload = excluded.payload RETURNING id;
-- (DO UPDATE is told of one conflict, that of the event's first sink.) One row for each event comes back, however many sinks take it.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', 'c2', 'fanned out'), ('Order', 'c3', 'fanned out') RETURNING id IS NOT NULL AS id;
RESET ROLE;
SELECT n, aggregate_id, event_type, payload, sink FROM pg_temp.events;
SELECT count(DISTINCT id) AS events, count(*) AS rows FROM outbox.events;

SET client_min_messages = warning;
DROP SERVER regress_one;
DROP SERVER regress_two;
DROP OWNED BY regress_outbox_orm;
DROP ROLE regress_outbox_orm;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
