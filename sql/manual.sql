-- Sinks whose events a program of the team's own claims: what the functions say, order, retries, dead letters. At once: test/isolation, test/operate.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE EXTENSION IF NOT EXISTS outbox_manual;
RESET client_min_messages;
\set SHOW_CONTEXT never
\set VERBOSITY default
BEGIN;

-- Options: the common ones, judged by the DDL
SAVEPOINT s;
CREATE SERVER regress_bad FOREIGN DATA WRAPPER outbox_manual OPTIONS (url 'https://127.0.0.1/');
ROLLBACK TO s;
CREATE SERVER regress_bad FOREIGN DATA WRAPPER outbox_manual OPTIONS (max_attempt '3');
ROLLBACK TO s;
CREATE SERVER regress_bad FOREIGN DATA WRAPPER outbox_manual OPTIONS (retry 'sometimes');
ROLLBACK TO s;
CREATE SERVER regress_bad FOREIGN DATA WRAPPER outbox_manual OPTIONS (ordered 'false', on_dead_letter 'block');
ROLLBACK TO s;
CREATE SERVER regress_mine FOREIGN DATA WRAPPER outbox_manual OPTIONS (events 'order.*', retry '0s', max_attempts '3');
CREATE SERVER regress_kafka FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', events 'other');
SAVEPOINT s;
CREATE USER MAPPING FOR PUBLIC SERVER regress_mine OPTIONS (secret 'x');
ROLLBACK TO s;

-- Arguments
SELECT * FROM outbox.claim(NULL);
ROLLBACK TO s;
SELECT * FROM outbox.claim('regress_mine', 0);
ROLLBACK TO s;
SELECT * FROM outbox.claim('regress_mine', lease => '0s');
ROLLBACK TO s;
SELECT * FROM outbox.claim('regress_mine', lease => '8 days');
ROLLBACK TO s;
SELECT * FROM outbox.claim('regress_min');
ROLLBACK TO s;
SELECT * FROM outbox.claim('regress_kafka');
ROLLBACK TO s;
SELECT outbox.ack(NULL);
ROLLBACK TO s;
SELECT outbox.nack(gen_random_uuid(), gen_random_uuid(), NULL);
ROLLBACK TO s;
SELECT outbox.nack(gen_random_uuid(), gen_random_uuid(), 'x', '-1s');
ROLLBACK TO s;
SELECT outbox.ack(gen_random_uuid()), outbox.nack(gen_random_uuid(), gen_random_uuid(), 'x');
SET LOCAL transaction_read_only = on;
SELECT * FROM outbox.claim('regress_mine');
ROLLBACK TO s;

-- What is claimed, and in which order. The helper shows a claim in one line and keeps its token under a name.
CREATE TEMP TABLE kept (name text PRIMARY KEY, token uuid, ids uuid[]);
CREATE FUNCTION pg_temp.claim(name text, n int DEFAULT 100, lease interval DEFAULT '1 hour', sink text DEFAULT 'regress_mine') RETURNS text LANGUAGE sql AS $$
  WITH c AS MATERIALIZED (SELECT * FROM outbox.claim(sink, n, lease)),
  k AS (INSERT INTO kept SELECT claim.name, min(token::text)::uuid, array_agg(id ORDER BY position) FROM c HAVING count(*) > 0
        ON CONFLICT (name) DO UPDATE SET token = EXCLUDED.token, ids = EXCLUDED.ids)
  SELECT string_agg(event_type || '/' || coalesce(partition_key, '-') || CASE WHEN attempts > 0 THEN '#' || attempts ELSE '' END, ' ' ORDER BY position) FROM c $$;
CREATE FUNCTION pg_temp.ack(name text) RETURNS bigint LANGUAGE sql AS $$ SELECT outbox.ack(k.token, k.ids) FROM kept AS k WHERE k.name = ack.name $$;
CREATE FUNCTION pg_temp.ack(name text, nth int) RETURNS bigint LANGUAGE sql AS $$ SELECT outbox.ack(k.token, ARRAY[k.ids[nth]]) FROM kept AS k WHERE k.name = ack.name $$;
CREATE FUNCTION pg_temp.nack(name text, nth int, error text, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false) RETURNS text
LANGUAGE sql AS $$ SELECT outbox.nack(k.token, k.ids[nth], error, retry_in, give_up) FROM kept AS k WHERE k.name = nack.name $$;
CREATE FUNCTION pg_temp.put(VARIADIC events text[]) RETURNS bigint LANGUAGE sql AS $$ -- 'type/key'
  SELECT count(outbox.enqueue('Order', nullif(split_part(e, '/', 2), ''), split_part(e, '/', 1), '{"n": 1}', partition_key => split_part(e, '/', 2))) FROM unnest(events) AS e $$;
