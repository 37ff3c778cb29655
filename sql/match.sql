-- The option match: only events with these headers, as they are.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Whatever is malformed is refused, with the next step.
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '   ');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match 'tenant=42, region=eu');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '"tenant"');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '["tenant", "42"]');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": "42"');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": "42"} x');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"": "42"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": null}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": {"is": "42"}}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": ["42", "43"]}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": "42", "tenant": "43"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": "4\n2"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": "4\u00002"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', match '{"tenant": 1e400}');
-- It is the server's, of every kind.
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', match 'tenant');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', macth '{"tenant": "42"}');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', match '{"tenant": "42"}');
CREATE USER MAPPING FOR PUBLIC SERVER regress_m OPTIONS (match '{"tenant": "42"}');
ALTER SERVER regress_m OPTIONS (SET match 'tenant');
DROP SERVER regress_m;

-- Nothing is delivered here: all of it is rolled back.
BEGIN;
CREATE FUNCTION pg_temp.sink(name text, match text, more text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE SERVER %I FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url ''https://hooks.invalid/outbox'', match %L%s)', name, match, more);
END $$;
CREATE VIEW pg_temp.routed AS
  SELECT coalesce(headers::text, 'none') AS headers, array_agg(sink ORDER BY position) AS sinks, count(DISTINCT id) AS ids
  FROM outbox.events GROUP BY headers::text ORDER BY min(position);

-- Values as they are sent: numbers and booleans as text; an event without the header, or with bytes in it, waits.
SELECT pg_temp.sink('regress_42', ' { "tenant" : 42 } '), pg_temp.sink('regress_true', '{"beta": true}'), pg_temp.sink('regress_empty', '{"tenant": ""}'),
       pg_temp.sink('regress_space', '{"name": "Ann Lee"}'), pg_temp.sink('regress_utf8', '{"stadt": "Z\u00fcrich"}');
CREATE SERVER regress_name FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', match '{"odd,name": "a \"b\", c=d*;"}');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES
  ('Order', '1', 'order.created', '{"tenant": 42}'), ('Order', '1', 'order.created', '{"tenant": "42", "more": "x"}'),
  ('Order', '1', 'order.created', '{"tenant": 42.0}'), ('Order', '1', 'order.created', '{"tenant": " 42"}'), ('Order', '1', 'order.created', '{"Tenant": "42"}'),
  ('Order', '1', 'order.created', '{"beta": true}'), ('Order', '1', 'order.created', '{"beta": "true", "tenant": 42}'), ('Order', '1', 'order.created', '{"tenant": ""}'),
  ('Order', '1', 'order.created', '{"odd,name": "a \"b\", c=d*;"}'), ('Order', '1', 'order.created', '{"name": "Ann Lee"}'), ('Order', '1', 'order.created', '{"stadt": "Zürich"}'),
  ('Order', '1', 'order.created', '{"tenant": {"base64": "NDI="}}'), ('Order', '1', 'order.created', '{}'), ('Order', '1', 'order.created', NULL);
SELECT * FROM pg_temp.routed;

-- All pairs must hold, and events and aggregates too; a sink without match goes on as before.
TRUNCATE outbox.events;
SELECT pg_temp.sink('regress_eu', '{"region": "eu"}'), pg_temp.sink('regress_eu_42', '{"region": "eu", "tenant": "42"}'), pg_temp.sink('regress_eu_43', '{"region": "eu", "tenant": "43"}'),
       pg_temp.sink('regress_invoices', '{"tenant": "42"}', $$, events 'invoice.*'$$), pg_temp.sink('regress_gold', '{"tenant": "42"}', $$, aggregates 'Gold*'$$);
CREATE SERVER regress_all FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'invoice.*');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES
  ('Order', '1', 'order.created', '{"tenant": 42, "region": "eu"}'), ('Order', '1', 'order.created', '{"tenant": 43, "region": "eu"}'),
  ('Order', '1', 'order.created', '{"tenant": 43, "region": "us"}'), ('Order', '1', 'order.created', '{"region": "eu"}'),
  ('Gold', '1', 'invoice.sent', '{"tenant": 42, "region": "us"}'), ('Gold', '1', 'invoice.sent', '{"tenant": "4"}'), ('Gold', '1', 'invoice.sent', NULL);
SELECT * FROM pg_temp.routed;

-- By whatever way it comes; RETURNING gives one row, and the order of the copies is that of the sinks.
TRUNCATE outbox.events;
SELECT outbox.enqueue('Order', '2', 'order.created', '{}', headers => '{"tenant": 42, "region": "eu"}') IS NOT NULL AS enqueued;
SELECT outbox.enqueue_bytes('Order', '2', 'order.created', 'x', 'text/plain', headers => '{"tenant": 43, "region": "eu"}') IS NOT NULL AS enqueued;
COPY outbox.events (aggregate_type, aggregate_id, event_type, headers) FROM stdin;
Order	3	order.created	{"tenant": 42}
Order	3	order.created	\N
\.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers)
  SELECT 'Order', '4', 'order.created', jsonb_build_object('tenant', i) FROM generate_series(41, 43) AS i;
