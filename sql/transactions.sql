-- Every way in which a transaction can write events: what commits is there, and nothing else.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- What every event must have, and what is there, in the order of positions.
CREATE VIEW pg_temp.events AS
  SELECT string_agg(event_type, ' ' ORDER BY position) AS events, bool_and(xact IS NOT NULL AND position > 0) AS whole FROM outbox.events;

-- Nested savepoints, rolled back and released in all orders. One transaction, one xact.
BEGIN;
SELECT FROM outbox.enqueue('Order', 1, 'a', '{}');
SAVEPOINT s1;
SELECT FROM outbox.enqueue('Order', 1, 'b-', '{}');
SAVEPOINT s2;
SELECT FROM outbox.enqueue('Order', 1, 'c-', '{}');
RELEASE s2;
ROLLBACK TO s1;
SELECT FROM outbox.enqueue('Order', 1, 'd', '{}');
SAVEPOINT s3;
SELECT FROM outbox.enqueue('Order', 1, 'e-', '{}');
ROLLBACK TO s3;
SELECT FROM outbox.enqueue('Order', 1, 'f', '{}');
RELEASE s1;
SELECT count(DISTINCT xact) AS transactions, bool_and(xact = pg_current_xact_id()) AS own FROM outbox.events;
COMMIT;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events;

-- A function's exception block is a subtransaction.
DO $$
BEGIN
  PERFORM outbox.enqueue('Order', 1, 'before', '{}');
  BEGIN
    PERFORM outbox.enqueue('Order', 1, 'undone', '{}', dedup_key => 'undone');
    PERFORM 1 / 0;
  EXCEPTION WHEN division_by_zero THEN
    PERFORM outbox.enqueue('Order', 1, 'handler', '{}', dedup_key => 'undone');
  END;
  BEGIN
    PERFORM outbox.enqueue('', 1, 'refused', '{}');
  EXCEPTION WHEN OTHERS THEN NULL;
  END;
  INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'after');
END $$;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events, outbox_internal.dedup;

-- A procedure's own commits and rollbacks.
CREATE PROCEDURE pg_temp.in_parts() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..6 LOOP
    PERFORM outbox.enqueue('Order', i, i::text, '{}');
    INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', i || '+');
    IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
  PERFORM 1 / 0;
END $$;
CALL pg_temp.in_parts();
SELECT * FROM pg_temp.events;
SELECT count(DISTINCT xact) AS transactions FROM outbox.events;
TRUNCATE outbox.events;

-- Triggers of the application: for each row, for each statement with its transition table, and deferred to the commit.
CREATE TABLE regress_orders (id int PRIMARY KEY, state text);
CREATE FUNCTION pg_temp.tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_LEVEL = 'STATEMENT' THEN
    PERFORM outbox.enqueue('Order', id, TG_ARGV[0], to_jsonb(written)) FROM written ORDER BY id;
  ELSE
    PERFORM outbox.enqueue('Order', NEW.id, TG_ARGV[0] || NEW.id, to_jsonb(NEW));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER by_row AFTER INSERT OR UPDATE ON regress_orders FOR EACH ROW EXECUTE FUNCTION pg_temp.tell('row');
CREATE TRIGGER by_statement AFTER INSERT ON regress_orders REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.tell('statement');
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON regress_orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.tell('deferred');
BEGIN;
INSERT INTO regress_orders VALUES (1), (2);
SELECT FROM outbox.enqueue('Order', 1, 'last', '{}');
SELECT * FROM pg_temp.events;
COMMIT;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events;
-- A deferred trigger that fails at the commit takes everything with it.
CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$;
CREATE CONSTRAINT TRIGGER zz_fail AFTER INSERT ON regress_orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pg_temp.fail();
INSERT INTO regress_orders VALUES (3);
DROP TRIGGER zz_fail ON regress_orders;
SELECT count(*) AS events FROM outbox.events;
TRUNCATE regress_orders;

