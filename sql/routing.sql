-- Which sinks take an event: by their events and aggregates options, one row for each; or the one that is named.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Nothing is delivered here: all of it is rolled back.
BEGIN;
-- No sink: the event waits.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'order.created'), ('Invoice', '1', 'invoice.sent');
SELECT aggregate_type, event_type, sink FROM outbox.events ORDER BY position;
SELECT outbox_internal.route_waiting();

CREATE SERVER regress_orders FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order.*, customer.*');
-- What waited is routed, in its place; what nobody takes goes on waiting. The worker is told to look back.
SELECT outbox_internal.route_waiting();
SELECT aggregate_type, event_type, sink FROM outbox.events ORDER BY position;
SELECT count(*) AS recalled FROM outbox_internal.rescan_queue JOIN outbox.events USING (position) WHERE sink = 'regress_orders';
SELECT outbox_internal.route_waiting();

-- Globs, on both the event's type and the aggregate's.
CREATE SERVER regress_gold FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', events '*.created , order.?aid', aggregates 'Order, Gold[A-Z]*');
TRUNCATE outbox.events;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES
  ('Order', '1', 'order.created'), ('Order', '1', 'order.paid'), ('Order', '1', 'order.unpaid'),
  ('Customer', '1', 'customer.created'), ('GoldMember', '1', 'member.created'), ('Goldfish', '1', 'fish.created');
SELECT aggregate_type, event_type, array_agg(sink ORDER BY position) AS sinks, count(DISTINCT id) AS ids
FROM outbox.events GROUP BY 1, 2 ORDER BY min(position);

-- One row per sink, equal but for position and sink; RETURNING gives one.
TRUNCATE outbox.events;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers, partition_key, seq, available_at)
  VALUES ('Order', '9', 'order.created', '{"a": [1, 2]}', '{"n": 1}', 'p', 77, '2100-01-01 00:00+00') RETURNING sink;
SELECT sink, payload, headers, partition_key, seq, available_at = '2100-01-01 00:00+00' AS scheduled, attempts, status, xact = pg_current_xact_id() AS xact
FROM outbox.events ORDER BY position;
SELECT count(DISTINCT (id, created_at, origin)) AS same, count(DISTINCT position) AS positions FROM outbox.events;
SELECT outbox.enqueue('Order', '10', 'order.created', '{}', dedup_key => 'once') AS id \gset
SELECT count(*) AS rows_of_enqueue FROM outbox.events WHERE id = :'id';
COPY outbox.events (aggregate_type, aggregate_id, event_type) FROM stdin;
Order	11	order.created
\.
SELECT sink FROM outbox.events WHERE aggregate_id = '11' ORDER BY position;

-- A repeated id with ON CONFLICT DO NOTHING adds no copies either.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (:'id', 'Order', '10', 'order.created') ON CONFLICT DO NOTHING;
SELECT count(*) AS rows_of_enqueue FROM outbox.events WHERE id = :'id';
-- Nor does that of an event written just before, by whatever way.
SELECT outbox.enqueue('Order', '12', 'order.created', '{}') AS id \gset
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (:'id', 'Order', '12', 'order.created') ON CONFLICT DO NOTHING;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '13', 'order.created') RETURNING id \gset
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (:'id', 'Order', '13', 'order.created') ON CONFLICT DO NOTHING;
SELECT aggregate_id, count(*) AS rows, count(DISTINCT id) AS ids FROM outbox.events WHERE aggregate_id IN ('12', '13') GROUP BY 1 ORDER BY 1;

-- An id that is pending for one of its sinks is refused as a whole, whichever sink that is.
DO $$
DECLARE
  gone text;
  said text;
BEGIN
  FOREACH gone IN ARRAY ARRAY['regress_orders', 'regress_gold'] LOOP
    DELETE FROM outbox.events;
    PERFORM outbox.enqueue('Order', '14', 'order.created', '{}', id => '01890a5d-ac96-774b-bcce-b302099a8014');
    DELETE FROM outbox.events WHERE sink = gone;
    INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8014', 'Order', '14', 'order.created') ON CONFLICT DO NOTHING;
    BEGIN
      PERFORM outbox.enqueue('Order', '14', 'order.created', '{}', id => '01890a5d-ac96-774b-bcce-b302099a8014');
      said := 'enqueued';
    EXCEPTION WHEN unique_violation THEN
      said := SQLERRM;
    END;
    RAISE NOTICE 'pending for %: %', (SELECT string_agg(e.sink, ', ' ORDER BY e.sink) FROM outbox.events AS e), said;
  END LOOP;
END
$$;

-- A waiting event that several sinks take now gets its copies.
TRUNCATE outbox.events;
ALTER SERVER regress_orders OPTIONS (SET events 'none');
ALTER SERVER regress_gold OPTIONS (SET events 'none');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'order.created', '{"waited": true}');
SELECT sink FROM outbox.events;
ALTER SERVER regress_orders OPTIONS (DROP events);
ALTER SERVER regress_gold OPTIONS (DROP events);
SELECT outbox_internal.route_waiting();
SELECT sink, payload, count(*) OVER (PARTITION BY id) AS rows FROM outbox.events ORDER BY position;

