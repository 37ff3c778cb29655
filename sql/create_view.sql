-- outbox.create_view(): views that stand for the outbox tables of applications, and their statements, as they send them.
-- test/isolation/specs/create_view.spec has two dispatchers at once; the statements of docs/migration.md that move a table are run here.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE ROLE regress_outbox_shape;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
\set SHOW_CONTEXT never
-- (The days of SENT are the worker's to make; here they are made by hand.)
DO $$
BEGIN
  PERFORM outbox_internal.add_partition('outbox.events_sent', 'events_sent_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD'), 'position', day, day + interval '1 day')
  FROM (SELECT date_trunc('day', now(), 'UTC') - n * interval '1 day' AS day FROM unnest(ARRAY[-1, 0]) AS n) AS d;
END
$$;
-- The blocks of docs/migration.md and the files of docs/views, with this test's role in place of the application's
SET client_min_messages = warning;
\setenv STEP prepare
\set move `sed -n "/^<!-- step: $STEP -->$/,/^\x60\x60\x60$/{/^[<\x60]/d;s/ TO app;/ TO regress_outbox_shape;/;p}" "$PG_ABS_SRCDIR/docs/migration.md"`
:move
RESET client_min_messages;

-- A status, and a due time that is never null
CREATE TABLE outbox_events (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, headers jsonb,
  created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(), available_at timestamptz NOT NULL DEFAULT now(), sent_at timestamptz,
  attempts int NOT NULL DEFAULT 0, status text NOT NULL DEFAULT 'PENDING', dedup_key text UNIQUE, partition_key text, seq bigint);
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, status, created_at, available_at, attempts, dedup_key, seq) VALUES
  ('01890a5d-ac96-774b-bcce-b302099a7001', 'Order', 'old', 'b', '{}', 'PENDING', now() - interval '1 day', now() - interval '1 day', 2, 'old-b', 12),
  ('01890a5d-ac96-774b-bcce-b302099a7002', 'Order', 'old', 'a', '{}', 'PENDING', now() - interval '2 days', now() + interval '1 day', 0, 'old-a', 11),
  ('01890a5d-ac96-774b-bcce-b302099a7003', 'Order', 'old', 'sent', '{}', 'SENT', now() - interval '3 days', now() - interval '3 days', 0, NULL, 10),
  ('01890a5d-ac96-774b-bcce-b302099a7004', 'Order', 'old', 'dead', '{}', 'FAILED', now() - interval '4 days', now() - interval '4 days', 5, NULL, 9);
\setenv STEP 'view, status'
\set move `sed -n "/^<!-- step: $STEP -->$/,/^\x60\x60\x60$/{/^[<\x60]/d;s/ TO app;/ TO regress_outbox_shape;/;p}" "$PG_ABS_SRCDIR/docs/migration.md"`
:move
SELECT event_type, status, attempts, dedup_key, seq, created_at < now() - interval '23 hours' AS old, available_at > now() AS scheduled FROM outbox.events ORDER BY position;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
SET ROLE regress_outbox_shape;
PREPARE save AS INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, available_at, attempts, status, dedup_key, partition_key, seq)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING id, status, attempts, available_at <= now() AS due;
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8001', 'Order', '1', 'OrderCreated', '{"total": 1.50}', '{"tenant": 7}', now(), now(), 0, 'PENDING', 'order-1', 'customer-7', 1);
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8002', 'Order', '2', 'OrderCreated', '{}', NULL, now() - interval '2 min', now() - interval '2 min', 0, 'PENDING', NULL, NULL, 2);
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8003', 'Order', '3', 'OrderCreated', '{}', NULL, now(), now() + interval '1 hour', 0, 'PENDING', NULL, '', NULL);
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8004', 'Order', '4', 'OrderCreated', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '5', 'OrderCreated') RETURNING id IS NOT NULL AS id, payload, status, attempts, position IS NOT NULL AS position;
-- Columns of the table
SELECT aggregate_id, payload, headers, partition_key, dedup_key, seq, attempts, status, available_at > now() AS scheduled FROM outbox.events ORDER BY position;
-- The dispatcher
BEGIN;
SELECT aggregate_id, payload, attempts FROM outbox_events WHERE status = 'PENDING' AND available_at <= now() ORDER BY created_at, position FOR UPDATE SKIP LOCKED LIMIT 3;
PREPARE failed AS UPDATE outbox_events SET attempts = attempts + 1, available_at = now() + interval '30 seconds' * 2 ^ attempts, status = CASE WHEN attempts + 1 >= $2 THEN 'FAILED' ELSE 'PENDING' END
  WHERE id = $1 RETURNING status, attempts, available_at > now() AS later, updated_at IS NOT NULL AS updated;
