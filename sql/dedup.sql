-- dedup_key: within outbox.dedup_window a second event with the same key is not enqueued.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- enqueue() returns the first one's id and adds nothing.
SELECT outbox.enqueue('Order', '1', 'order.paid', '{"n": 1}', dedup_key => 'pay-1') AS id \gset first_
SELECT outbox.enqueue('Order', '1', 'order.paid', '{"n": 2}', dedup_key => 'pay-1') = :'first_id' AS same;
SELECT outbox.enqueue_bytes('Order', 1, 'order.paid', '\x00', 'x/y', dedup_key => 'pay-1') = :'first_id' AS same;
SELECT outbox.enqueue('Order', '1', 'order.paid', '{"n": 3}', dedup_key => 'pay-2') = :'first_id' AS same;
SELECT payload, dedup_key FROM outbox.events ORDER BY position;

-- A plain INSERT of a known key fails as with a unique index; with ON CONFLICT DO NOTHING too.
INSERT INTO outbox.events (aggregate_type, event_type, dedup_key) VALUES ('Order', 'order.paid', 'pay-1');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, dedup_key) VALUES ('Order', 'order.paid', 'pay-1') ON CONFLICT DO NOTHING;
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, dedup_key) VALUES ('Order', 'order.paid', 'twice'), ('Order', 'order.paid', 'twice');
\echo :LAST_ERROR_SQLSTATE
-- and its key counts for enqueue().
INSERT INTO outbox.events (aggregate_type, event_type, dedup_key) VALUES ('Order', 'order.paid', 'pay-3') RETURNING id \gset third_
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'pay-3') = :'third_id' AS same;

-- What rolled back took no key.
BEGIN;
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'pay-4') IS NOT NULL AS enqueued;
ROLLBACK;
SELECT count(*) AS known FROM outbox_internal.dedup WHERE dedup_key = 'pay-4';

-- The key outlives the event's stay in PENDING.
UPDATE outbox.events SET status = 'FAILED' WHERE dedup_key = 'pay-1';
SELECT outbox.enqueue('Order', '1', 'order.paid', '{"n": 4}', dedup_key => 'pay-1') = :'first_id' AS same;

-- A pending event that a person cancels frees its key.
DELETE FROM outbox.events WHERE dedup_key = 'pay-3';
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'pay-3') <> :'third_id' AS new_event;

-- A fanned-out event is one event: cancelling one of its rows leaves the key.
BEGIN;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'fan') AS id \gset fan_
DELETE FROM outbox.events WHERE id = :'fan_id' AND sink = 'regress_a';
SELECT count(*) AS known FROM outbox_internal.dedup WHERE dedup_key = 'fan';
DELETE FROM outbox.events WHERE id = :'fan_id';
SELECT count(*) AS known FROM outbox_internal.dedup WHERE dedup_key = 'fan';
ROLLBACK;

-- After the window a key names a new event.
UPDATE outbox_internal.dedup SET created_at = now() - interval '25 hours' WHERE dedup_key = 'pay-2';
UPDATE outbox_internal.dedup SET created_at = now() - interval '23 hours' WHERE dedup_key = 'pay-1';
SELECT outbox.enqueue('Order', '1', 'order.paid', '{"n": 5}', dedup_key => 'pay-2') AS id \gset later_
SELECT event_id = :'later_id' AS renewed, created_at > now() - interval '1 hour' AS fresh FROM outbox_internal.dedup WHERE dedup_key = 'pay-2';
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'pay-1') = :'first_id' AS same;
SET outbox.dedup_window = '10min';
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'pay-1') = :'first_id' AS same;
RESET outbox.dedup_window;

TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
