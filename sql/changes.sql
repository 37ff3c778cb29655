-- Plain SQL on events: cancel, reschedule, correct, redrive. What the worker may have passed is recalled.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

BEGIN;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'a.*');
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'b.*');
CREATE VIEW pg_temp.recalled AS
  SELECT event_type, count(*) AS times FROM outbox_internal.rescan_queue JOIN outbox.events USING (position) GROUP BY position, event_type ORDER BY position;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type)
  SELECT 'Order', '1', 'a.' || what FROM unnest(ARRAY['untouched', 'payload', 'sink', 'key', 'time', 'attempts', 'blocked', 'nothing']) WITH ORDINALITY AS w (what, n) ORDER BY n;
UPDATE outbox.events SET payload = '{"corrected": true}' WHERE event_type = 'a.payload';
UPDATE outbox.events SET sink = 'regress_b' WHERE event_type = 'a.sink';
UPDATE outbox.events SET partition_key = 'other' WHERE event_type = 'a.key';
UPDATE outbox.events SET available_at = now() + interval '1 day' WHERE event_type = 'a.time';
UPDATE outbox.events SET attempts = 3 WHERE event_type = 'a.attempts';
UPDATE outbox.events SET blocked_by = 1 WHERE event_type = 'a.blocked';
UPDATE outbox.events SET sink = sink, attempts = attempts WHERE event_type = 'a.nothing';
SELECT * FROM pg_temp.recalled;

-- A correction is checked as an event that comes in is.
SAVEPOINT s;
UPDATE outbox.events SET headers = '{"a": {"b": 1}}';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
UPDATE outbox.events SET event_type = '';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
UPDATE outbox.events SET sink = 'regress_c';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
-- An event has one payload: bytes replace {}, and nothing else.
UPDATE outbox.events SET payload = '{"a": 1}', payload_bytes = 'a' WHERE event_type = 'a.nothing';
ROLLBACK TO s;
UPDATE outbox.events SET payload_bytes = 'a' WHERE event_type = 'a.payload';
ROLLBACK TO s;
UPDATE outbox.events SET payload_bytes = 'a' WHERE event_type = 'a.nothing' RETURNING payload IS NULL AS has_bytes_only;
UPDATE outbox.events SET payload = '{"a": 1}' WHERE event_type = 'a.nothing';
ROLLBACK TO s;
UPDATE outbox.events SET payload = NULL, payload_bytes = 'a' WHERE event_type = 'a.payload' RETURNING payload_bytes;
UPDATE outbox.events SET payload = '[]', payload_bytes = NULL WHERE event_type = 'a.payload' RETURNING payload;

-- An empty key is no key.
UPDATE outbox.events SET partition_key = '' WHERE event_type = 'a.key' RETURNING partition_key IS NULL AS has_no_key;
-- A row that an UPDATE of its status moves keeps its position, and comes back to it.
TRUNCATE outbox.events, outbox_internal.rescan_queue;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'a.1'), ('Order', '1', 'a.2');
SELECT position, id, origin FROM outbox.events WHERE event_type = 'a.1' \gset before_
UPDATE outbox.events SET status = 'FAILED', attempts = 10, last_error = 'by hand', available_at = now() + interval '1 hour' WHERE event_type = 'a.1';
SELECT tableoid::regclass, position = :before_position AS same_position, id = :'before_id' AS same_id, origin = :before_origin AS same_origin, sink
FROM outbox.events WHERE event_type = 'a.1';
SELECT * FROM pg_temp.recalled;
UPDATE outbox.events SET status = 'PENDING' WHERE event_type = 'a.1';
SELECT tableoid::regclass, position = :before_position AS same_position, id = :'before_id' AS same_id, sink, attempts, last_error, available_at
FROM outbox.events WHERE event_type = 'a.1';
SELECT * FROM pg_temp.recalled;

-- SENT by hand finds its day.
DO $$
BEGIN
  CREATE TABLE outbox.regress_day PARTITION OF outbox.events_sent FOR VALUES FROM (now() - interval '1 hour') TO (now() + interval '1 hour');
EXCEPTION WHEN invalid_object_definition THEN
  NULL; -- today's partition is there already
END
$$;
UPDATE outbox.events SET status = 'SENT' WHERE event_type = 'a.2';
SELECT status, sent_at = now() AS sent_now FROM outbox.events WHERE event_type = 'a.2';
UPDATE outbox.events SET status = 'PENDING' WHERE event_type = 'a.2';
SELECT status, sent_at FROM outbox.events WHERE event_type = 'a.2';

-- To cancel an event that had failed frees what waited behind it; one that had not blocks nothing.
TRUNCATE outbox.events, outbox_internal.rescan_queue;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, last_attempt_at) VALUES ('Order', '1', 'a.failing', now()), ('Order', '2', 'a.fresh', NULL);
SELECT position FROM outbox.events WHERE event_type = 'a.failing' \gset failing_
DELETE FROM outbox.events;
SELECT array_agg(position) = ARRAY[:failing_position]::bigint[] AS only_the_failing_one FROM outbox_internal.rescan_queue;

-- The sink's name need not be a right of the person who redrives: the row had it before.
CREATE ROLE regress_outbox_operator;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_operator;
GRANT SELECT, UPDATE, DELETE, INSERT ON outbox.events TO regress_outbox_operator;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'a.1'), ('Order', '2', 'a.2');
UPDATE outbox.events SET status = 'FAILED';
SET ROLE regress_outbox_operator;
UPDATE outbox.events SET status = 'PENDING';
SELECT event_type, status, sink FROM outbox.events ORDER BY position;
RESET ROLE;
ROLLBACK;
