-- Events that could never be sent are refused while their writer can still be told.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Headers are a flat object of one-line texts
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '["a"]');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '"a"');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"fine": "x", "nested": {"b": 1}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"list": [1]}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"nothing": null}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"": "x"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"a": "x\r\nSet-Cookie: y"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"a\nb": "x"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{"a": "\u0000"}');
\echo :LAST_ERROR_SQLSTATE
-- by INSERT as well
INSERT INTO outbox.events (aggregate_type, event_type, headers) VALUES ('Order', 'order.created', '{"a": {"b": 1}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => '{}') IS NOT NULL AS no_headers_are_fine;

-- Types
SELECT outbox.enqueue('', '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', '', '{}');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT outbox.enqueue(NULL, '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default
SELECT outbox.enqueue(repeat('x', 250), '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', repeat('x', 250), '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', repeat('x', 249), '{}') IS NOT NULL AS long_enough;
SELECT outbox.enqueue('Order', '1', E'order\ncreated', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue_bytes('Order', '1', 'order.created', '\x00', E'text/plain\r\nX: y');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', dedup_key => E'a\nb');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, payload, payload_bytes) VALUES ('Order', 'order.created', '{"a": 1}', '\x00');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, status) VALUES ('Order', 'order.created', 'DONE');
\echo :LAST_ERROR_SQLSTATE

-- A time that no format can write (pg_regress's own time zone differs between versions)
SET timezone = 'UTC';
INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'order.created', 'infinity');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'order.created', '10000-01-01Z');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'order.created', '0001-12-31 BC');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'first', '0001-01-01Z'), ('Order', 'last', '9999-12-31 23:59:59.999999Z');

-- A sink that does not exist: the nearest one, or which there are
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', sink => 'nowhere');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', message_max_bytes '2000', events 'order.*');
CREATE SERVER regress_hook FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', events 'hook.*');
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', sink => 'regress_kavka');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, sink) VALUES ('Order', 'order.created', 'crm');
\echo :LAST_ERROR_SQLSTATE

-- A topic that Kafka cannot have
SELECT outbox.enqueue('Order Line', '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE

-- Too large for its sink, as text: the binary form of jsonb is no measure
SELECT outbox.enqueue('Order', '1', 'order.created', jsonb_build_object('a', repeat('x', 3000)));
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', jsonb_build_object('a', repeat(E'\u0001', 500)));
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue_bytes('Order', '1', 'order.created', decode(repeat('00', 3000), 'hex'), 'x/y');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', jsonb_build_object('a', repeat('x', 1000))) IS NOT NULL AS fits;
-- Where another sink can take it, the one that cannot makes a dead letter of its own row.
ALTER SERVER regress_hook OPTIONS (SET events 'order.*');
SELECT outbox.enqueue('Order', '2', 'order.created', jsonb_build_object('a', repeat('x', 3000))) IS NOT NULL AS fits_the_other;
SELECT sink FROM outbox.events WHERE aggregate_id = '2' AND octet_length(payload::text) > 3000 ORDER BY position;

-- A correction that the event's sink would refuse; anything else may be changed, whatever the sink says by now.
UPDATE outbox.events SET aggregate_type = 'Order Line' WHERE sink = 'regress_kafka';
\echo :LAST_ERROR_SQLSTATE
UPDATE outbox.events SET headers = '{"not legal": "in HTTP"}' WHERE sink = 'regress_hook';
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_kafka OPTIONS (SET message_max_bytes '1000');
UPDATE outbox.events SET available_at = now(), dedup_key = NULL, status = 'FAILED' WHERE sink = 'regress_kafka';
UPDATE outbox.events SET partition_key = 'other' WHERE sink = 'regress_kafka';
\echo :LAST_ERROR_SQLSTATE

SET client_min_messages = warning;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
DROP SERVER regress_kafka;
DROP SERVER regress_hook;
