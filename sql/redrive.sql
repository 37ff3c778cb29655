-- A dead letter goes back to its place, or a warning says why it cannot; a SELECT over many goes on.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
SELECT count(nextval('outbox.events_position')) AS positions_of_this_script FROM generate_series(1, 10);
BEGIN;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order.*');
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order.*');
CREATE FUNCTION pg_temp.uuid(n integer) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
CREATE VIEW pg_temp.rows AS
  SELECT right(id::text, 2)::int AS event, sink, status, attempts, last_error, overtaken_by, redrive_late,
    created_at = '2026-01-01' AS same_created_at, available_at
  FROM outbox.events ORDER BY id, sink;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, created_at, dedup_key)
  SELECT pg_temp.uuid(n), 'Order', 'key', 'order.created', '2026-01-01', CASE n WHEN 1 THEN 'dedup' END FROM generate_series(1, 5) AS n;
SELECT position AS first FROM outbox.events WHERE id = pg_temp.uuid(1) AND sink = 'regress_a' \gset
UPDATE outbox.events SET status = 'FAILED', attempts = 10, last_error = 'HTTP 400', last_attempt_at = '2026-01-02', available_at = '2026-01-02'
  WHERE id IN (pg_temp.uuid(1), pg_temp.uuid(2)) OR sink = 'regress_a' AND id = pg_temp.uuid(3);
TRUNCATE outbox_internal.rescan_queue;

-- Back: attempts begin again, nothing counts as failed, what was said last is kept, so are its place, its time and its dedup key.
SELECT outbox.redrive(pg_temp.uuid(1), 'regress_a');
SELECT * FROM pg_temp.rows WHERE event = 1;
SELECT position = :first AS same_position, last_attempt_at IS NULL AS is_new FROM outbox.events WHERE id = pg_temp.uuid(1) AND sink = 'regress_a';
SELECT DISTINCT position = :first AS recalled FROM outbox_internal.rescan_queue;
SELECT count(*) AS dedup_keys FROM outbox_internal.dedup;

-- Without a sink: for all of them.
SELECT outbox.redrive(pg_temp.uuid(2));
SELECT event, sink, status FROM pg_temp.rows WHERE event = 2;

-- Not a dead letter, or not any more; never heard of; NULL
SELECT outbox.redrive(pg_temp.uuid(1), 'regress_a');
SELECT outbox.redrive(pg_temp.uuid(3), 'regress_b');
SELECT outbox.redrive(pg_temp.uuid(99));
SELECT outbox.redrive(pg_temp.uuid(3), 'nonsense');
SELECT outbox.redrive(NULL);

-- Later events of its key have gone: not without force. The worker is who writes that down.
UPDATE outbox.events SET position = 3, overtaken_by = 5 WHERE id = pg_temp.uuid(3) AND sink = 'regress_a';
SELECT outbox.redrive(pg_temp.uuid(3));
SELECT event, sink, status FROM pg_temp.rows WHERE event = 3;
SELECT outbox.redrive(pg_temp.uuid(3), force => true);
SELECT event, sink, status, attempts, overtaken_by IS NOT NULL AS overtaken, redrive_late FROM pg_temp.rows WHERE event = 3;
-- An unordered sink has no order to keep.
UPDATE outbox.events SET status = 'FAILED' WHERE id = pg_temp.uuid(3) AND sink = 'regress_a';
UPDATE outbox.events SET overtaken_by = position + 1 WHERE id = pg_temp.uuid(3) AND sink = 'regress_a';
ALTER SERVER regress_a OPTIONS (ADD ordered 'off');
SELECT outbox.redrive(pg_temp.uuid(3));
SELECT event, sink, status, overtaken_by, redrive_late FROM pg_temp.rows WHERE event = 3;
ALTER SERVER regress_a OPTIONS (DROP ordered);

-- What was overtaken in one order was not in another.
UPDATE outbox.events SET status = 'FAILED' WHERE id IN (pg_temp.uuid(3), pg_temp.uuid(4)) AND sink = 'regress_a';
UPDATE outbox.events SET overtaken_by = position + 1 WHERE status = 'FAILED';
UPDATE outbox.events SET partition_key = 'other' WHERE id = pg_temp.uuid(3) AND status = 'FAILED';
SELECT event, overtaken_by IS NOT NULL AS overtaken FROM pg_temp.rows WHERE status = 'FAILED';
UPDATE outbox.events SET overtaken_by = NULL WHERE status = 'FAILED';