-- An event that waits while another with its id is pending for the sink that takes both: it becomes a dead letter, and stops no other.
TRUNCATE outbox.events;
ALTER SERVER regress_orders OPTIONS (ADD events 'none');
ALTER SERVER regress_gold OPTIONS (ADD events 'none');
SELECT event_type, outbox.enqueue('Order', '1', event_type, '{}', sink => sink, id => id) IS NOT NULL AS enqueued
FROM (VALUES (1, 'first', NULL, '01890a5d-ac96-774b-bcce-b302099a8021'::uuid), (2, 'again', 'regress_orders', '01890a5d-ac96-774b-bcce-b302099a8021'),
             (3, 'other', NULL, '01890a5d-ac96-774b-bcce-b302099a8022')) AS e (n, event_type, sink, id) ORDER BY n;
ALTER SERVER regress_orders OPTIONS (SET events '*');
SELECT outbox_internal.route_waiting();
SELECT event_type, sink, status, attempts, last_error FROM outbox.events ORDER BY position;

-- Rows of another origin are not ours to route.
TRUNCATE outbox.events;
INSERT INTO outbox.events (id, aggregate_type, event_type, position, origin) VALUES (gen_random_uuid(), 'Order', 'order.created', 1, 42);
SELECT outbox_internal.route_waiting();
ROLLBACK;

-- More than one batch of waiting events.
BEGIN;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', i::text, CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END FROM generate_series(1, 3000) AS i;
CREATE SERVER regress_even FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'even');
SELECT outbox_internal.route_waiting();
SELECT outbox_internal.route_waiting();
SELECT outbox_internal.route_waiting();
SELECT sink, event_type, count(*) FROM outbox.events GROUP BY 1, 2 ORDER BY 1;
ROLLBACK;

-- A sink that rolled back takes nothing.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'even') RETURNING sink;
TRUNCATE outbox.events;

-- What several sinks take has all its rows in its place: before what was enqueued since.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, dedup_key) VALUES ('Order', '1', 'first', 'first'), ('Order', '1', 'second', NULL);
BEGIN;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE SERVER regress_b FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'first, third');
CREATE SERVER regress_c FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
COMMIT;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'third');
TRUNCATE outbox_internal.rescan_queue;
SELECT outbox_internal.route_waiting();
CREATE VIEW pg_temp.routed AS
  SELECT event_type, sink, status, dedup_key, dense_rank() OVER (ORDER BY xact) AS xact,
    (SELECT count(*) FROM outbox_internal.rescan_queue AS q WHERE q.position = e.position) AS recalled, count(*) OVER (PARTITION BY position) AS here
  FROM outbox.events AS e ORDER BY position;
SELECT * FROM pg_temp.routed;
-- Routed once more, it takes no position that another row of it has.
UPDATE outbox.events SET status = 'FAILED' WHERE sink = 'regress_b' AND event_type = 'first';
UPDATE outbox.events SET sink = NULL WHERE sink = 'regress_a' AND event_type = 'first';
SELECT outbox_internal.route_waiting();
SELECT event_type, sink, status, here FROM pg_temp.routed;
-- Also in one transaction.
BEGIN;
TRUNCATE outbox.events;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink) VALUES ('Order', '1', 'first', 'regress_a');
UPDATE outbox.events SET sink = NULL;
SELECT outbox_internal.route_waiting();
UPDATE outbox.events SET status = 'FAILED' WHERE sink <> 'regress_a';
UPDATE outbox.events SET sink = NULL WHERE sink = 'regress_a';
SELECT outbox_internal.route_waiting();
SELECT event_type, sink, status, here FROM pg_temp.routed;
ROLLBACK;
DROP VIEW pg_temp.routed;
DROP SERVER regress_a;
DROP SERVER regress_b;
DROP SERVER regress_c;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Where no worker runs, outbox.run_maintenance() routes all of them, for a role that may call it and nothing else.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) SELECT 'Order', n, CASE WHEN n % 2 = 0 THEN 'taken' ELSE 'left' END FROM generate_series(1, 2500) AS n;
CREATE SERVER regress_a FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'taken');
CREATE ROLE regress_outbox_operator;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_operator;
GRANT EXECUTE ON FUNCTION outbox.run_maintenance TO regress_outbox_operator;
SET ROLE regress_outbox_operator;
SELECT outbox.run_maintenance() >= 0 AS maintained;
RESET ROLE;
SELECT event_type, sink, count(*) FROM outbox.events GROUP BY 1, 2 ORDER BY 1;
DROP OWNED BY regress_outbox_operator;
DROP ROLE regress_outbox_operator;
DROP SERVER regress_a;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- To name a sink one needs USAGE on it; to be routed, nothing.
BEGIN;
CREATE SERVER regress_orders FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'order.*');
CREATE SERVER regress_other FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'none');
CREATE ROLE regress_outbox_app;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_app;
GRANT INSERT, SELECT, UPDATE ON outbox.events TO regress_outbox_app;
SET ROLE regress_outbox_app;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}') IS NOT NULL AS routed;
SAVEPOINT s;
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', sink => 'regress_other');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
INSERT INTO outbox.events (aggregate_type, event_type, sink) VALUES ('Order', 'order.created', 'regress_other');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
UPDATE outbox.events SET sink = 'regress_other';
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
-- Nor by a made-up position.
INSERT INTO outbox.events (aggregate_type, event_type, sink, position, origin) VALUES ('Order', 'order.created', 'regress_other', 1, 1);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK TO s;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER regress_other TO regress_outbox_app;
SET ROLE regress_outbox_app;
-- A named sink gets the event whatever its globs say, and no other does.
SELECT outbox.enqueue('Order', '2', 'order.created', '{}', sink => 'regress_other') IS NOT NULL AS named;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink) VALUES ('Order', '3', 'order.created', 'regress_other');
SELECT aggregate_id, sink FROM outbox.events ORDER BY position;
ROLLBACK;
