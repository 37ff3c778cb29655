-- What everybody may run, and with whose names and rights.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
CREATE EXTENSION IF NOT EXISTS outbox_manual;
RESET client_min_messages;

CREATE VIEW pg_temp.functions AS SELECT p.* FROM pg_proc AS p WHERE p.pronamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace);

-- There is something to look at, also of those that run with their owner's rights.
SELECT count(*) > 20 AS functions, count(*) FILTER (WHERE prosecdef) > 3 AS definers FROM pg_temp.functions;

-- PUBLIC may call the functions that enqueue, which check the right on outbox.events, and nothing else
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

-- The right to look is not the right to publish: a member of pg_monitor may not enqueue, in no way and nothing.
-- Each statement must fail for the right alone: it succeeds with the grant below.
CREATE SERVER regress_sink FOREIGN DATA WRAPPER outbox_manual OPTIONS (events '*');
SELECT outbox.create_view('public.regress_seen', '{"aggregate_type": "aggregate_type", "event_type": "event_type"}');
SELECT outbox.create_view('public.regress_written', '{"type": "event_type", "due": "available_at"}', aggregate_type => 'Order');
CREATE ROLE regress_outbox_monitor IN ROLE pg_monitor;
CREATE ROLE regress_outbox_publisher;
GRANT INSERT, SELECT ON regress_seen, regress_written TO regress_outbox_monitor, regress_outbox_publisher;
CREATE FUNCTION pg_temp.publish() RETURNS TABLE (statement text, outcome text) LANGUAGE plpgsql AS $$
BEGIN
  FOR statement IN SELECT unnest(ARRAY[
    $q$SELECT outbox.enqueue('Order', '1', 'order.paid', '{}')$q$,
    $q$SELECT outbox.enqueue('Order', 1, 'order.paid', '{}'::json)$q$,
    $q$SELECT outbox.enqueue('Sink', 'crm', 'outbox.sink.failing', '{}'::jsonb)$q$,
    $q$SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'known')$q$,
    $q$SELECT outbox.enqueue_bytes('Order', '1', 'order.paid', '\x00', 'application/avro')$q$,
    $q$INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'order.paid')$q$,
    $q$INSERT INTO regress_seen VALUES ('Order', 'order.paid')$q$,
    $q$INSERT INTO regress_written VALUES ('order.paid')$q$]) LOOP
    BEGIN
      EXECUTE statement;
      outcome := 'accepted';
    EXCEPTION WHEN OTHERS THEN
      outcome := SQLSTATE || ' ' || SQLERRM;
    END;
    RETURN NEXT;
  END LOOP;
END $$;
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}', dedup_key => 'known') IS NOT NULL AS enqueued;
SET ROLE regress_outbox_monitor;
SELECT * FROM pg_temp.publish();
SELECT outbox.enqueue('Order', '1', 'order.paid', '{}');
SELECT outbox.replay('regress_sink', '1 hour');
RESET ROLE;
SELECT count(*) AS events FROM outbox.events;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_publisher;
GRANT INSERT, SELECT (id, position) ON outbox.events TO regress_outbox_publisher;
SET ROLE regress_outbox_publisher;
SELECT * FROM pg_temp.publish();
RESET ROLE;
-- An application's own function may enqueue for its callers
CREATE FUNCTION pg_temp.pay() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$SELECT outbox.enqueue('Order', '1', 'order.paid', '{}') IS NOT NULL$$;
ALTER FUNCTION pg_temp.pay() OWNER TO regress_outbox_publisher;
SET ROLE regress_outbox_monitor;
SELECT pg_temp.pay();
RESET ROLE;

SET client_min_messages = warning;
DROP VIEW regress_seen, regress_written;
DROP FUNCTION regress_written_write;
DROP SERVER regress_sink CASCADE;
DELETE FROM outbox.events;
DROP OWNED BY regress_outbox_monitor, regress_outbox_publisher;
DROP ROLE regress_outbox_monitor, regress_outbox_publisher;
