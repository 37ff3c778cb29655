-- The tables stay as the extension made them: changes after which its statements would fail or lose events are refused, to superusers too.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
CREATE TABLE regress_attempts (n serial, statement text, refusal text);
CREATE FUNCTION regress_try(statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  refusal text := 'ACCEPTED';
BEGIN
  BEGIN
    EXECUTE statement;
    RAISE SQLSTATE 'OK000';
  EXCEPTION WHEN SQLSTATE 'OK000' THEN
    NULL;
  WHEN OTHERS THEN
    refusal := SQLERRM;
  END;
  INSERT INTO regress_attempts (statement, refusal) VALUES (statement, refusal);
END
$$;

-- What the library knows of the tables is what the script makes
SELECT * FROM outbox_internal.definition_faults();
SELECT c.oid::regclass AS not_known FROM pg_class AS c
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'outbox'
WHERE c.relkind IN ('r', 'p', 'S') AND c.oid NOT IN (SELECT split_part(t, ': ', 1)::regclass FROM unnest(outbox_internal.defined_tables()) AS t) ORDER BY 1;
SELECT i.indexrelid::regclass AS not_known FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid
WHERE t.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND NOT c.relispartition AND t.relname !~ '_[0-9]{8}$'
  AND c.relname <> ALL (outbox_internal.defined_indexes()) ORDER BY 1;

SET client_min_messages = warning;
-- Every column of every table: dropped, renamed, of another type
SELECT count(regress_try(format(w.what, c.oid::regclass, a.attname))) > 0 AS tried
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN (VALUES ('ALTER TABLE %s DROP COLUMN %I CASCADE'), ('ALTER TABLE %s RENAME COLUMN %I TO mine'), ('ALTER TABLE %s ALTER COLUMN %I TYPE varchar')) AS w (what)
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
  AND c.relname <> 'events_sent';
SELECT regexp_replace(refusal, '(column) \S+ (of table) \S+', '\1 % \2 %') AS refusal, count(*) > 60 AS many FROM regress_attempts
WHERE refusal !~ '^cannot |trigger|partition key' GROUP BY 1 ORDER BY 1;
TRUNCATE regress_attempts;

RESET client_min_messages;

-- Every table, partition and sequence: renamed, moved, unlogged. Days of delivered events are not named here.
SELECT count(regress_try(format(w.what, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass))) > 0 AS tried
FROM pg_class AS c CROSS JOIN (VALUES ('ALTER %s %s RENAME TO mine'), ('ALTER %s %s SET SCHEMA public'), ('ALTER %s %s SET UNLOGGED')) AS w (what)
WHERE c.relkind IN ('r', 'p', 'S') AND c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace);
SELECT regexp_replace(refusal, '^\S+ of', '% of') AS refusal, count(*) > 20 AS many FROM regress_attempts GROUP BY 1 ORDER BY 1;
TRUNCATE regress_attempts;

-- Every index
SELECT count(regress_try(format(w.what, CASE WHEN c.conname IS NOT NULL THEN format('TABLE %s DROP CONSTRAINT %I', i.indrelid::regclass, c.conname) END, i.indexrelid::regclass))) > 0 AS tried
FROM pg_index AS i LEFT JOIN pg_constraint AS c ON c.conindid = i.indexrelid
CROSS JOIN (VALUES ('DROP INDEX %2$s'), ('ALTER %s'), ('ALTER INDEX %2$s RENAME TO mine'), ('ALTER TABLE %2$s RENAME TO mine')) AS w (what)
WHERE (SELECT relname FROM pg_class WHERE oid = i.indexrelid) = ANY (outbox_internal.defined_indexes()) AND NOT (w.what = 'ALTER %s' AND c.oid IS NULL);
SELECT regexp_replace(refusal, 'index \S+ of|^\S+ of', '% of') AS refusal, count(*) > 5 AS many FROM regress_attempts GROUP BY 1 ORDER BY 1;
TRUNCATE regress_attempts;

-- The rest, by name
SELECT count(regress_try(s)) > 0 AS tried FROM (VALUES
  ('ALTER SCHEMA outbox RENAME TO mine'), ('ALTER SCHEMA outbox_internal RENAME TO mine'),
  ('ALTER TABLE outbox.events DETACH PARTITION outbox.events_pending'), ('ALTER TABLE outbox.events DETACH PARTITION outbox.events_failed'),
  ('ALTER TABLE outbox.events DETACH PARTITION outbox.events_sent'),
  ('ALTER TABLE outbox.events ADD COLUMN mine text'), ('ALTER TABLE outbox_internal.dedup ADD COLUMN mine int NOT NULL'),
  ('ALTER TABLE outbox.stopped_sinks ALTER COLUMN sink TYPE text COLLATE "POSIX"'),
  ('DROP TRIGGER events_before_insert ON outbox.events'), ('DROP TRIGGER tell_workers ON outbox.stopped_sinks'),
  ('ALTER FUNCTION outbox.pause(text) RENAME TO mine'), ('ALTER FUNCTION outbox_internal.library_version() SET SCHEMA public'),
  ('ALTER VIEW outbox.sinks RENAME TO mine'), ('ALTER FOREIGN DATA WRAPPER outbox_webhook RENAME TO mine')) AS v (s);
