-- A new C library or ICU may change the order of texts below existing indexes, which then do not find their rows. The order of "C" never
-- changes: every column of outbox that an index compares has it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;

SELECT i.indexrelid::regclass AS index, a.attname AS column_name, c.collname AS collation_name
FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid
CROSS JOIN unnest(i.indcollation) WITH ORDINALITY AS k (used, n)
JOIN pg_attribute AS a ON a.attrelid = i.indexrelid AND a.attnum = k.n
JOIN pg_collation AS c ON c.oid = k.used
WHERE t.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND c.collname <> 'C'
ORDER BY 1, 2;

-- A statement that names another collation would not use these indexes, and read all rows.
SELECT p.oid::regprocedure AS function FROM pg_proc AS p
WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
  AND regexp_replace(p.prosrc, 'COLLATE (pg_catalog\.)?"C"', '', 'g') ~* 'COLLATE';

-- A parameter and a name take the column's collation. The worker's statements for the due events of a sink, and for the rows of a key:
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
PREPARE due (text, timestamptz, bigint) AS
  SELECT FROM outbox.events_pending WHERE sink = $1 AND available_at IS NOT NULL AND blocked_by IS NULL
  AND (available_at, position) > ($2, $3) ORDER BY available_at, position LIMIT 10;
EXPLAIN (COSTS OFF) EXECUTE due ('crm', 'epoch', 0);
PREPARE of_key (text, bigint) AS
  SELECT FROM outbox.events_failed WHERE sink = $1 AND hashtextextended(partition_key, 0) = $2 ORDER BY position;
EXPLAIN (COSTS OFF) EXECUTE of_key ('crm', 1);
PREPARE known (text) AS SELECT FROM outbox_internal.dedup WHERE dedup_key = $1;
EXPLAIN (COSTS OFF) EXECUTE known ('k');
EXPLAIN (COSTS OFF) SELECT FROM outbox.events_pending WHERE available_at IS NULL AND sink = 'crm'::name ORDER BY sink, position LIMIT 10;
DEALLOCATE ALL;
RESET enable_seqscan;
RESET plan_cache_mode;

-- A column of the same text in the database's collation compares without a COLLATE; the result has the order of "C".
SELECT sink FROM (SELECT e.sink FROM outbox.events AS e JOIN (VALUES ('crm')) AS mine (sink) USING (sink)) AS x ORDER BY sink;
