-- The extension outbox_inbox: mark_processed() is true once per event and handler, in a consumer's transaction.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS outbox CASCADE; -- its worker would maintain the partitions between two statements
CREATE EXTENSION outbox_inbox;
RESET client_min_messages;
SET timezone = 'UTC';
\set VERBOSITY terse
CREATE FUNCTION pg_temp.v7(ago interval, n integer) RETURNS uuid LANGUAGE sql AS $$
  SELECT (lpad(to_hex((extract(epoch FROM date_trunc('hour', now(), 'UTC') - ago) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid $$;
CREATE VIEW pg_temp.parts AS
  SELECT count(*) FILTER (WHERE length(c.relname) = 25) AS days, count(*) FILTER (WHERE length(c.relname) = 27) AS hours
  FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass
    AND c.relname ~ '[0-9]$';

-- The first time, again, for another handler; before that, nobody makes partitions.
SELECT outbox_inbox.run_maintenance(), days, hours FROM pg_temp.parts;
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox_inbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox_inbox.mark_processed(pg_temp.v7('0', 1), 'ledger');
-- What rolls back was not processed.
BEGIN;
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 2), 'mail');
ROLLBACK;
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 2), 'mail');
-- Days ago and ahead, as far as the retention goes
SELECT outbox_inbox.mark_processed(pg_temp.v7('3 days', 1), 'mail'), outbox_inbox.mark_processed(pg_temp.v7('3 days', 1), 'mail'),
       outbox_inbox.mark_processed(pg_temp.v7('-2 days', 1), 'mail'), outbox_inbox.mark_processed(pg_temp.v7('-2 days', 1), 'mail');
-- Other versions, also one that begins like a UUIDv7
SELECT outbox_inbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000001', 'mail'), outbox_inbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000001', 'mail');
SELECT outbox_inbox.mark_processed(overlay(pg_temp.v7('0', 1)::text PLACING '4' FROM 15)::uuid, 'mail');
SELECT handler, id_time = date_trunc('hour', now(), 'UTC') - interval '3 days' AS its_time, processed_at = now() AS now, tableoid::regclass = 'outbox_inbox.processed_events_other'::regclass AS other
FROM outbox_inbox.processed_events WHERE event_id = pg_temp.v7('3 days', 1) OR isfinite(id_time) = false ORDER BY event_id;

-- What cannot be told is refused.
\set VERBOSITY default
SELECT outbox_inbox.mark_processed('01000000-0000-7000-8000-000000000001', 'mail');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox_inbox.mark_processed('f1000000-0000-7000-8000-000000000001', 'mail');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
SELECT outbox_inbox.mark_processed(NULL, 'mail');
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 1), NULL);
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 1), '');
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 1), repeat('x', 201));

-- Ahead: today and two more days. Over: whole days, and row by row for ids that carry no time.
SELECT outbox_inbox.run_maintenance() >= 1 AS made;
SELECT days >= 4 AS days, hours FROM pg_temp.parts;
SELECT outbox_inbox.run_maintenance();
INSERT INTO outbox_inbox.processed_events VALUES ('b5c7f8a1-0000-4000-8000-000000000002', 'mail', 'infinity', now() - interval '8 days');
SELECT outbox_inbox.mark_processed(pg_temp.v7('6 days', 1), 'mail');
SELECT outbox_inbox.set_retention('4d');
\set VERBOSITY sqlstate
SELECT outbox_inbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
\set VERBOSITY terse
SELECT outbox_inbox.run_maintenance();
SELECT count(*) FILTER (WHERE event_id = pg_temp.v7('6 days', 1)) AS over, count(*) FILTER (WHERE id_time = 'infinity') AS other, count(*) > 5 AS kept FROM outbox_inbox.processed_events;
-- Its record is gone, so it stays unknown also under a longer retention.
SELECT outbox_inbox.set_retention('7d');
\set VERBOSITY sqlstate
SELECT outbox_inbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
\set VERBOSITY terse
-- Below two days by the hour; a day that is there stays in use, and so do hours when there are days again.
SELECT outbox_inbox.set_retention('1d');
SELECT outbox_inbox.mark_processed(pg_temp.v7('-2 hours', 1), 'mail') AND NOT outbox_inbox.mark_processed(pg_temp.v7('-2 hours', 1), 'mail') AS once;
DO $$ BEGIN EXECUTE format('DROP TABLE outbox_inbox.processed_events_%s', to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$;
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 3), 'mail') AND NOT outbox_inbox.mark_processed(pg_temp.v7('0', 3), 'mail') AS once;
SELECT hours FROM pg_temp.parts;
SELECT outbox_inbox.set_retention('7d');
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 3), 'mail') AS known;
SELECT outbox_inbox.mark_processed((overlay(pg_temp.v7('0', 4)::text PLACING left((pg_temp.v7(CASE WHEN extract(hour FROM now()) > 0 THEN '1 hour'::interval ELSE '-1 hour' END, 4))::text, 13) FROM 1))::uuid, 'mail') AS another_hour;
SELECT hours FROM pg_temp.parts;
-- One hour to ten years
SELECT outbox_inbox.set_retention('59min');
SELECT outbox_inbox.set_retention('3651d');
SELECT outbox_inbox.set_retention(NULL);
SELECT outbox_inbox.set_retention('2h'), outbox_inbox.retention();
SELECT outbox_inbox.set_retention('7d'), outbox_inbox.retention();

