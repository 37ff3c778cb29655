-- The size of an event is that of what is sent, however small it is stored: 1e131071 has 12 bytes in the table, and 131,072 digits.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE EXTENSION IF NOT EXISTS outbox_manual;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
BEGIN;
CREATE SERVER regress_crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.invalid/', events 'order.*');
SAVEPOINT s;
CREATE FUNCTION pg_temp.numbers(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, n) $$;
CREATE FUNCTION pg_temp.nested(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('[', n) || repeat(']', n))::jsonb $$;
SAVEPOINT s;

-- By the text
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(100)) IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(200));
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'order.created', pg_temp.numbers(200));
ROLLBACK TO s;
SELECT outbox.enqueue('Order', '1', 'order.created', to_jsonb(repeat(E'\u0001', 2800000)));
ROLLBACK TO s;
SELECT outbox.enqueue('Order', '1', 'order.created', to_jsonb(repeat('x', 16777214))) IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', to_jsonb(repeat('x', 16777215)));
ROLLBACK TO s;
-- Bytes
SELECT outbox.enqueue_bytes('Order', '1', 'order.created', decode(repeat('00', 16777217), 'hex'), 'x/y');
ROLLBACK TO s;
-- Headers, whose numbers become texts, and the other columns
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => jsonb_build_object('n', 1e131071::numeric)) IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', headers => (SELECT jsonb_object_agg(n::text, '1e131071'::jsonb) FROM generate_series(1, 5000) n));
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
SELECT outbox.enqueue('Order', repeat('x', 1100000), 'order.created', '{}');
ROLLBACK TO s;
-- Without a sink: what no sink could ever take
SELECT outbox.enqueue('Order', '1', 'unrouted', pg_temp.numbers(2000)) IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'unrouted', pg_temp.numbers(3000));
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;

-- The counted length is that of the text: numbers of every form, escapes, empty and nested containers, values without a key
ALTER SERVER regress_crm OPTIONS (ADD max_payload '1kB');
CREATE FUNCTION pg_temp.counted(payload jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  said text;
BEGIN
  PERFORM outbox.enqueue('Order', '1', 'order.created', payload);
  RETURN 'it fits';
EXCEPTION WHEN program_limit_exceeded THEN
  GET STACKED DIAGNOSTICS said = PG_EXCEPTION_DETAIL;
  RETURN said;
END $$;
SELECT count(*), every(octet_length(p::text) > 1024), count(*) FILTER (WHERE pg_temp.counted(p) <>
  format('As it is sent, it has %s bytes, and at most 1024 are allowed.', octet_length(p::text))) AS wrong
FROM (
  SELECT jsonb_build_array(n, -n, 'x', repeat('x', 1024), n, jsonb_build_object('n', n, '', -n)) AS p FROM (
    SELECT (sign * digits * 10::numeric ^ scale)::numeric AS n
    FROM unnest('{1,-1}'::int[]) sign, unnest('{0,1,9,10,99,100,999,1000,9999,10000,12345,99999999,100000001}'::numeric[]) digits, generate_series(-40, 40, 3) scale
    UNION ALL SELECT round(1.5, scale) FROM generate_series(0, 70) scale
    UNION ALL VALUES (1e-1000::numeric), (1e-16383), (-1e131071), (10::numeric ^ 255), (10::numeric ^ 256), (10::numeric ^ -256), (10::numeric ^ -260), (0.000), (1e131071 + 1e-100)) AS n
  UNION ALL SELECT to_jsonb(repeat(chr(c), 1023)) FROM generate_series(1, 300) c
  UNION ALL SELECT to_jsonb(repeat('x', i) || chr(c) || repeat('y', 1030)) FROM generate_series(0, 9) i, unnest('{1,8,9,10,11,12,13,31,34,92,127,233}'::int[]) c
  UNION ALL SELECT jsonb_build_object('a"\' || n, '[]'::jsonb, 'b', '{}'::jsonb, 'c', NULL, 'd', true, 'e', false, 'f', jsonb_build_array(repeat('"', 600), '[[], {"a": {"b": [1]}}]'::jsonb)) FROM generate_series(1, 3) n
  UNION ALL SELECT jsonb_agg(i % 7) FROM generate_series(1, 2000) i
  UNION ALL SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 500) i
  UNION ALL SELECT pg_temp.nested(600)
  UNION ALL VALUES (to_jsonb(1e2000::numeric))) AS p;
ROLLBACK TO s;

-- Depth
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.nested(1000)) IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.nested(1001));
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;

-- The option, of every kind
ALTER SERVER regress_crm OPTIONS (ADD max_payload '512');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD max_payload '257MB');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD max_payload '1 GB');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD max_payload '256 MB');
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(200)) IS NOT NULL AS fits;
ROLLBACK TO s;
CREATE SERVER regress_main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'kafka.invalid', events 'order.*', message_max_bytes '40000000');
CREATE SERVER regress_own FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'order.paid', max_payload '2kB');
SAVEPOINT s;
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(200), sink => 'regress_main') IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(300), sink => 'regress_main') IS NOT NULL AS fits;
SELECT outbox.enqueue('Order', '1', 'order.created', pg_temp.numbers(310), sink => 'regress_main');
ROLLBACK TO s;
SELECT outbox.enqueue('Order', '1', 'order.created', to_jsonb(repeat('x', 2047)), sink => 'regress_own');
ROLLBACK TO s;
-- Another sink takes it: a dead letter for the one that cannot
SELECT outbox.enqueue('Order', '1', 'order.paid', pg_temp.numbers(1)) IS NOT NULL AS fits_others;
SELECT sink FROM outbox.events ORDER BY sink COLLATE "C";

-- A change is judged like a new event, what is there already is not
UPDATE outbox.events SET payload = to_jsonb(repeat('x', 2047)) WHERE sink = 'regress_own';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', sink => 'regress_own') IS NOT NULL AS fits;
SAVEPOINT s;
UPDATE outbox.events SET payload = pg_temp.nested(1001);
ROLLBACK TO s;
UPDATE outbox.events SET payload = NULL, payload_bytes = decode(repeat('00', 2049), 'hex');
ROLLBACK TO s;
UPDATE outbox.events SET headers = (SELECT jsonb_object_agg(n::text, '1e131071'::jsonb) FROM generate_series(1, 5000) n);
ROLLBACK TO s;
UPDATE outbox.events SET payload = to_jsonb(repeat('x', 2046));
ALTER SERVER regress_own OPTIONS (SET max_payload '1kB');
UPDATE outbox.events SET available_at = now(), seq = 2, last_error = 'x';
SELECT sink, length(payload::text) FROM outbox.events;

-- A preview shows for a sink what the sink takes
SELECT part, length(value) FROM outbox.events AS e, outbox.preview(e.id, 'regress_crm') AS p WHERE part = 'body';
ALTER SERVER regress_crm OPTIONS (ADD max_payload '1kB');
SELECT p.* FROM outbox.events AS e, outbox.preview(e.id, 'regress_crm') AS p;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
