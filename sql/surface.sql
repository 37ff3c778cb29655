-- What \df outbox.* and \d outbox.* show is for users. A part of these belongs into the schema outbox_internal; what is new here
-- belongs into docs/reference.md as well.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;

SELECT p.proname AS name, CASE p.prokind WHEN 'p' THEN 'procedure' WHEN 'f' THEN 'function' ELSE p.prokind::text END AS kind, count(*) AS signatures
FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'outbox'
WHERE p.pronamespace = 'outbox'::regnamespace GROUP BY 1, 2 ORDER BY p.proname COLLATE "C";

-- Without indexes, and without the partitions of single days
SELECT c.relname AS name, CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE c.relkind::text END AS kind
FROM pg_class AS c WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind NOT IN ('i', 'I') AND c.relname !~ '_[0-9]{8}$' ORDER BY c.relname COLLATE "C";

SELECT t.typname AS other_types FROM pg_type AS t
WHERE t.typnamespace = 'outbox'::regnamespace AND t.typrelid = 0 AND NOT EXISTS (SELECT FROM pg_type AS e WHERE e.typarray = t.oid) ORDER BY 1;

-- Both schemas are members of the extension: they come and go with it. Only its owner may use the parts.
SELECT n.nspname AS schema, pg_has_role(e.extowner, n.nspowner, 'USAGE') AS owned, n.nspacl IS NULL AS owner_only
FROM pg_extension AS e JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.classid = 'pg_namespace'::regclass AND d.deptype = 'e'
JOIN pg_namespace AS n ON n.oid = d.objid WHERE e.extname = 'outbox' ORDER BY n.nspname COLLATE "C";

-- A reader's order: what it is, what waits, what is dead, how fast it is, what went wrong, and totals.
\d outbox.sinks
-- psql makes each line as wide as the longest description.
SELECT a.attrelid::regclass AS view, max(length(col_description(a.attrelid, a.attnum))) <= 100 AS short
FROM pg_attribute AS a WHERE a.attrelid = 'outbox.sinks'::regclass AND a.attnum > 0 GROUP BY 1;