-- For those who were granted it, who need no right on the table and may make its partitions; for nobody else.
CREATE ROLE regress_outbox_consumer;
GRANT USAGE ON SCHEMA outbox_inbox TO regress_outbox_consumer;
SET ROLE regress_outbox_consumer;
SELECT outbox_inbox.mark_processed('b5c7f8a1-0000-4000-8000-000000000003', 'mail');
RESET ROLE;
GRANT EXECUTE ON FUNCTION outbox_inbox.mark_processed(uuid, text) TO regress_outbox_consumer;
SET ROLE regress_outbox_consumer;
SELECT outbox_inbox.mark_processed((lpad(to_hex(((extract(epoch FROM now()) - 86400 * 5) * 1000)::bigint), 12, '0') || '70008000000000000005')::uuid, 'mail');
SELECT count(*) FROM outbox_inbox.processed_events;
SELECT outbox_inbox.set_retention('9d');
RESET ROLE;
SELECT DISTINCT relowner = 'postgres'::regrole AS the_extensions FROM pg_class WHERE relname LIKE 'processed_events%' AND relkind = 'r';

-- As a plain file, where no extension can be installed: the same tables and functions.
DROP OWNED BY regress_outbox_consumer;
DROP ROLE regress_outbox_consumer;
CREATE VIEW pg_temp.functions AS SELECT p.oid::regprocedure::text AS name, md5(p.prosrc || pg_get_functiondef(p.oid) || obj_description(p.oid, 'pg_proc')) AS same
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'outbox_inbox';
CREATE TEMP TABLE made AS TABLE pg_temp.functions;
SELECT setting || '/extension/outbox_inbox.sql' AS inbox FROM pg_config WHERE name = 'SHAREDIR' \gset
SET client_min_messages = warning;
DROP EXTENSION outbox_inbox CASCADE;
SELECT to_regnamespace('outbox_inbox') IS NULL AS dropped;
\set ECHO none
\i :inbox
\set ECHO all
SELECT count(*) > 8 AS functions, count(*) FILTER (WHERE made.same IS DISTINCT FROM plain.same) AS different FROM made FULL JOIN pg_temp.functions AS plain USING (name);
SELECT outbox_inbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox_inbox.mark_processed(pg_temp.v7('0', 1), 'mail'), outbox_inbox.run_maintenance();
SELECT outbox_inbox.mark_processed(pg_temp.v7('6 days', 1), 'mail');
SELECT outbox_inbox.set_retention('4d');
SELECT outbox_inbox.run_maintenance();
SELECT outbox_inbox.set_retention('7d');
\set VERBOSITY sqlstate
SELECT outbox_inbox.mark_processed(pg_temp.v7('6 days', 1), 'mail') IS NULL AS unreachable;
\set VERBOSITY terse
-- Beside it the extension is refused: it would take over a schema that is not its own.
CREATE EXTENSION outbox_inbox;
DROP SCHEMA outbox_inbox CASCADE;
CREATE EXTENSION outbox;