EXECUTE failed ('01890a5d-ac96-774b-bcce-b302099a8001', 2);
EXECUTE failed ('01890a5d-ac96-774b-bcce-b302099a8001', 2);
PREPARE sent AS UPDATE outbox_events SET status = 'SENT' WHERE id = ANY ($1) RETURNING status, sent_at = now() AS sent;
EXECUTE sent ('{01890a5d-ac96-774b-bcce-b302099a8002,01890a5d-ac96-774b-bcce-b302099a8004}');
COMMIT;
SELECT aggregate_id, status, attempts, available_at > created_at AS later, sent_at IS NOT NULL AS sent FROM outbox_events ORDER BY position;
UPDATE outbox_events SET status = 'PENDING', attempts = 0 WHERE status = 'FAILED' RETURNING status, attempts, available_at <= now() AS due;
UPDATE outbox_events SET available_at = now() WHERE aggregate_id = '3';
SELECT aggregate_id FROM outbox_events WHERE status = 'PENDING' AND available_at <= now() ORDER BY position;
UPDATE outbox_events SET payload = '{"a": 1}', headers = '{"h": 1}', position = 1, updated_at = '-infinity' WHERE aggregate_id = '5' RETURNING payload, headers, position > 1 AS position, updated_at > '-infinity' AS updated_at;
DELETE FROM outbox_events WHERE status = 'SENT' AND sent_at < now() - interval '7 days';
DELETE FROM outbox_events WHERE status = 'SENT' RETURNING aggregate_id;
COPY outbox_events (aggregate_type, aggregate_id, event_type, payload) FROM STDIN;
Order	6	OrderCreated	{}
\.
-- A known id, and a known dedup key
\set VERBOSITY terse
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8003', 'Order', '3', 'OrderCreated', '{}', NULL, now(), now(), 0, 'PENDING', NULL, NULL, NULL);
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8009', 'Order', '1', 'OrderCreated', '{}', NULL, now(), now(), 0, 'PENDING', 'order-1', NULL, NULL);
\set VERBOSITY default
-- Statements that no view takes
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), 'Order', '9', 'OrderCreated') ON CONFLICT (id) DO NOTHING;
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8003', 'Order', '9', 'OrderCreated') ON CONFLICT DO NOTHING;
UPDATE outbox_events SET status = 'PROCESSING' WHERE status = 'PENDING';
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, position) VALUES ('Order', '9', 'OrderCreated', 1);
RESET ROLE;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Django: no status. Every column is one of the table, so that the view needs no trigger.
CREATE TABLE events_outboxevent (
  id uuid PRIMARY KEY, aggregate_type varchar(100) NOT NULL, aggregate_id varchar(100) NOT NULL, event_type varchar(100) NOT NULL, payload jsonb NOT NULL,
  created_at timestamptz NOT NULL, published_at timestamptz, attempts integer NOT NULL, last_error text);
INSERT INTO events_outboxevent VALUES
  ('01890a5d-ac96-774b-bcce-b302099a7011', 'Order', 'old', 'b', '{}', now() - interval '1 hour', NULL, 3, 'timeout'),
  ('01890a5d-ac96-774b-bcce-b302099a7012', 'Order', 'old', 'a', '{}', now() - interval '2 hours', NULL, 0, NULL),
  ('01890a5d-ac96-774b-bcce-b302099a7013', 'Order', 'old', 'sent', '{}', now() - interval '3 hours', now(), 0, NULL);
\set move `sed 's/ TO app;/ TO regress_outbox_shape;/' "$PG_ABS_SRCDIR/docs/views/django.sql"`
:move
SELECT event_type, status, attempts, last_error FROM outbox.events ORDER BY position;
SELECT count(*) AS triggers FROM pg_trigger WHERE tgrelid = 'events_outboxevent'::regclass;
SET ROLE regress_outbox_shape;
INSERT INTO "events_outboxevent" ("id", "aggregate_type", "aggregate_id", "event_type", "payload", "created_at", "published_at", "attempts", "last_error")
  VALUES ('01890a5d-ac96-774b-bcce-b302099a8011'::uuid, 'Order', '1', 'OrderCreated', '{"total": 1}', now(), NULL, 0, NULL) RETURNING "events_outboxevent"."id";