-- A lease that is over, without waiting for it
CREATE FUNCTION pg_temp.lose(name text) RETURNS void LANGUAGE sql AS $$ UPDATE outbox.leases AS l SET lease_until = '-infinity' FROM kept AS k WHERE l.token = k.token AND k.name = lose.name $$;
CREATE VIEW pg_temp.sink AS SELECT state, target, pending, blocked, in_flight, dead FROM outbox.sinks WHERE name = 'regress_mine';
SELECT pg_temp.put('order.a/1', 'order.b/1', 'order.c/2', 'order.d/', 'other/1', 'order.e/');
SELECT pg_temp.claim('first', 1), pg_temp.claim('second'), pg_temp.claim('third');
SELECT * FROM pg_temp.sink;
SELECT pg_temp.ack('first'), pg_temp.ack('first'), pg_temp.claim('third');
SELECT outbox.ack(token) FROM kept WHERE name = 'second';
SELECT pg_temp.ack('third');
SELECT * FROM pg_temp.sink;
SELECT event_type, status FROM outbox.events;
DELETE FROM outbox.events;

-- The row: bytes, headers, NULLs
SELECT FROM outbox.enqueue_bytes('Order', '1', 'order.bytes', '\x00ff', 'application/avro', headers => '{"tenant": 42}', dedup_key => 'regress');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, seq) VALUES ('Order', '2', 'order.tombstone', NULL, 7);
SELECT aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, dedup_key, seq, attempts,
       lease_until - interval '30 seconds' BETWEEN statement_timestamp() AND clock_timestamp() AS lease
FROM outbox.claim('regress_mine');
SELECT outbox.ack(token) FROM (SELECT DISTINCT token FROM outbox.leases) AS l;
SELECT count(*) FROM outbox_internal.dedup WHERE dedup_key = 'regress';

-- A failure holds up its key and gives back what follows; attempts, the error, dead letters
SELECT pg_temp.put('order.a/1', 'order.b/1', 'order.c/2');
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'no luck', '1 hour'), pg_temp.ack('x'), pg_temp.claim('y');
SELECT event_type, attempts, last_error, last_attempt_at IS NOT NULL AS failed, available_at > now() + interval '50 minutes' AS later FROM outbox.events ORDER BY position;
SELECT * FROM pg_temp.sink;
UPDATE outbox.events SET available_at = now() WHERE event_type = 'order.a';
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'again', '0s'), pg_temp.nack('x', 1, 'twice?'), pg_temp.ack('x', 2);
SELECT pg_sleep(0.002) \g /dev/null
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'for good');
SELECT event_type, status, attempts, last_error, overtaken_by FROM outbox.events ORDER BY position;
SELECT pg_temp.ack('x', 2), pg_temp.claim('y');
SELECT event_type, status, overtaken_by IS NOT NULL AS overtaken FROM outbox.events;
\set VERBOSITY sqlstate
SELECT outbox.redrive(id) FROM outbox.events;
\set VERBOSITY default
SELECT outbox.redrive(id, force => true) FROM outbox.events;
SELECT pg_temp.claim('x'), pg_temp.ack('x');
SELECT pg_temp.put('order.a/1') \g /dev/null
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'hopeless', give_up => true);
SELECT event_type, status, attempts, last_error FROM outbox.events;
DELETE FROM outbox.events;

-- The whole error, up to 8192 bytes, and marked where it is cut; a redrive that comes too late adds to it
SELECT pg_temp.put('order.a/1', 'order.b/1', 'order.c/2', 'order.d/3');
SELECT pg_temp.claim('x'), pg_temp.nack('x', 3, repeat('é', 4096), '1 hour'), pg_temp.nack('x', 4, repeat('é', 4097), give_up => true), pg_temp.nack('x', 1, repeat('x', 8192), give_up => true);
SELECT outbox.redrive(id) FROM outbox.events WHERE event_type = 'order.a' AND status = 'FAILED';
SELECT pg_temp.claim('y') IS NULL AS none, pg_temp.ack('x'), pg_temp.claim('y') IS NULL AS none;
SELECT event_type, status, octet_length(last_error) AS bytes, left(last_error, 20) AS first, right(last_error, 8) AS last FROM outbox.events ORDER BY event_type;
DELETE FROM outbox.events;

