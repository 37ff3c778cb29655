-- outbox.mark_processed(): true once per event and handler, in a consumer's transaction.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
SET timezone = 'UTC';
\set VERBOSITY terse
CREATE FUNCTION pg_temp.v7(ago interval, n integer) RETURNS uuid LANGUAGE sql AS $$
  SELECT (lpad(to_hex((extract(epoch FROM date_trunc('hour', now(), 'UTC') - ago) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid $$;
CREATE VIEW pg_temp.parts AS
  SELECT count(*) FILTER (WHERE length(c.relname) = 25) AS days, count(*) FILTER (WHERE length(c.relname) = 27) AS hours
  FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'outbox.processed_events'::regclass
    AND c.relname ~ '[0-9]$';

-- The first time, again, for another handler; before that, nobody makes partitions.
SELECT outbox_internal.maintain_processed(), days, hours FROM pg_temp.parts;
SELECT outbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox.mark_processed(pg_temp.v7('0', 1), 'ledger');
-- What rolls back was not processed.
BEGIN;
SELECT outbox.mark_processed(pg_temp.v7('0', 2), 'mail');
ROLLBACK;
SELECT outbox.mark_processed(pg_temp.v7('0', 2), 'mail');
-- Days ago and ahead, as far as the retention goes
SELECT outbox.mark_processed(pg_temp.v7('3 days', 1), 'mail'), outbox.mark_processed(pg_temp.v7('3 days', 1), 'mail'),
       outbox.mark_processed(pg_temp.v7('-2 days', 1), 'mail'), outbox.mark_processed(pg_temp.v7('-2 days', 1), 'mail');
-- Other versions, also one that begins like a UUIDv7
SELECT outbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000001', 'mail'), outbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000001', 'mail');
SELECT outbox.mark_processed(overlay(pg_temp.v7('0', 1)::text PLACING '4' FROM 15)::uuid, 'mail');
SELECT handler, id_time = date_trunc('hour', now(), 'UTC') - interval '3 days' AS its_time, processed_at = now() AS now, tableoid::regclass = 'outbox.processed_events_other'::regclass AS other
FROM outbox.processed_events WHERE event_id = pg_temp.v7('3 days', 1) OR isfinite(id_time) = false ORDER BY event_id;

-- What cannot be told is refused.
\set VERBOSITY default
SELECT outbox.mark_processed('01000000-0000-7000-8000-000000000001', 'mail');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.mark_processed('f1000000-0000-7000-8000-000000000001', 'mail');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT outbox.mark_processed(NULL, 'mail');
SELECT outbox.mark_processed(pg_temp.v7('0', 1), NULL);
SELECT outbox.mark_processed(pg_temp.v7('0', 1), '');
SELECT outbox.mark_processed(pg_temp.v7('0', 1), repeat('x', 201));

-- Ahead: today and two more days. Over: whole days, and row by row for ids that carry no time.
SELECT outbox_internal.maintain_processed() >= 1 AS made;
SELECT days >= 4 AS days, hours FROM pg_temp.parts;
SELECT outbox_internal.maintain_processed();
INSERT INTO outbox.processed_events VALUES ('b5c7f8a1-0000-4000-8000-000000000002', 'mail', 'infinity', now() - interval '8 days');
SELECT outbox.mark_processed(pg_temp.v7('6 days', 1), 'mail');
SET outbox.processed_retention = '4d';
\set VERBOSITY sqlstate
SELECT outbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
\set VERBOSITY terse
SELECT outbox_internal.maintain_processed();
SELECT count(*) FILTER (WHERE event_id = pg_temp.v7('6 days', 1)) AS over, count(*) FILTER (WHERE id_time = 'infinity') AS other, count(*) > 5 AS kept FROM outbox.processed_events;
-- Its record is gone, so it stays unknown also under a longer retention.
SET outbox.processed_retention = '7d';
\set VERBOSITY sqlstate
SELECT outbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
\set VERBOSITY terse
-- Below two days by the hour; a day that is there stays in use, and so do hours when there are days again.
SET outbox.processed_retention = '1d';
SELECT outbox.mark_processed(pg_temp.v7('-2 hours', 1), 'mail') AND NOT outbox.mark_processed(pg_temp.v7('-2 hours', 1), 'mail') AS once;
DO $$ BEGIN EXECUTE format('DROP TABLE outbox.processed_events_%s', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$;
SELECT outbox.mark_processed(pg_temp.v7('0', 3), 'mail') AND NOT outbox.mark_processed(pg_temp.v7('0', 3), 'mail') AS once;
SELECT hours FROM pg_temp.parts;
SET outbox.processed_retention = '7d';
SELECT outbox.mark_processed(pg_temp.v7('0', 3), 'mail') AS known;
SELECT outbox.mark_processed((overlay(pg_temp.v7('0', 4)::text PLACING left((pg_temp.v7(CASE WHEN extract(hour FROM now()) > 0 THEN '1 hour'::interval ELSE '-1 hour' END, 4))::text, 13) FROM 1))::uuid, 'mail') AS another_hour;
SELECT hours FROM pg_temp.parts;
-- As a placeholder it may be a plain number of seconds.
SET outbox.processed_retention = 7200;
SELECT outbox_internal.processed_retention();
RESET outbox.processed_retention;
SELECT outbox_internal.processed_retention();

-- For those who were granted it, who need no right on the table and may make its partitions; for nobody else.
CREATE ROLE regress_outbox_consumer;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_consumer;
SET ROLE regress_outbox_consumer;
SELECT outbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000003', 'mail');
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox.mark_processed(uuid, text) TO regress_outbox_consumer;
SET ROLE regress_outbox_consumer;
SELECT outbox.mark_processed((lpad(to_hex(((extract(epoch FROM now()) - 86400 * 5) * 1000)::bigint), 12, '0') || '70008000000000000005')::uuid, 'mail');
SELECT count(*) FROM outbox.processed_events;
RESET ROLE;
SELECT DISTINCT relowner = 'postgres'::regrole AS the_extensions FROM pg_class WHERE relname LIKE 'processed_events%' AND relkind = 'r';

-- As a plain file, where no extension can be installed: the same tables and functions.
DROP OWNED BY regress_outbox_consumer;
DROP ROLE regress_outbox_consumer;
CREATE TEMP TABLE made AS SELECT p.oid::regprocedure::text AS name, md5(p.prosrc || pg_get_functiondef(p.oid) || obj_description(p.oid, 'pg_proc')) AS same
  FROM pg_proc AS p WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND p.proname ~ 'processed|partition|expire_rows|refuse_dropped';
SET client_min_messages = warning;
DROP EXTENSION outbox CASCADE;
SELECT setting || '/extension/outbox_inbox.sql' AS inbox FROM pg_config WHERE name = 'SHAREDIR' \gset
\set ECHO none
\i :inbox
\set ECHO all
SELECT count(*) > 8 AS functions, count(*) FILTER (WHERE made.name IS NULL OR made.same <> md5(p.prosrc || pg_get_functiondef(p.oid) || obj_description(p.oid, 'pg_proc'))) AS different
FROM pg_proc AS p LEFT JOIN made ON made.name = p.oid::regprocedure::text WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND p.proname <> 'run_maintenance'; -- there, of the inbox alone
SELECT outbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox.run_maintenance();
SELECT outbox.mark_processed(pg_temp.v7('6 days', 1), 'mail');
SET outbox.processed_retention = '4d';
SELECT outbox.run_maintenance();
RESET outbox.processed_retention;
\set VERBOSITY sqlstate
SELECT outbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
DROP SCHEMA outbox, outbox_internal CASCADE;
CREATE EXTENSION outbox;