INSERT INTO events_outboxevent (id, aggregate_type, aggregate_id, event_type, payload, created_at, attempts) VALUES ('01890a5d-ac96-774b-bcce-b302099a8011', 'Order', '1', 'OrderCreated', '{}', now(), 0) ON CONFLICT DO NOTHING;
BEGIN;
SELECT event_type, attempts FROM events_outboxevent WHERE published_at IS NULL AND attempts < 5 ORDER BY created_at FOR UPDATE SKIP LOCKED LIMIT 2;
UPDATE events_outboxevent SET attempts = attempts + 1, last_error = 'refused' WHERE id = '01890a5d-ac96-774b-bcce-b302099a7011';
UPDATE events_outboxevent SET published_at = now(), attempts = attempts + 1, last_error = NULL WHERE id = '01890a5d-ac96-774b-bcce-b302099a7012';
COMMIT;
UPDATE events_outboxevent SET aggregate_type = 'Order', event_type = 'OrderCreated', payload = '{"total": 1}', published_at = now(), attempts = 1, last_error = NULL WHERE id = '01890a5d-ac96-774b-bcce-b302099a8011';
SELECT event_type, attempts, last_error FROM events_outboxevent WHERE published_at IS NULL AND attempts < 5;
RESET ROLE;
SELECT event_type, status, attempts, last_error, sent_at IS NOT NULL AS sent FROM outbox.events ORDER BY position;
DROP VIEW events_outboxevent;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- An identity column, and words of its own
CREATE TABLE outbox_messages (
  id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb, status text DEFAULT 'NEW',
  retry_count int NOT NULL DEFAULT 0, available_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz);
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload, status, retry_count) VALUES
  ('Order', 'old', 'a', '{}', 'NEW', 2), ('Order', 'old', 'sent', '{}', 'SENT', 0), ('Order', 'old', 'dead', '{}', 'FAILED', 9), ('Order', 'old', 'b', '{}', 'NEW', 0);