SELECT statement, refusal FROM regress_attempts ORDER BY n;
TRUNCATE regress_attempts;

-- What stays allowed
SELECT count(regress_try(s)) > 0 AS tried FROM (VALUES
  ('CREATE INDEX mine ON outbox.events_pending (aggregate_id); ALTER INDEX outbox.mine RENAME TO ours; DROP INDEX outbox.ours'),
  ('ALTER TABLE outbox.events ADD CONSTRAINT mine CHECK (event_type <> ''x''); ALTER TABLE outbox.events DROP CONSTRAINT mine'),
  ('CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS ''BEGIN RETURN NEW; END''; CREATE TRIGGER mine BEFORE INSERT ON outbox.events FOR EACH ROW '
   'EXECUTE FUNCTION mine(); DROP TRIGGER mine ON outbox.events'),
  ('ALTER TABLE outbox.events_pending SET (fillfactor = 80)'), ('ALTER TABLE outbox.events_pending SET TABLESPACE pg_default'),
  ('ALTER TABLE outbox.events_pending REPLICA IDENTITY FULL'), ('ALTER TABLE outbox.events DISABLE TRIGGER USER'),
  ('ALTER TABLE outbox.events ALTER COLUMN payload SET STORAGE EXTERNAL, ALTER COLUMN payload SET STATISTICS 10'),
  ('ALTER TABLE outbox.events ALTER COLUMN aggregate_id SET NOT NULL'), ('CREATE PUBLICATION mine FOR TABLE outbox.events'),
  ('REINDEX TABLE outbox.events_pending'), ('CLUSTER outbox.events_pending USING events_pending_pkey'),
  ('CREATE TABLE public.mine (LIKE outbox.events); ALTER TABLE public.mine RENAME COLUMN id TO mine; ALTER TABLE public.mine SET UNLOGGED'),
  ('CREATE TABLE outbox.mine (a int); ALTER TABLE outbox.mine RENAME TO ours; ALTER TABLE outbox.ours ADD COLUMN b int; ALTER TABLE outbox.ours SET UNLOGGED'),
  ('CREATE FUNCTION outbox.mine() RETURNS int LANGUAGE sql AS ''SELECT 1''; ALTER FUNCTION outbox.mine() RENAME TO ours'),
  ('CREATE SCHEMA mine; ALTER SCHEMA mine RENAME TO ours')) AS v (s);
SELECT statement, refusal FROM regress_attempts ORDER BY n;

-- What was changed where the library was not loaded, or after ALTER EXTENSION ... DROP TABLE, is named, and can be put back
BEGIN;
ALTER EXTENSION outbox DROP TABLE outbox.events;
ALTER TABLE outbox.events RENAME COLUMN headers TO mine;
ALTER TABLE outbox.events ALTER COLUMN seq TYPE numeric;
ALTER EXTENSION outbox ADD TABLE outbox.events;
ALTER EXTENSION outbox DROP TABLE outbox.leases;
ALTER TABLE outbox.leases SET UNLOGGED;
ALTER EXTENSION outbox ADD TABLE outbox.leases;
ALTER EXTENSION outbox DROP TABLE outbox_internal.conditions;
ALTER TABLE outbox_internal.conditions RENAME TO mine;
ALTER EXTENSION outbox ADD TABLE outbox_internal.mine;
ALTER TABLE outbox.stopped_sinks DISABLE TRIGGER tell_workers;
SELECT status, detail, hint FROM outbox.doctor() WHERE "check" = 'tables';
ALTER TABLE outbox.events RENAME COLUMN mine TO headers;
ALTER TABLE outbox.events ALTER COLUMN seq TYPE bigint USING seq::bigint;
ALTER TABLE outbox.leases SET LOGGED;
ALTER TABLE outbox_internal.mine RENAME TO conditions;
ALTER TABLE outbox.stopped_sinks ENABLE ALWAYS TRIGGER tell_workers;
SELECT status, detail, hint FROM outbox.doctor() WHERE "check" = 'tables';
ROLLBACK;

DROP TABLE regress_attempts;
DROP FUNCTION regress_try;