-- Made PENDING by hand: as with force.
UPDATE outbox.events SET status = 'PENDING' WHERE id = pg_temp.uuid(3) AND sink = 'regress_a';
SELECT event, sink, status, redrive_late FROM pg_temp.rows WHERE event = 3;

-- The same id is pending again.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, sink) VALUES (pg_temp.uuid(4), 'Order', 'key', 'order.created', 'regress_a');
UPDATE outbox.events SET position = 4 WHERE id = pg_temp.uuid(4) AND status = 'FAILED';
SELECT outbox.redrive(pg_temp.uuid(4), 'regress_a');
DELETE FROM outbox.events WHERE id = pg_temp.uuid(4) AND status = 'PENDING';

-- The sink is gone.
UPDATE outbox.events SET status = 'FAILED' WHERE id = pg_temp.uuid(5);
DROP SERVER regress_b CASCADE;
SELECT outbox.redrive(pg_temp.uuid(5), 'regress_b');
SELECT outbox.redrive(pg_temp.uuid(5));
SELECT event, sink, status FROM pg_temp.rows WHERE event = 5;

-- Many, of which some cannot.
\set VERBOSITY terse
UPDATE outbox.events SET status = 'FAILED' WHERE sink = 'regress_a';
UPDATE outbox.events SET overtaken_by = position + 1 WHERE id = pg_temp.uuid(2) AND status = 'FAILED';
SELECT right(id::text, 2)::int AS event, sink, outbox.redrive(id, sink) FROM outbox.events WHERE status = 'FAILED' ORDER BY position;
SELECT event, sink, status FROM pg_temp.rows;
\set VERBOSITY default

-- For those who were granted it, who need no right on the tables; for nobody else.
CREATE ROLE regress_outbox_operator;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_operator;
SAVEPOINT s;
SET ROLE regress_outbox_operator;
SELECT outbox.redrive(pg_temp.uuid(2), force => true);
ROLLBACK TO s;
GRANT EXECUTE ON FUNCTION outbox.redrive(uuid, text, boolean) TO regress_outbox_operator;
SET ROLE regress_outbox_operator;
SELECT outbox.redrive('00000000-0000-0000-0000-000000000002', force => true);
RESET ROLE;
SELECT event, sink, status FROM pg_temp.rows WHERE event = 2 AND sink = 'regress_a';

-- A change of a dead letter is the worker's business: it may hold its key.
TRUNCATE outbox.events, outbox_internal.rescan_queue;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) SELECT pg_temp.uuid(n), 'Order', 'key', 'order.created' FROM generate_series(1, 4) AS n;
UPDATE outbox.events SET status = 'FAILED';
SELECT count(DISTINCT position) AS failed_by_hand FROM outbox_internal.rescan_queue;
TRUNCATE outbox_internal.rescan_queue;
UPDATE outbox.events SET partition_key = 'other' WHERE id = pg_temp.uuid(1);
UPDATE outbox.events SET last_error = 'a remark' WHERE id = pg_temp.uuid(2);
DELETE FROM outbox.events WHERE id = pg_temp.uuid(3);
SELECT right(id::text, 2)::int AS event, count(*) FROM outbox_internal.rescan_queue LEFT JOIN outbox.events USING (position) GROUP BY 1;

-- A destination may drop what has an old time: said once per statement and sink, and only of sinks that send those times.
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', timestamp 'created_at');
CREATE SERVER regress_c FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', timestamp 'created_at');
TRUNCATE outbox.events, outbox_internal.rescan_queue;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) SELECT pg_temp.uuid(n), 'Order', 'key', 'order.created' FROM generate_series(1, 3) AS n;
UPDATE outbox.events SET status = 'FAILED';
SELECT sink, count(*) FILTER (WHERE outbox.redrive(id, sink)) AS redriven FROM outbox.events WHERE status = 'FAILED' GROUP BY sink ORDER BY sink;
UPDATE outbox.events SET status = 'FAILED' WHERE id = pg_temp.uuid(1);
SELECT outbox.redrive(pg_temp.uuid(1), 'regress_a');
SELECT outbox.redrive(pg_temp.uuid(1), 'regress_b');
SELECT outbox.redrive(pg_temp.uuid(1), 'regress_b'); -- not redriven
ROLLBACK;