\set move `sed 's/ TO app;/ TO regress_outbox_shape;/' "$PG_ABS_SRCDIR/docs/views/identity.sql"`
:move
SELECT event_type, status, retry_count FROM outbox_messages ORDER BY id;
SELECT headers, partition_key FROM outbox.events ORDER BY position;
SET ROLE regress_outbox_shape;
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload, status, retry_count, available_at, updated_at)
  VALUES ('Order', '1', 'OrderCreated', '{}', 'NEW', 0, now(), now()), ('Order', '2', 'OrderCreated', '{}', 'NEW', 0, now(), now()) RETURNING id > 1 AS id, status, updated_at IS NOT NULL AS updated;
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '3', 'OrderCreated', '{}') RETURNING id \gset
BEGIN;
SELECT event_type, aggregate_id FROM outbox_messages WHERE status = 'NEW' AND available_at <= now() ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 3;
UPDATE outbox_messages SET status = 'SENT', updated_at = now() WHERE id = :id RETURNING status, id = :id AS same;
UPDATE outbox_messages SET retry_count = retry_count + 1, available_at = now() + interval '1 min', updated_at = now() WHERE event_type = 'a' RETURNING status, retry_count;
UPDATE outbox_messages SET status = 'FAILED', updated_at = now() WHERE aggregate_id = '2' RETURNING status;
COMMIT;
UPDATE outbox_messages SET status = 'PENDING' WHERE id = :id;
INSERT INTO outbox_messages (id, aggregate_type, aggregate_id, event_type) VALUES (1, 'Order', '4', 'OrderCreated');
SELECT status, count(*) FROM outbox_messages GROUP BY status ORDER BY status;
RESET ROLE;
SELECT aggregate_id, event_type, status, attempts FROM outbox.events ORDER BY position;
DROP VIEW outbox_messages;
DROP FUNCTION outbox_messages_write;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Text ids
CREATE TABLE outbox (id text PRIMARY KEY, aggregate_type text, aggregate_id text, type text, payload jsonb, created_at timestamptz DEFAULT now(), processed_at timestamptz);
INSERT INTO outbox VALUES ('evt_2', 'Order', 'old', 'b', '{}', now() - interval '1 hour'), ('evt_1', 'Order', 'old', 'a', '{}', now() - interval '2 hours'), ('evt_0', 'Order', 'old', 'sent', '{}', now());
UPDATE outbox SET processed_at = now() WHERE type = 'sent';
\set move `sed 's/ TO app;/ TO regress_outbox_shape;/' "$PG_ABS_SRCDIR/docs/views/text-id.sql"`
:move
SELECT id, type, processed_at FROM outbox ORDER BY created_at;
SET ROLE regress_outbox_shape;
INSERT INTO outbox (id, aggregate_type, aggregate_id, type, payload, created_at) VALUES ('evt_3', 'Order', '1', 'OrderCreated', '{}', now()) RETURNING id;
\set VERBOSITY terse
INSERT INTO outbox (id, aggregate_type, aggregate_id, type, payload) VALUES ('evt_2', 'Order', '1', 'OrderCreated', '{}');
\set VERBOSITY default
BEGIN;
SELECT id FROM outbox WHERE processed_at IS NULL ORDER BY created_at FOR UPDATE SKIP LOCKED LIMIT 2;
UPDATE outbox SET processed_at = now() WHERE id = 'evt_1';
UPDATE outbox SET processed_at = now() WHERE id IN ('evt_2', 'evt_3');
COMMIT;
SELECT id, processed_at IS NOT NULL AS processed FROM outbox ORDER BY id;
RESET ROLE;
SELECT DISTINCT status FROM outbox.events;
DROP VIEW outbox;
DROP TABLE outbox_old;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- No aggregate, and a payload of type text
CREATE TABLE outbox (event_id uuid PRIMARY KEY, event_type text, payload text, status text DEFAULT 'NEW', occurred_at timestamptz DEFAULT now(), sent_at timestamptz);
INSERT INTO outbox VALUES
  ('01890a5d-ac96-774b-bcce-b302099a7021', 'b', '{"n": 2}', 'NEW', now() - interval '1 hour'), ('01890a5d-ac96-774b-bcce-b302099a7022', 'a', '{"n": 1}', 'NEW', now() - interval '2 hours'),
  ('01890a5d-ac96-774b-bcce-b302099a7023', 'dead', '{}', 'ERROR', now()), ('01890a5d-ac96-774b-bcce-b302099a7024', 'sent', '{}', 'SENT', now());
\set move `sed 's/ TO app;/ TO regress_outbox_shape;/' "$PG_ABS_SRCDIR/docs/views/no-aggregate.sql"`
:move
SELECT event_type, payload, status FROM outbox ORDER BY occurred_at;
SET ROLE regress_outbox_shape;
PREPARE text_payload (uuid, text, text, timestamptz) AS INSERT INTO outbox (event_id, event_type, payload, status, occurred_at) VALUES ($1, $2, $3, 'NEW', $4);
EXECUTE text_payload ('01890a5d-ac96-774b-bcce-b302099a8021', 'OrderCreated', '{"n": 1.50}', now());
BEGIN;
SELECT event_type, payload FROM outbox WHERE status = 'NEW' ORDER BY occurred_at FOR UPDATE SKIP LOCKED LIMIT 10;
UPDATE outbox SET status = 'SENT', sent_at = now() WHERE event_id = '01890a5d-ac96-774b-bcce-b302099a8021' RETURNING status, sent_at = now() AS sent;
UPDATE outbox SET status = 'ERROR' WHERE event_type = 'a' RETURNING status;
UPDATE outbox SET payload = '{"n": 3}' WHERE event_type = 'b' RETURNING payload;
COMMIT;
SELECT status, count(*) FROM outbox GROUP BY status ORDER BY status;
RESET ROLE;
SELECT aggregate_type, aggregate_id, partition_key, event_type, payload, status FROM outbox.events ORDER BY position;
DROP VIEW outbox;
DROP FUNCTION outbox_write;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

-- Other types, a boolean, an enumeration, and names that need quotes
CREATE TYPE outbox_status AS ENUM ('new', 'done', 'broken');
SELECT outbox.create_view('public."Out''box"', '{"Id": "id text", "order": "aggregate_id bigint", "type": "event_type varchar", "body": "payload json", "at %s": "created_at timestamp",
  "state": "status public.outbox_status", "processed": "sent"}', '{new,done,broken}', 'Order''s %');
