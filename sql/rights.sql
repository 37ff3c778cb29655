-- What everybody may run, and with whose names and rights.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;

CREATE VIEW pg_temp.functions AS SELECT p.* FROM pg_proc AS p WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace);

-- There is something to look at, also of those that run with their owner's rights.
SELECT count(*) > 20 AS functions, count(*) FILTER (WHERE prosecdef) > 3 AS definers FROM pg_temp.functions;

-- Everybody may enqueue, and nothing else
SELECT DISTINCT proname AS public FROM pg_temp.functions WHERE has_function_privilege('public', oid, 'EXECUTE') ORDER BY 1;
SELECT a.privilege_type AS public FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
WHERE n.nspname IN ('outbox', 'outbox_internal') AND a.grantee = 0;
SELECT c.oid::regclass AS public, a.privilege_type FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))) AS a
WHERE c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND c.relkind <> 'i' AND c.relkind <> 'I' AND a.grantee = 0;

-- Functions that find names by their caller's search_path: of what the trigger of each INSERT looks up, every name is qualified, and so it is
-- in the procedure that commits, which it could not with a SET
SELECT oid::regprocedure AS without_search_path FROM pg_temp.functions
WHERE NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false) ORDER BY 1;

-- Functions with their owner's rights whose owner is not the extension's
SELECT f.oid::regprocedure AS of_somebody_else FROM pg_temp.functions AS f, pg_extension AS e
WHERE e.extname = 'outbox' AND f.proowner <> e.extowner ORDER BY 1;
SELECT c.oid::regclass AS of_somebody_else FROM pg_class AS c, pg_extension AS e
WHERE e.extname = 'outbox' AND c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND c.relowner <> e.extowner ORDER BY 1;

-- What pg_monitor may do
SELECT oid::regprocedure AS monitor FROM pg_temp.functions AS f, aclexplode(f.proacl) AS a WHERE a.grantee = 'pg_monitor'::regrole ORDER BY f.proname COLLATE "C", f.pronargs;
SELECT c.oid::regclass AS monitor, a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a
WHERE c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace) AND a.grantee = 'pg_monitor'::regrole ORDER BY c.relname COLLATE "C", 2;