-- on_dead_letter 'block': the key waits for a person
ALTER SERVER regress_mine OPTIONS (ADD on_dead_letter 'block');
SELECT pg_temp.put('order.a/1', 'order.b/1', 'order.c/2');
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'dead', give_up => true), pg_temp.ack('x'), pg_temp.claim('y');
SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED';
SELECT pg_temp.claim('x'), pg_temp.ack('x');
ALTER SERVER regress_mine OPTIONS (DROP on_dead_letter);

-- Acknowledged before an earlier one of its key that fails: that one has been overtaken
SELECT pg_temp.put('order.a/1', 'order.b/1');
SELECT pg_temp.claim('x'), pg_temp.ack('x', 2), pg_temp.nack('x', 1, 'late', give_up => true);
SELECT event_type, status, overtaken_by IS NOT NULL AS overtaken FROM outbox.events;
DELETE FROM outbox.events;
-- A redriven event waits for what is claimed of its key, and is too late when that has gone
SELECT pg_temp.put('order.a/1', 'order.b/1');
SELECT pg_temp.claim('x'), pg_temp.nack('x', 1, 'dead', give_up => true);
SELECT outbox.redrive(id) FROM outbox.events WHERE status = 'FAILED';
SELECT pg_temp.claim('y'), pg_temp.ack('x'), pg_temp.claim('y');
SELECT event_type, status, overtaken_by IS NOT NULL AS overtaken, regexp_replace(last_error, '\d+', 'N') AS last_error FROM outbox.events;
DELETE FROM outbox.events;

-- A lease that is over: another claim may take its events, and then the former one has lost these, but not others of its events
SELECT pg_temp.put('order.a/1', 'order.b/1', 'order.c/', 'order.d/2');
SELECT pg_temp.claim('x', 3), pg_temp.lose('x');
SELECT * FROM pg_temp.sink;
SELECT pg_temp.claim('y', 1), pg_temp.ack('x'), pg_temp.nack('x', 1, 'mine'), pg_temp.claim('z'), pg_temp.ack('y'), pg_temp.ack('z');
SELECT pg_temp.claim('x'), pg_temp.lose('x'), pg_temp.ack('x') AS nobody_else_came;

-- Scheduled events, deleted and moved ones
SELECT FROM outbox.enqueue('Order', '1', 'order.later', '1', available_at => now() + interval '1 hour');
SELECT pg_temp.put('order.a/1', 'order.b/2', 'order.c/3');
SELECT pg_temp.claim('x');
UPDATE outbox.events SET available_at = now() - interval '1 second' WHERE event_type = 'order.later';
DELETE FROM outbox.events WHERE event_type = 'order.b';
UPDATE outbox.events SET sink = 'regress_kafka' WHERE event_type = 'order.c';
SELECT pg_temp.claim('y'), pg_temp.ack('x'), pg_temp.claim('y'), pg_temp.ack('y');
UPDATE outbox.events SET sink = 'regress_mine' WHERE event_type = 'order.c';
SELECT pg_temp.put('order.d/3');
SELECT pg_temp.claim('x'), pg_temp.ack('x');

-- Without order every event goes at once; while events are claimed as of another order, nothing does
SELECT outbox.enqueue('Order', '1', 'order.' || n, '1') FROM generate_series(1, 3) AS n \g /dev/null
SELECT count(*) FROM outbox.claim('regress_mine', 1, '1 hour');
ALTER SERVER regress_mine OPTIONS (ADD ordered 'false');
\set VERBOSITY terse
SELECT count(*) FROM outbox.claim('regress_mine', lease => '1 hour');
\set VERBOSITY default
SELECT outbox.ack(token) FROM outbox.leases;
SELECT count(*) FROM outbox.claim('regress_mine', 1, '1 hour');
SELECT outbox.enqueue('Order', '1', 'order.4', '1') \g /dev/null
SELECT event_type FROM outbox.claim('regress_mine', lease => '1 hour') ORDER BY position;
SELECT sum(outbox.ack(token)) FROM (SELECT DISTINCT token FROM outbox.leases) AS l;
ROLLBACK TO s;

-- Kept for the retention, and again by a replay
SET LOCAL outbox.retention = '1d';
SELECT outbox.enqueue('Order', '1', 'order.kept', '1') \g /dev/null
SELECT outbox.ack(token) FROM outbox.claim('regress_mine');
SELECT status, sent_at IS NOT NULL AS sent, attempts FROM outbox.events;
SELECT outbox.replay('regress_mine', now() - interval '1 hour', 'infinity');
SELECT event_type FROM outbox.claim('regress_mine');
ROLLBACK TO s;

