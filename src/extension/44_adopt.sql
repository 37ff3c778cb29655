-- After a restore, a copy or an upgrade into another cluster, a user tells this database to deliver its events.
-- It rewrites each row: 17 to 22 us of CPU, 17 s for a million, half of it for index entries. To note an adopted
-- origin once would be cheap, but events that are restored or replicated later would be delivered unasked. Only the
-- rows are locked.

CREATE OR REPLACE FUNCTION outbox_internal.reread_settings() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_reread_settings';
COMMENT ON FUNCTION outbox_internal.reread_settings() IS
  'Part of outbox.adopt(): reads the configuration files in this session, which the server may not have told of a '
  'reload yet.';

CREATE OR REPLACE FUNCTION outbox.adopt() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here bigint;
  adopted bigint;
  of_events name;
BEGIN
  -- ALTER SYSTEM and pg_reload_conf() may have set outbox.cluster_name just before.
  PERFORM outbox_internal.reread_settings();
  here := (SELECT l.origin FROM outbox_internal.library() AS l);
  -- Two calls take turns: each would wait for rows that the other one has locked.
  PERFORM pg_advisory_xact_lock('outbox.events'::regclass::oid::integer, 0);
  UPDATE outbox.events SET origin = here WHERE status = 'PENDING' AND origin <> here;
  GET DIAGNOSTICS adopted = ROW_COUNT;
  UPDATE outbox.events SET origin = here WHERE status = 'FAILED' AND origin <> here;
  WHILE outbox_internal.route_waiting() > 0 LOOP
  END LOOP; -- the worker would send later events of their keys before it has routed these
  -- pg_restore --disable-triggers enables them again, but not ALWAYS: they would not see the rows of a subscription.
  FOR of_events IN
    SELECT DISTINCT t.tgname FROM pg_trigger AS t JOIN pg_partition_tree('outbox.events') AS p ON p.relid = t.tgrelid
    JOIN pg_proc AS f ON f.oid = t.tgfoid AND f.pronamespace = 'outbox_internal'::regnamespace
    WHERE t.tgenabled = 'O'
  LOOP
    EXECUTE format('ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER %I', of_events);
  END LOOP;
  RETURN adopted;
END
$$;
COMMENT ON FUNCTION outbox.adopt() IS
  'Lets this database deliver events that were enqueued elsewhere: after a restore, a copy or an upgrade into '
  'another cluster. Until then they wait. A new outbox.cluster_name counts as soon as it stands in the '
  'configuration files. Returns the number of adopted pending events.';
