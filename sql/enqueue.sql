-- outbox.enqueue() and outbox.enqueue_bytes(): what they write, what they return, and which rights they need.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- The key may be text, a number or a uuid, as the application's column is.
SELECT outbox.enqueue('Order', '1', 'order.created', '{"n": 1}') AS id \gset first_
SELECT outbox.enqueue('Order', 2, 'order.created', '{"n": 2}') IS NOT NULL AS by_integer;
SELECT outbox.enqueue('Order', 3::bigint, 'order.created', '{"n": 3}') IS NOT NULL AS by_bigint;
SELECT outbox.enqueue('Order', '00000000-0000-4000-8000-000000000004'::uuid, 'order.created', '{"n": 4}') IS NOT NULL AS by_uuid;
SELECT outbox.enqueue('Order', NULL, 'order.created', '{"n": 5}');
SELECT outbox.enqueue('Order', NULL, 'order.created', '{"n": 5}', partition_key => '') IS NOT NULL AS without_key;
SELECT outbox.enqueue('Order', 6, 'order.created', '\x00'::bytea);
SELECT outbox.enqueue('Order', 6, 'order.created', now());
SELECT aggregate_type, aggregate_id, event_type, payload, partition_key, status, attempts, sink, seq,
       created_at <= now() AS created, available_at, xact IS NOT NULL AS has_xact, origin IS NOT NULL AS has_origin
FROM outbox.events ORDER BY position;

-- The text of these types is the same in every session. char(n) is without its padding; a domain is the type below it.
CREATE TYPE regress_mood AS ENUM ('glad');
CREATE DOMAIN regress_number AS integer;
CREATE DOMAIN regress_code AS varchar(9);
SELECT count(outbox.enqueue('Key', 1::smallint, 'smallint', '{}')) + count(outbox.enqueue('Key', 1.50, 'numeric', '{}'))
     + count(outbox.enqueue('Key', 'a '::varchar(9), 'varchar', '{}')) + count(outbox.enqueue('Key', 'b'::char(9), 'char', '{}'))
     + count(outbox.enqueue('Key', 'c'::name, 'name', '{}')) + count(outbox.enqueue('Key', 'd'::"char", 'one char', '{}'))
     + count(outbox.enqueue('Key', 'glad'::regress_mood, 'enum', '{}')) + count(outbox.enqueue('Key', 5::regress_number, 'domain of integer', '{}'))
     + count(outbox.enqueue('Key', 'e'::regress_code, 'domain of varchar', '{}')) AS keys;
SELECT event_type, quote_literal(aggregate_id) AS aggregate_id, partition_key = aggregate_id AS is_key FROM outbox.events WHERE aggregate_type = 'Key' ORDER BY position;
-- Of other types it is not: such a key is refused in each call, with a payload of any type, also without a value.
SELECT outbox.enqueue('Key', 1.5::float8, 'x', '{}');
\set VERBOSITY terse
SELECT outbox.enqueue('Key', current_date, 'x', '{}'::jsonb);
SELECT outbox.enqueue('Key', NULL::timestamptz, 'x', '{}'::json, partition_key => 'k');
SELECT outbox.enqueue('Key', true, 'x', '{}', headers => '{}'::jsonb);
SELECT outbox.enqueue('Key', '{}'::json, 'x', '{}');
SELECT outbox.enqueue('Key', ARRAY[1], 'x', '{}');
SELECT outbox.enqueue('Key', ROW(1, 2), 'x', '{}');
SELECT outbox.enqueue_bytes('Key', '\x00'::bytea, 'x', '\x00', 'a/b');
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
-- A literal or a parameter without a type is a text.
PREPARE untyped AS SELECT outbox.enqueue('Key', $1, 'untyped', $2, headers => $3), outbox.enqueue_bytes('Key', $4, 'untyped', $5, $6);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped';
DEALLOCATE untyped;
DROP TYPE regress_mood;
DROP DOMAIN regress_number, regress_code;
DELETE FROM outbox.events WHERE aggregate_type = 'Key';

