-- outbox.replay(): delivered events that are kept, again and in their old order; outbox.wait_delivered().
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SELECT outbox.run_maintenance() >= 0 AS has_days;
CREATE FUNCTION pg_temp.uuid(n integer) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
CREATE VIEW pg_temp.pending AS SELECT right(id::text, 2)::int AS event, sink, row_number() OVER (ORDER BY position) AS place
  FROM outbox.events WHERE status = 'PENDING' ORDER BY position;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order.*');
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://example.com', events 'order.*', match '{"tenant": "42"}');

-- Nothing is kept.
SELECT outbox.replay('regress_a', now() - interval '12 hours');

-- What was delivered: 1 to 4 to the first sink, not in the order of their ids; 2 and 4 are the second sink's as well. 5 is
-- pending, 6 a dead letter, 7 of a type that no sink takes.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, dedup_key, created_at, status, sent_at, sink, attempts, last_error)
SELECT pg_temp.uuid(n), 'Order', 'k', CASE n WHEN 3 THEN 'order.paid' WHEN 7 THEN 'mail.sent' ELSE 'order.created' END, to_jsonb(n), jsonb_build_object('tenant', CASE WHEN n % 2 = 0 THEN 42 ELSE 1 END),
  'dedup' || n, now() - interval '2 hours', 'SENT', now() - n * interval '1 hour', 'regress_a', 3, 'once failed'
FROM unnest('{4,1,3,2,5,6,7}'::int[]) WITH ORDINALITY AS u (n, place) ORDER BY place;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, status, sink)
VALUES (pg_temp.uuid(5), 'Order', 'k', 'order.created', 'PENDING', 'regress_a'), (pg_temp.uuid(6), 'Order', 'k', 'order.created', 'FAILED', 'regress_a');
BEGIN;
SELECT outbox.replay('regress_a', now() - interval '12 hours');
SELECT * FROM pg_temp.pending;
-- As it was, with a new position, and due from now on; its dedup key names it still.
SELECT count(DISTINCT (aggregate_type, aggregate_id, partition_key, payload, headers, dedup_key, created_at)) AS different, count(DISTINCT position) AS positions,
  max(attempts) FILTER (WHERE status = 'PENDING') AS attempts, max(last_error) FILTER (WHERE status = 'PENDING') AS error,
  bool_and(available_at = now()) FILTER (WHERE status = 'PENDING') AS due_now FROM outbox.events WHERE id = pg_temp.uuid(1);
-- What is pending is not doubled.
SELECT outbox.replay('regress_a', now() - interval '12 hours');
ROLLBACK;
-- A span: from since to before until
BEGIN;
SELECT outbox.replay('regress_a', now() - interval '3 hours', now() - interval '1 hour');
SELECT event FROM pg_temp.pending WHERE event <> 5 ORDER BY event;
ROLLBACK;
BEGIN;
SELECT outbox.replay('regress_a', '-infinity', 'infinity', events => 'order.p*, nothing');
SELECT event FROM pg_temp.pending WHERE event <> 5;
ROLLBACK;
-- Intervals, typed or not; times without a type
BEGIN;
SELECT outbox.replay('regress_a', interval '150 minutes');
SELECT event FROM pg_temp.pending WHERE event <> 5 ORDER BY event;
ROLLBACK;
BEGIN;
SELECT outbox.replay('regress_a', '12 hours', '150 minutes');
SELECT event FROM pg_temp.pending WHERE event <> 5 ORDER BY event;
ROLLBACK;
PREPARE untyped AS SELECT outbox.replay('regress_a', $1, $2);
SELECT DISTINCT unnest(parameter_types) FROM pg_prepared_statements WHERE name = 'untyped';
SELECT outbox.replay('regress_a', '-infinity', '2001-01-02 12:00');
SELECT outbox.replay('regress_a', 'yesterday evening');
SELECT outbox.replay('regress_a', interval '1 hour', events => 'nothing');
-- A timestamp and a date are of the session's time zone.
BEGIN;
SET LOCAL TimeZone = 'Asia/Tokyo';
SELECT outbox.replay('regress_a', (now() - interval '150 minutes')::timestamp, localtimestamp);
SELECT event FROM pg_temp.pending WHERE event <> 5 ORDER BY event;
ROLLBACK;
BEGIN;
SELECT outbox.replay('regress_a', current_date - 1, current_date + 2);
ROLLBACK;
\set VERBOSITY terse
SELECT outbox.replay('regress_a', interval '12 hours', interval '13 hours');
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.replay('regress_a', 7);
\echo :LAST_ERROR_SQLSTATE

-- One event by its id: as this sink had it, or another one
BEGIN;
SELECT outbox.replay('regress_a', event => pg_temp.uuid(3)) AS sent, outbox.replay('regress_b', event => pg_temp.uuid(2)) AS sent, outbox.replay('regress_a', event => pg_temp.uuid(3)) AS pending;
SELECT event, sink FROM pg_temp.pending WHERE event <> 5;
SELECT count(DISTINCT (aggregate_type, aggregate_id, partition_key, payload, headers, dedup_key, created_at)) AS different FROM outbox.events WHERE id = pg_temp.uuid(3);
ROLLBACK;
SELECT outbox.replay('regress_a', event => pg_temp.uuid(5)), outbox.replay('regress_a', event => pg_temp.uuid(6)), outbox.replay('regress_a', event => pg_temp.uuid(77));
-- A destination may drop what has an old time: said once per statement.
BEGIN;
ALTER SERVER regress_a OPTIONS (ADD timestamp 'created_at');
SELECT outbox.replay('regress_a', event => pg_temp.uuid(3)), outbox.replay('regress_a', event => pg_temp.uuid(2));
ROLLBACK;
SELECT outbox.replay('regress_a', event => NULL);
SELECT outbox.replay('regress_none', event => pg_temp.uuid(3));
SELECT outbox.replay('regress_a', '1 hour', event => pg_temp.uuid(3));
SELECT outbox.replay('regress_a', events => 'order.*', event => pg_temp.uuid(3));
\echo :LAST_ERROR_SQLSTATE

