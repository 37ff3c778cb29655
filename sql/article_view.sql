-- The view of docs/enqueue.md that stands for the articles' table outbox_events, and their statements, as they print them.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE ROLE regress_outbox_article;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
\set view `sed -n "/^SELECT outbox.create_view('public.outbox_events'/,/;$/p" "$PG_ABS_SRCDIR/docs/enqueue.md"`
:view
SELECT bool_and(is_insertable_into = 'YES' AND is_updatable = 'YES') AS auto_updatable FROM information_schema.views WHERE table_name = 'outbox_events';
GRANT USAGE ON SCHEMA outbox TO regress_outbox_article;
GRANT INSERT, SELECT, UPDATE, DELETE ON public.outbox_events, outbox.events TO regress_outbox_article;
GRANT CREATE ON SCHEMA public TO regress_outbox_article;
-- (The days of SENT are the worker's to make; here they are made by hand.)
DO $$
BEGIN
  PERFORM outbox_internal.add_partition('outbox.events_sent', 'events_sent_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD'), 'position', day, day + interval '1 day')
  FROM (SELECT date_trunc('day', now(), 'UTC') - n * interval '1 day' AS day FROM unnest(ARRAY[-1, 0, 7, 8]) AS n) AS d;
END
$$;
SET ROLE regress_outbox_article;

-- The business row and its event, in one transaction; one that rolls back.
CREATE TABLE orders (id uuid PRIMARY KEY, total numeric);
BEGIN;
INSERT INTO orders (id, total) VALUES ('0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0001', 99.5);
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('01890a5d-ac96-774b-bcce-b302099a8001', 'Order', '0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0001', 'OrderCreated', '{"total": 99.5}', NOW());
COMMIT;
BEGIN;
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'OrderCreated', '{}');
ROLLBACK;
-- Every column, as a class of a mapper has it.
PREPARE save AS INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, status, created_at, processed_at, retry_count, last_error) VALUES ($1, $2, $3, $4, $5, 'PENDING', NOW(), NULL, 0, NULL) RETURNING id;
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8002', 'Order', '2', 'OrderCreated', '{"total": 1}');
EXECUTE save ('01890a5d-ac96-774b-bcce-b302099a8003', 'Order', '3', 'OrderCreated', '{"total": 2}');
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload) VALUES (gen_random_uuid(), 'Order', '4', 'OrderCreated', '{}'), (gen_random_uuid(), 'Order', '5', 'OrderCreated', '{}'), (gen_random_uuid(), 'Order', '6', 'OrderCreated', '{}');
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('01890a5d-ac96-774b-bcce-b302099a8003', 'Order', '3', 'OrderCreated', '{}') ON CONFLICT DO NOTHING;