-- One statement: a writable CTE, its RETURNING, INSERT ... SELECT, MERGE.
ALTER TABLE regress_orders DISABLE TRIGGER ALL;
WITH placed AS (INSERT INTO regress_orders VALUES (1, 'new'), (2, 'new') RETURNING *),
     told AS (INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', id, 'cte' || id FROM placed ORDER BY id RETURNING aggregate_id, position)
SELECT aggregate_id, row_number() OVER (ORDER BY position) AS n FROM told ORDER BY 2;
WITH paid AS (UPDATE regress_orders SET state = 'paid' RETURNING id)
SELECT count(outbox.enqueue('Order', id, 'paid' || id, '{}')) FROM (SELECT id FROM paid ORDER BY id) AS paid;
MERGE INTO outbox.events AS e USING (VALUES ('1', 'merged'), ('9', 'merged')) AS v (id, what) ON e.aggregate_id = v.id AND e.event_type = 'cte1'
  WHEN MATCHED THEN DELETE
  WHEN NOT MATCHED THEN INSERT (aggregate_type, aggregate_id, event_type) VALUES ('Order', v.id, v.what);
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events, regress_orders;

-- Cursors: what was fetched is enqueued; one WITH HOLD runs to its end at the commit.
BEGIN;
DECLARE part CURSOR FOR SELECT outbox.enqueue('Order', n, 'fetched' || n, '{}') IS NOT NULL AS enqueued FROM generate_series(1, 4) AS n;
DECLARE held NO SCROLL CURSOR WITH HOLD FOR SELECT outbox.enqueue('Order', n, 'held' || n, '{}') IS NOT NULL AS enqueued FROM generate_series(1, 3) AS n;
FETCH 2 FROM part;
FETCH 1 FROM held;
COMMIT;
FETCH ALL FROM held;
CLOSE held;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events;

-- COPY: text, CSV, binary, with columns and without; FREEZE where PostgreSQL allows it.
COPY outbox.events (aggregate_type, event_type, payload) FROM stdin;
Order	text	\N
\.
COPY outbox.events (event_type, aggregate_type, headers, payload) FROM stdin WITH (FORMAT csv, HEADER);
event_type,aggregate_type,headers,payload
csv,Order,"{""a"": ""b""}","{""n"": 1}"
\.
COPY outbox.events FROM stdin WITH (NULL '-');
-	Order	7	whole	{}	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-	-
\.
SELECT event_type, payload, headers, aggregate_id, partition_key FROM outbox.events ORDER BY position;
SELECT * FROM pg_temp.events;
BEGIN;
TRUNCATE outbox.events_pending;
COPY outbox.events_pending (aggregate_type, event_type) FROM stdin WITH (FREEZE);
Order	frozen
\.
COMMIT;
SELECT * FROM pg_temp.events;
COPY outbox.events (aggregate_type, event_type) FROM stdin WITH (FREEZE);
\.
TRUNCATE outbox.events;

-- session_replication_role = replica turns off the application's triggers, not ours: a row without a position would be lost.
ALTER TABLE regress_orders ENABLE TRIGGER ALL;
SET session_replication_role = replica;
INSERT INTO regress_orders VALUES (1);
SELECT FROM outbox.enqueue('Order', 1, 'enqueue', '{}', dedup_key => 'replica');
INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'insert');
SELECT * FROM pg_temp.events;
UPDATE outbox.events SET available_at = now() WHERE event_type = 'insert';
SELECT count(*) AS recalled FROM outbox_internal.rescan_queue JOIN outbox.events USING (position) WHERE event_type = 'insert';
UPDATE outbox.events SET status = 'FAILED' WHERE event_type = 'insert';
UPDATE outbox.events SET status = 'PENDING' WHERE event_type = 'insert';
SELECT status, count(*) FROM outbox.events WHERE event_type = 'insert' GROUP BY 1;
DELETE FROM outbox.events WHERE event_type = 'enqueue';
SELECT count(*) AS known FROM outbox_internal.dedup;
RESET session_replication_role;
SELECT bool_and(tgenabled = 'A') AS always, count(DISTINCT tgname) AS triggers
FROM pg_trigger WHERE tgrelid IN (SELECT relid FROM pg_partition_tree('outbox.events')) AND NOT tgisinternal;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- A publication of everything: rows move, leave, and come back all the same.
SET client_min_messages = error; -- of wal_level
CREATE PUBLICATION regress_everything FOR ALL TABLES;
RESET client_min_messages;
SELECT FROM outbox.enqueue('Order', 1, 'published', '{}', dedup_key => 'published');
UPDATE outbox.events SET available_at = now();
UPDATE outbox.events SET status = 'FAILED';
UPDATE outbox.events SET status = 'PENDING';
DELETE FROM outbox_internal.rescan_queue;
DELETE FROM outbox.events;
SELECT (SELECT count(*) FROM outbox.events) AS events, (SELECT count(*) FROM outbox_internal.dedup) AS dedup, (SELECT count(*) FROM outbox_internal.rescan_queue) AS recalled;
-- All that our own statements change can be told apart by a subscriber.
SELECT relid::regclass FROM (SELECT relid FROM pg_partition_tree('outbox.events') WHERE isleaf UNION ALL VALUES ('outbox_internal.dedup'::regclass), ('outbox_internal.rescan_queue')) AS t
  JOIN pg_class ON oid = relid WHERE relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = relid AND indisprimary);