-- A sink that was made later gets what it takes, whoever had it, once; one that had some of it, the rest.
BEGIN;
SELECT outbox.replay('regress_b', now() - interval '12 hours');
SELECT * FROM pg_temp.pending;
ROLLBACK;
BEGIN;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, status, sent_at, sink)
SELECT pg_temp.uuid(n), 'Order', 'k', 'order.created', 'SENT', now() - interval '1 day' * (n / 4), 'regress_b' FROM unnest('{2,2,4}'::int[]) AS n;
SELECT outbox.replay('regress_b', now() - interval '12 hours');
SELECT event, sink FROM pg_temp.pending;
ROLLBACK;
-- What it delivered before a RENAME counts as delivered by another sink
BEGIN;
ALTER SERVER regress_a RENAME TO regress_c;
SELECT outbox.replay('regress_c', now() - interval '12 hours', now(), 'order.paid');
SELECT event, sink FROM pg_temp.pending;
UPDATE outbox.events SET sink = 'regress_c' WHERE sink = 'regress_a' AND status <> 'SENT'; -- without the preload no hook does it
SELECT outbox.replay('regress_c', event => pg_temp.uuid(5)), outbox.replay('regress_c', event => pg_temp.uuid(6)), outbox.replay('regress_c', event => pg_temp.uuid(77));
ROLLBACK;

-- Wrong input, and nothing found
SELECT outbox.replay('regress_x', now() - interval '1 hour');
SELECT outbox.replay('regress_a', '2026-01-02', '2026-01-01');
SELECT outbox.replay('regress_a', NULL);
SELECT outbox.replay('regress_a', now() - interval '1 hour', now(), 'order.*,,x');
SELECT outbox.replay('regress_a', now() - interval '1 hour', now(), '');
SELECT outbox.replay('regress_a', now() - interval '1 hour', now(), 'order');

-- For those who were granted it and who have USAGE on the sink; they need no right on the table.
CREATE ROLE regress_outbox_replayer;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_replayer;
SET ROLE regress_outbox_replayer;
SELECT outbox.replay('regress_a', now() - interval '12 hours');
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox.replay TO regress_outbox_replayer;
SET ROLE regress_outbox_replayer;
SELECT outbox.replay('regress_a', now() - interval '12 hours');
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER regress_a TO regress_outbox_replayer;
SET ROLE regress_outbox_replayer;
SELECT outbox.replay('regress_a', '12 hours');
RESET ROLE;

-- outbox.wait_delivered(). No worker runs here.
CALL outbox.wait_delivered(pg_temp.uuid(99));
\echo :LAST_ERROR_SQLSTATE
CALL outbox.wait_delivered(NULL);
CALL outbox.wait_delivered(pg_temp.uuid(99), NULL);
\set VERBOSITY default
CALL outbox.wait_delivered(pg_temp.uuid(6));
\echo :LAST_ERROR_SQLSTATE
UPDATE outbox.events SET available_at = NULL WHERE status = 'PENDING';
CALL outbox.wait_delivered(pg_temp.uuid(5), '20 ms');
\echo :LAST_ERROR_SQLSTATE
UPDATE outbox.events SET available_at = '2100-01-01' WHERE status = 'PENDING' AND id = pg_temp.uuid(5);
CALL outbox.wait_delivered(pg_temp.uuid(5), '0');
UPDATE outbox.events SET sink = NULL, available_at = NULL WHERE status = 'PENDING' AND id = pg_temp.uuid(5);
CALL outbox.wait_delivered(pg_temp.uuid(5), '-1 day');
BEGIN;
CALL outbox.wait_delivered(pg_temp.uuid(99));
ROLLBACK;
BEGIN;
SELECT outbox.enqueue('Order', 'k', 'mail.sent', '{}', id => pg_temp.uuid(98)) IS NOT NULL AS enqueued;
CALL outbox.wait_delivered(pg_temp.uuid(98));
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
CREATE FUNCTION pg_temp.wait() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL outbox.wait_delivered('00000000-0000-0000-0000-000000000099'); END $$;
\set VERBOSITY terse
SELECT pg_temp.wait();
\set VERBOSITY default
-- In a procedure and in DO, once what was enqueued there is committed
DO $$ BEGIN PERFORM outbox.enqueue('Order', 'k', 'mail.sent', '{}', id => '00000000-0000-0000-0000-000000000097'); CALL outbox.wait_delivered('00000000-0000-0000-0000-000000000097'); END $$;
DO $$ BEGIN CALL outbox.wait_delivered('00000000-0000-0000-0000-000000000005'); EXCEPTION WHEN division_by_zero THEN NULL; END $$;
DO $$ BEGIN
  PERFORM outbox.enqueue('Order', 'k', 'mail.sent', '{}', id => '00000000-0000-0000-0000-000000000097');
  COMMIT;
  CALL outbox.wait_delivered('00000000-0000-0000-0000-000000000097', '10 ms');
END $$;

DROP OWNED BY regress_outbox_replayer;
DROP ROLE regress_outbox_replayer;
TRUNCATE outbox.events, outbox_internal.rescan_queue;
DROP SERVER regress_a;
DROP SERVER regress_b;