SELECT aggregate_id, headers, sink FROM outbox.events ORDER BY position;
-- One that is named goes past it, and no other takes part.
TRUNCATE outbox.events;
SELECT outbox.enqueue('Order', '5', 'order.created', '{}', headers => '{"tenant": 42}', sink => 'regress_eu_43') IS NOT NULL AS enqueued;
INSERT INTO outbox.events (aggregate_type, event_type, sink) VALUES ('Order', 'order.created', 'regress_42');
SELECT headers, sink FROM outbox.events ORDER BY position;

-- What waits is routed when a sink takes it, made or changed; and a waiting one shows who would.
TRUNCATE outbox.events;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers) VALUES
  ('Order', '6', 'order.created', '{"tenant": 7}'), ('Order', '6', 'order.created', '{"tenant": 8}'), ('Order', '6', 'order.created', NULL),
  ('Order', '6', 'order.created', '{"tenant": {"base64": "Nw=="}}');
SELECT outbox_internal.route_waiting();
SELECT pg_temp.sink('regress_7', '{"tenant": "7"}'), pg_temp.sink('regress_7_too', '{"tenant": "7"}');
SELECT id FROM outbox.events WHERE headers @> '{"tenant": "7"}' \gset
SELECT DISTINCT sink FROM outbox.preview(:'id') ORDER BY 1;
SELECT outbox_internal.route_waiting();
SELECT headers, sink FROM outbox.events ORDER BY position;
ALTER SERVER regress_7 OPTIONS (SET match '{"tenant": "8"}');
SELECT outbox_internal.route_waiting();
SELECT headers, sink FROM outbox.events ORDER BY position;
ALTER SERVER regress_7 OPTIONS (DROP match);
SELECT outbox_internal.route_waiting();
SELECT headers, sink FROM outbox.events ORDER BY position;
ALTER SERVER regress_7 OPTIONS (ADD match '{"tenant": "9"}');
TRUNCATE outbox.events;
INSERT INTO outbox.events (id, aggregate_type, event_type, headers)
  VALUES ('01890000-0000-7000-8000-000000000010', 'Order', 'order.created', '{"tenant": 10}') RETURNING sink;
-- The worker looks again at one that is corrected.
TRUNCATE outbox_internal.rescan_queue;
UPDATE outbox.events SET headers = '{"tenant": 11}' WHERE headers = '{"tenant": "10"}';
SELECT headers, sink FROM outbox_internal.rescan_queue JOIN outbox.events USING (position);
SAVEPOINT s;
SELECT * FROM outbox.preview('01890000-0000-7000-8000-000000000010');
ROLLBACK TO s;
DROP SERVER regress_7_too;
INSERT INTO outbox.events (aggregate_type, event_type, headers) VALUES ('Order', 'order.created', '{"tenant": 7}') RETURNING sink;
-- Stored before the rule of today, as numbers: a restore keeps them so.
INSERT INTO outbox.events (id, aggregate_type, event_type, headers, position, origin)
  SELECT gen_random_uuid(), 'Order', 'order.created', '{"tenant": 42, "n": 1}', 1, origin FROM outbox_internal.library();
SELECT outbox_internal.route_waiting();
SELECT headers, sink FROM outbox.events WHERE position = 1;
-- What a sink would refuse is an error where the event is for it, and only there.
SELECT pg_temp.sink('regress_bad', '{"tenant": "bad"}');
SAVEPOINT s;
INSERT INTO outbox.events (aggregate_type, event_type, headers) VALUES ('Order', 'order.created', '{"tenant": "bad", "no token": "x"}');
ROLLBACK TO s;
INSERT INTO outbox.events (aggregate_type, event_type, headers) VALUES ('Order', 'order.created', '{"tenant": "other", "no token": "x"}') RETURNING sink;
ROLLBACK;

-- Many endpoints, several of them for one customer, by one way and another.
BEGIN;
DO $$
BEGIN
  FOR i IN 1..300 LOOP
    EXECUTE format('CREATE SERVER regress_c%s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url %L, match %L)', i,
                   'https://hooks.invalid/' || i, format('{"region": "eu", "tenant": %s}', i % 150));
  END LOOP;
END $$;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, headers)
  SELECT 'Order', i::text, 'order.created', jsonb_build_object('tenant', i, 'region', 'eu') FROM generate_series(0, 160) AS i;
SELECT count(*) FILTER (WHERE sink IS NULL) AS waiting, count(DISTINCT sink) AS sinks, count(*) AS rows,
       bool_and(sink IS NULL OR substr(sink, 10)::int % 150 = (headers ->> 'tenant')::int) AS right_ones FROM outbox.events;
ROLLBACK;