-- It returns the id that the event has, a UUID of version 7 made now.
SELECT e.id = :'first_id' AS same_id, substr(e.id::text, 15, 1) AS version,
       abs(('x' || replace(left(e.id::text, 13), '-', ''))::bit(48)::bigint - extract(epoch FROM created_at) * 1000) < 60000 AS clock
FROM outbox.events e WHERE payload = '{"n": 1}';
SELECT count(DISTINCT id) = count(*) AS distinct_ids, bool_and(ordered) AS ids_follow_positions
FROM (SELECT id, id > lag(id) OVER (ORDER BY position) IS NOT FALSE AS ordered FROM outbox.events) AS e;
TRUNCATE outbox.events;

-- Every parameter by name.
SELECT outbox.enqueue(aggregate_type => 'Order', aggregate_id => '7', event_type => 'order.paid', payload => NULL,
                      headers => '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "retries": 3, "vip": true, "rate": 1.50}',
                      partition_key => 'customer-9', dedup_key => 'paid-7', available_at => '2100-01-01 00:00+00',
                      id => '01890a5d-ac96-774b-bcce-b302099a8057');
SELECT id, aggregate_id, payload IS NULL AS tombstone, headers, partition_key, dedup_key, available_at = '2100-01-01 00:00+00' AS scheduled
FROM outbox.events;
TRUNCATE outbox.events, outbox_internal.dedup;

-- Raw bytes stay what they are.
SELECT outbox.enqueue_bytes('Order', '1', 'order.created', '\x0000000007c3ff', 'application/avro', headers => '{"a": "b"}') IS NOT NULL AS by_text;
SELECT outbox.enqueue_bytes('Order', 2, 'order.created', '\x00', 'application/x-protobuf', partition_key => 'p') IS NOT NULL AS by_integer;
SELECT outbox.enqueue_bytes('Order', '00000000-0000-4000-8000-000000000003'::uuid, 'order.created', '\x', 'application/octet-stream') IS NOT NULL AS by_uuid;
SELECT aggregate_id, payload, payload_bytes, content_type, headers, partition_key FROM outbox.events ORDER BY position;
TRUNCATE outbox.events;

-- A role with USAGE on the schema and INSERT on the table can enqueue, and can read nothing.
CREATE ROLE regress_outbox_app;
SET ROLE regress_outbox_app;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_app;
SET ROLE regress_outbox_app;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', dedup_key => 'k');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT INSERT ON outbox.events TO regress_outbox_app;
SET ROLE regress_outbox_app;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', dedup_key => 'k') IS NOT NULL AS enqueued;
SELECT current_user;
SELECT * FROM outbox.events;
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM outbox_internal.dedup;
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_internal.route_waiting();
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_internal.kafka_validator('{}', 0);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;

-- A plain INSERT needs nothing more: not the sequence, nor the tables behind.
SET ROLE regress_outbox_app;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', '2', 'order.created', 'k2');
RESET ROLE;
SELECT aggregate_id, dedup_key FROM outbox.events ORDER BY position;

-- A search_path of the caller's changes nothing: nobody can slip in an operator or a function of their own.
CREATE SCHEMA regress_evil;
CREATE FUNCTION regress_evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'hijacked'; END$$;
CREATE OPERATOR regress_evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_evil.eq);
GRANT USAGE ON SCHEMA regress_evil TO regress_outbox_app;
SET ROLE regress_outbox_app;
SET search_path = regress_evil, pg_catalog;
SELECT outbox.enqueue('Order', '3', 'order.created', '{}', dedup_key => 'k3') IS NOT NULL AS enqueued;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', '4', 'order.created', 'k4');
RESET search_path;
RESET ROLE;
DELETE FROM outbox.events;
SELECT count(*) AS keys_left FROM outbox_internal.dedup;

SET client_min_messages = warning;
DROP SCHEMA regress_evil CASCADE;
DROP OWNED BY regress_outbox_app;
DROP ROLE regress_outbox_app;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