INSERT INTO "Out'box" ("Id", "order", type, body, "at %s", state) VALUES ('01890a5d-ac96-774b-bcce-b302099a8031', 42, 'OrderCreated', '{"a":1}', '2026-01-01 12:00', 'new') RETURNING "Id", "order", type, body, "at %s", state, processed;
UPDATE "Out'box" SET processed = true WHERE NOT processed AND "order" = 42 RETURNING "Id", body, "at %s", state, processed;
SELECT aggregate_type, aggregate_id, payload, status FROM outbox.events;
DROP VIEW "Out'box";
DROP FUNCTION "Out'box_write";
DROP TYPE outbox_status;

-- Rights: those on outbox.events are needed beside those on the view.
SELECT outbox.create_view('public.seen', '{"id": "id", "aggregate_type": "aggregate_type", "event_type": "event_type", "payload": "payload"}');
SELECT outbox.create_view('public.written', '{"id": "id", "aggregate_type": "aggregate_type", "event_type": "event_type", "available_at": "available_at"}');
GRANT SELECT, INSERT, UPDATE, DELETE ON seen, written TO regress_outbox_shape;
REVOKE ALL ON outbox.events FROM regress_outbox_shape;
SET ROLE regress_outbox_shape;
SELECT * FROM seen;
INSERT INTO seen (aggregate_type, event_type) VALUES ('Order', 'a');
UPDATE seen SET event_type = 'b';
DELETE FROM seen;
SELECT * FROM written;
\set VERBOSITY terse
INSERT INTO written (aggregate_type, event_type) VALUES ('Order', 'a');
\set VERBOSITY default
RESET ROLE;
GRANT INSERT, SELECT (id, position) ON outbox.events TO regress_outbox_shape;
SET ROLE regress_outbox_shape;
INSERT INTO seen (aggregate_type, event_type) VALUES ('Order', 'a');
INSERT INTO seen (aggregate_type, event_type) VALUES ('Order', 'a') RETURNING id IS NOT NULL AS id; -- PostgreSQL wants SELECT on each column of a view without a trigger
INSERT INTO written (aggregate_type, event_type) VALUES ('Order', 'a') RETURNING id IS NOT NULL AS id;
UPDATE written SET available_at = now();
SELECT id, payload FROM seen;
SELECT outbox.create_view('public.denied', '{"aggregate_type": "aggregate_type", "event_type": "event_type"}');
RESET ROLE;
-- A role of the application that makes its view itself, without a right on the internals
GRANT EXECUTE ON FUNCTION outbox.create_view TO regress_outbox_shape;
GRANT CREATE ON SCHEMA public TO regress_outbox_shape;
SET ROLE regress_outbox_shape;
SELECT outbox.create_view('public.mine', '{"type": "event_type", "due": "available_at"}', aggregate_type => 'Order');
INSERT INTO mine (type) VALUES ('a') RETURNING type, due <= now() AS due;
RESET ROLE;

-- Wrong calls
SELECT outbox.create_view('seen', '{"event_type": "event_type"}');
SELECT outbox.create_view('public.seen', '{"aggregate_type": "aggregate_type", "event_type": "event_type"}');
SELECT outbox.create_view('public.other', '{"type": "event_type"}');
SELECT outbox.create_view('public.other', '{"aggregate_type": "aggregate_type"}');
SELECT outbox.create_view('public.other', '{"type": "event_type", "locked_by": "locked_by"}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type", "x": ""}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type", "x": null}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type", "at": "available_at", "due": "retry_at"}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type; DROP TABLE orders"}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type no such type"}', aggregate_type => 'Order');
SELECT outbox.create_view('public.other', '{"type": "event_type", "status": "status"}', '{NEW,NEW,SENT}', 'Order');
SELECT outbox.create_view('public.other', '["event_type"]');

SET client_min_messages = warning;
DROP VIEW seen, written, mine, outbox_events;
DROP FUNCTION written_write, mine_write, outbox_events_write, lock_when_free;
DROP TABLE outbox_events_old, events_outboxevent_old, outbox_messages_old, outbox_old;
DROP OWNED BY regress_outbox_shape;
DROP ROLE regress_outbox_shape;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