DROP PUBLICATION regress_everything;

-- No parallel plan; and an application's function that claims to be parallel safe fails instead of writing.
CREATE TABLE regress_big AS SELECT n FROM generate_series(1, 2000) AS n;
ANALYZE regress_big;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2;
CREATE FUNCTION pg_temp.is_parallel(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
  RETURN plan::text LIKE '%Gather%';
END $$;
SELECT pg_temp.is_parallel('SELECT count(*) FROM regress_big') AS without,
       pg_temp.is_parallel($$SELECT count(outbox.enqueue('Order', n, 'e', '{}')) FROM regress_big$$) AS enqueue,
       pg_temp.is_parallel($$SELECT count(outbox.enqueue_bytes('Order', n, 'e', '', 'x/y')) FROM regress_big$$) AS enqueue_bytes,
       pg_temp.is_parallel($$INSERT INTO outbox.events (aggregate_type, event_type) SELECT 'Order', 'e' FROM regress_big$$) AS insert;
SELECT CASE WHEN current_setting('server_version_num')::int < 160000 THEN set_config('force_parallel_mode', 'on', false)
       ELSE set_config('debug_parallel_query', 'on', false) END;
SELECT count(outbox.enqueue('Order', n, 'e', '{}')) FROM regress_big;
CREATE FUNCTION pg_temp.liar(int) RETURNS uuid LANGUAGE plpgsql PARALLEL SAFE AS $$BEGIN RETURN outbox.enqueue('Order', $1, 'e', '{}'); END$$;
SELECT count(pg_temp.liar(n)) FROM regress_big;
\echo :LAST_ERROR_SQLSTATE
RESET ALL;
SELECT count(*) FROM outbox.events;
TRUNCATE outbox.events;

-- A read-only transaction says so.
BEGIN READ ONLY;
SELECT outbox.enqueue('Order', 1, 'e', '{}');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'e');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- A dedup key counts from when it was taken, not from when its transaction began.
BEGIN;
SELECT FROM pg_sleep(0.001);
SELECT FROM outbox.enqueue('Order', 1, 'e', '{}', dedup_key => 'k');
SELECT created_at > now() AS later FROM outbox_internal.dedup;
ROLLBACK;

DROP TABLE regress_orders, regress_big;
SELECT count(*) FROM outbox.events;