-- A lease whose time is over stays until another claim takes its events: one that takes others does not end it.
SELECT outbox.enqueue('Order', k, 'order.a', '1') FROM unnest(ARRAY['1', '2']) AS k \g /dev/null
SELECT token AS first FROM outbox.claim('regress_mine') LIMIT 1 \gset
UPDATE outbox.leases SET lease_until = now() - interval '1 minute';
SELECT aggregate_id FROM outbox.claim('regress_mine', 1);
SELECT outbox.ack(:'first') AS what_nobody_took;
SELECT aggregate_id FROM outbox.events;
ROLLBACK TO s;

-- Paused; nothing to probe or preview
SELECT outbox.enqueue('Order', '1', 'order.a', '1') \g /dev/null
SELECT outbox.pause('regress_mine');
SELECT event_type FROM outbox.claim('regress_mine');
SELECT outbox.resume('regress_mine');
SELECT event_type FROM outbox.claim('regress_mine');
SAVEPOINT t;
SELECT * FROM outbox.probe('regress_mine');
ROLLBACK TO t;
SELECT * FROM outbox.preview((SELECT id FROM outbox.events));
ROLLBACK TO s;

-- The doctor misses no worker where none is needed
DROP SERVER regress_kafka;
SELECT "check", status, detail FROM outbox.doctor() WHERE "check" IN ('preload', 'worker', 'sink regress_mine');
INSERT INTO outbox.events (aggregate_type, event_type, created_at) VALUES ('Order', 'order.a', now() - interval '1 hour');
SELECT status, regexp_replace(detail, 'for .*,', 'for …,') AS detail, hint FROM outbox.doctor() WHERE "check" = 'sink regress_mine';
ROLLBACK TO s;

-- Leases of events that are gone leave a day after their end, the others stay
SELECT outbox.enqueue('Order', k, 'order.a', '1') FROM unnest(ARRAY['1', '2', '3']) AS k \g /dev/null
SELECT count(*) FROM outbox.claim('regress_mine');
DELETE FROM outbox.events WHERE aggregate_id = '1';
UPDATE outbox.leases SET lease_until = now() - CASE (SELECT e.aggregate_id FROM outbox.events AS e WHERE e.id = ids[1]) WHEN '2' THEN interval '23 hours' WHEN '3' THEN interval '-1 hour' ELSE interval '25 hours' END;
SELECT outbox.run_maintenance() >= 0 AS maintained;
SELECT e.aggregate_id FROM outbox.leases AS l LEFT JOIN outbox.events AS e ON e.id = l.ids[1] ORDER BY 1;
ROLLBACK TO s;

-- Rights: EXECUTE, and USAGE on the server
CREATE ROLE regress_dispatcher;
GRANT USAGE ON SCHEMA outbox TO regress_dispatcher;
SAVEPOINT t;
SET LOCAL ROLE regress_dispatcher;
SELECT * FROM outbox.claim('regress_mine');
ROLLBACK TO t;
GRANT EXECUTE ON FUNCTION outbox.claim, outbox.ack, outbox.nack TO regress_dispatcher;
SAVEPOINT t;
SELECT outbox.enqueue('Order', '1', 'order.a', '1') \g /dev/null
CREATE TEMP TABLE claimed AS SELECT * FROM outbox.claim('regress_mine');
GRANT SELECT ON claimed TO regress_dispatcher;
SAVEPOINT u;
SET LOCAL ROLE regress_dispatcher;
SELECT * FROM outbox.claim('regress_mine');
ROLLBACK TO u;
SET LOCAL ROLE regress_dispatcher;
SELECT outbox.ack(token) FROM claimed;
ROLLBACK TO u;
SET LOCAL ROLE regress_dispatcher;
SELECT outbox.nack(token, id, 'x') FROM claimed;
ROLLBACK TO u;
GRANT USAGE ON FOREIGN SERVER regress_mine TO regress_dispatcher;
SET LOCAL ROLE regress_dispatcher;
SELECT outbox.nack(token, id, 'x', '0s') FROM claimed;
SELECT pg_sleep(0.002) \g /dev/null
SELECT outbox.ack(token, ARRAY[id]) FROM outbox.claim('regress_mine');
SAVEPOINT u;
SELECT * FROM outbox.leases;
ROLLBACK TO u;
ROLLBACK;