-- The dispatcher: take a batch, send it, say so.
BEGIN;
SELECT aggregate_id, event_type, payload FROM outbox_events WHERE status = 'PENDING' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED;
PREPARE mark AS UPDATE outbox_events SET status = 'SENT', processed_at = NOW() WHERE id = $1;
EXECUTE mark ('01890a5d-ac96-774b-bcce-b302099a8001');
COMMIT;
SELECT status, processed_at <= now() AS processed, published_at = processed_at AS published FROM outbox_events WHERE id = '01890a5d-ac96-774b-bcce-b302099a8001';
-- One that knows no status, only the time.
SELECT count(*) FROM (SELECT id, aggregate_type, aggregate_id, event_type, payload FROM outbox_events WHERE published_at IS NULL AND retry_count < 20 ORDER BY created_at ASC LIMIT 100 FOR UPDATE SKIP LOCKED) AS batch;
PREPARE published AS UPDATE outbox_events SET published_at = NOW() WHERE id = $1;
EXECUTE published ('01890a5d-ac96-774b-bcce-b302099a8002');
SELECT status, published_at IS NOT NULL AS published FROM outbox_events WHERE id = '01890a5d-ac96-774b-bcce-b302099a8002';
SELECT count(*) FROM outbox_events WHERE published_at IS NULL;
-- Delivery failed: another attempt later, and in the end none.
PREPARE failed AS UPDATE outbox_events SET retry_count = retry_count + 1, last_error = $2, next_retry_at = NOW() + INTERVAL '1 minute' * POWER(2, retry_count) WHERE id = $1;
EXECUTE failed ('01890a5d-ac96-774b-bcce-b302099a8003', 'connection refused');
SELECT status, retry_count, last_error, next_retry_at > NOW() AS later FROM outbox_events WHERE id = '01890a5d-ac96-774b-bcce-b302099a8003';
SELECT count(*) FROM (SELECT * FROM outbox_events WHERE status = 'PENDING' AND retry_count < 5 AND (next_retry_at IS NULL OR next_retry_at <= NOW()) ORDER BY created_at LIMIT 50 FOR UPDATE SKIP LOCKED) AS due;
PREPARE dead AS UPDATE outbox_events SET status = 'FAILED', error_message = $2 WHERE id = $1;
EXECUTE dead ('01890a5d-ac96-774b-bcce-b302099a8003', 'max retries exceeded');
SELECT * FROM (SELECT status, COUNT(*) FROM outbox_events GROUP BY status) AS s ORDER BY status;
UPDATE outbox_events SET status = 'PENDING', retry_count = 0, last_error = NULL WHERE status = 'FAILED';
-- Many at once, by the shapes that take and mark in one statement.
PREPARE many AS UPDATE outbox_events SET status = 'SENT', processed_at = NOW() WHERE id = ANY($1);
EXECUTE many ('{01890a5d-ac96-774b-bcce-b302099a8003}');
WITH batch AS (SELECT id FROM outbox_events WHERE status = 'PENDING' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE outbox_events AS o SET status = 'SENT', processed_at = NOW() FROM batch WHERE o.id = batch.id RETURNING o.status;
DELETE FROM outbox_events WHERE id IN (SELECT id FROM outbox_events WHERE status = 'PENDING' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING event_type;
-- What is watched, and what is cleaned.
SELECT COUNT(*) FROM outbox_events WHERE status = 'PENDING';
SELECT EXTRACT(EPOCH FROM (NOW() - MIN(created_at))) < 3600 AS oldest FROM outbox_events WHERE status = 'PENDING';
RESET ROLE;
UPDATE outbox_events SET processed_at = NOW() - INTERVAL '8 days' WHERE id = '01890a5d-ac96-774b-bcce-b302099a8001';
SET ROLE regress_outbox_article;
DELETE FROM outbox_events WHERE status = 'SENT' AND processed_at < NOW() - INTERVAL '7 days';
DELETE FROM outbox_events WHERE processed_at < NOW() - INTERVAL '7 days';
RESET ROLE;
SELECT count(*) FILTER (WHERE id = '01890a5d-ac96-774b-bcce-b302099a8001') AS cleaned, count(*) AS kept FROM outbox_events;
SELECT status, position IS NOT NULL AS position, xact IS NOT NULL AS xact, partition_key = aggregate_id AS key FROM outbox.events GROUP BY 1, 2, 3, 4 ORDER BY 1;

-- What a view cannot be: it says so.
INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type) VALUES (gen_random_uuid(), 'Order', '9', 'OrderCreated') ON CONFLICT (id) DO NOTHING;
\set VERBOSITY terse
UPDATE outbox_events SET status = 'PROCESSED' WHERE status = 'PENDING';
\set VERBOSITY default
INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, status) VALUES ('Order', '9', 'OrderCreated', 'NEW');
-- A table without aggregate_type.
ALTER VIEW public.outbox_events ALTER COLUMN aggregate_type SET DEFAULT 'Order';
INSERT INTO outbox_events (aggregate_id, event_type, payload) VALUES ('10', 'OrderCreated', '{}') RETURNING aggregate_type;

SET client_min_messages = warning;
DROP VIEW public.outbox_events;
DROP OWNED BY regress_outbox_article;
DROP ROLE regress_outbox_article;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
