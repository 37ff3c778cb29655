-- Prepared statements, and what poolers say to a session between its clients.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE ROLE regress_outbox_first;
CREATE ROLE regress_outbox_second;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_first, regress_outbox_second;
GRANT INSERT, SELECT (id) ON outbox.events TO regress_outbox_first, regress_outbox_second;

-- The server makes a plan of its own for all parameters with the sixth execution.
PREPARE place (text, jsonb) AS INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', $1, 'placed', $2) RETURNING id;
PREPARE call (text, jsonb) AS SELECT outbox.enqueue('Order', $1, 'called', $2) AS id;
SET ROLE regress_outbox_first;
DO $$
BEGIN
  FOR i IN 1 .. 7 LOOP
    EXECUTE format('EXECUTE place (%L, %L)', i, jsonb_build_object('n', i));
    EXECUTE format('EXECUTE call (%L, %L)', i, jsonb_build_object('n', i));
  END LOOP;
END
$$;
RESET ROLE;
SELECT name, generic_plans > 0 AS generic FROM pg_prepared_statements ORDER BY name;
SELECT count(*) AS events, count(DISTINCT id) AS ids, bool_and(payload = jsonb_build_object('n', aggregate_id::integer)) AS own_payload FROM outbox.events;
SELECT string_agg(aggregate_id || left(event_type, 1), ' ' ORDER BY position) AS in_order FROM outbox.events;
TRUNCATE outbox.events;

-- A plan that is there already learns of a new sink, of its options and of its end; another role, of its own rights.
CREATE SERVER regress_sink FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://sink.example.com/');
EXECUTE place ('routed', '{}') \g /dev/null
ALTER SERVER regress_sink OPTIONS (ADD events 'other.*');
EXECUTE place ('waits', '{}') \g /dev/null
DROP SERVER regress_sink;
EXECUTE place ('waits', '{}') \g /dev/null
SET ROLE regress_outbox_second;
EXECUTE place ('by another role', '{}') \g /dev/null
RESET ROLE;
REVOKE INSERT ON outbox.events FROM regress_outbox_second;
SET ROLE regress_outbox_second;
EXECUTE place ('no more', '{}');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT aggregate_id, sink FROM outbox.events ORDER BY position;
TRUNCATE outbox.events;

-- What a pooler sends when it gives a connection to the next client: all of it, then the next client.
DISCARD PLANS;
DISCARD TEMP;
DISCARD SEQUENCES;
DEALLOCATE ALL;
DISCARD ALL;
SET SESSION AUTHORIZATION regress_outbox_first;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', 'next', 'inserted') RETURNING id IS NOT NULL AS id;
SELECT outbox.enqueue('Order', 'next', 'enqueued', '{}', dedup_key => 'd') IS NOT NULL AS id;
PREPARE place (text) AS INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', $1, 'prepared') RETURNING id IS NOT NULL AS id;
EXECUTE place ('next');
-- Between two statements of the next client's transaction nothing of the last one's is left.
BEGIN;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', 'lost', 'inserted');
ROLLBACK;
DISCARD ALL;
RESET SESSION AUTHORIZATION;
SELECT aggregate_id, event_type FROM outbox.events ORDER BY position;

SET client_min_messages = warning;
DROP OWNED BY regress_outbox_first, regress_outbox_second;
DROP ROLE regress_outbox_first, regress_outbox_second;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
