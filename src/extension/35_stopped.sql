-- Sinks that were stopped for good: by a user, by a 410, by failing for too long. Their events wait until
-- outbox.resume().

CREATE TABLE IF NOT EXISTS outbox.stopped_sinks (
  sink text COLLATE "C",
  state text NOT NULL,
  reason text,
  error text,
  since timestamptz NOT NULL DEFAULT pg_catalog.now(),
  stopped_by text,
  CONSTRAINT stopped_sinks_pkey PRIMARY KEY (sink),
  CONSTRAINT stopped_sinks_state_check CHECK (state IN ('paused', 'disabled'))
);
COMMENT ON TABLE outbox.stopped_sinks IS
  'Sinks that deliver nothing until outbox.resume(): one row per paused or disabled sink. outbox.pause() and the '
  'worker write it.';
COMMENT ON COLUMN outbox.stopped_sinks.sink IS 'The foreign server.';
COMMENT ON COLUMN outbox.stopped_sinks.state IS 'paused (by outbox.pause()) or disabled (by the worker).';
COMMENT ON COLUMN outbox.stopped_sinks.reason IS
  'Why the sink was disabled: 410 (the endpoint''s answer) or disable_after (it failed for that time).';
COMMENT ON COLUMN outbox.stopped_sinks.error IS 'The last error before the sink was disabled.';
COMMENT ON COLUMN outbox.stopped_sinks.since IS 'When the sink was stopped.';
COMMENT ON COLUMN outbox.stopped_sinks.stopped_by IS 'The role that paused the sink; NULL if the worker disabled it.';

CREATE TABLE IF NOT EXISTS outbox_internal.failing_sinks (
  sink text COLLATE "C" PRIMARY KEY,
  failed_for interval NOT NULL,
  last_failed_at timestamptz NOT NULL
);
COMMENT ON TABLE outbox_internal.failing_sinks IS
  'How long sinks have been failing without a success, so that disable_after survives a restart. The worker writes '
  'it from time to time.';
COMMENT ON COLUMN outbox_internal.failing_sinks.sink IS 'The foreign server.';
COMMENT ON COLUMN outbox_internal.failing_sinks.failed_for IS 'How long all tries have failed.';
COMMENT ON COLUMN outbox_internal.failing_sinks.last_failed_at IS 'When the last try failed.';

CREATE TABLE IF NOT EXISTS outbox_internal.dropped_sinks (
  name text COLLATE "C" PRIMARY KEY,
  kind text NOT NULL,
  options text[] NOT NULL,
  dropped_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  dropped_by text NOT NULL
);
COMMENT ON TABLE outbox_internal.dropped_sinks IS
  'The 100 sinks that were dropped last, and not created again: outbox.doctor() and outbox.story() tell of them.';
COMMENT ON COLUMN outbox_internal.dropped_sinks.name IS 'The foreign server.';
COMMENT ON COLUMN outbox_internal.dropped_sinks.kind IS 'The kind of sink, such as webhook.';
COMMENT ON COLUMN outbox_internal.dropped_sinks.options IS
  'The options that chose its events: events, aggregates and match, as name=value.';
COMMENT ON COLUMN outbox_internal.dropped_sinks.dropped_at IS 'When it was dropped.';
COMMENT ON COLUMN outbox_internal.dropped_sinks.dropped_by IS 'The role that dropped it.';

CREATE OR REPLACE FUNCTION outbox_internal.dropped_sink_takes(
  options text[], aggregate_type text, event_type text, headers jsonb
) RETURNS boolean
LANGUAGE c STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_dropped_sink_takes';
COMMENT ON FUNCTION outbox_internal.dropped_sink_takes(text[], text, text, jsonb) IS
  'Part of outbox.doctor() and outbox.story(): whether a sink with these options would take such an event.';

CREATE OR REPLACE FUNCTION outbox_internal.dropped_sink(name text) RETURNS text
LANGUAGE sql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
  SELECT format('of kind %s%s, dropped at %s by role "%s"',
                d.kind,
                (SELECT ', with ' || string_agg(format('%s %L', o.option_name, o.option_value), ', '
                                                ORDER BY o.option_name)
                 FROM pg_options_to_table(d.options) AS o),
                date_trunc('second', d.dropped_at), d.dropped_by)
  FROM outbox_internal.dropped_sinks AS d WHERE d.name = dropped_sink.name COLLATE "C"
$$;
COMMENT ON FUNCTION outbox_internal.dropped_sink(text) IS
  'Part of outbox.doctor(): describes a dropped sink. NULL if it is not known.';

SELECT pg_catalog.pg_extension_config_dump('outbox.stopped_sinks', '');

CREATE OR REPLACE FUNCTION outbox_internal.stopped_sinks_changed() RETURNS trigger LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_stopped_sinks_changed';
COMMENT ON FUNCTION outbox_internal.stopped_sinks_changed() IS
  'Tells the workers at commit that a sink was stopped or resumed.';
CREATE OR REPLACE TRIGGER tell_workers AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON outbox.stopped_sinks
  FOR EACH STATEMENT EXECUTE FUNCTION outbox_internal.stopped_sinks_changed();
ALTER TABLE outbox.stopped_sinks ENABLE ALWAYS TRIGGER tell_workers;

CREATE OR REPLACE FUNCTION outbox_internal.require_sink(sink text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  known text := (SELECT string_agg(quote_literal(n.name), ', ' ORDER BY n.name) FROM outbox_internal.sink_names AS n);
BEGIN
  IF require_sink.sink IS NULL THEN
    RAISE EXCEPTION 'the name of a sink must not be null'
      USING ERRCODE = 'null_value_not_allowed', HINT = 'SELECT name, state FROM outbox.sinks;';
  ELSIF NOT EXISTS (SELECT FROM outbox_internal.sink_names AS n WHERE n.name = require_sink.sink) THEN
    RAISE EXCEPTION 'sink "%" does not exist', require_sink.sink
      USING ERRCODE = 'undefined_object',
      HINT = CASE WHEN known IS NULL THEN 'There is no sink yet: CREATE SERVER makes one.'
             ELSE format('The sinks are: %s.', known) END;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.require_sink(text) IS 'Raises an error if there is no such sink.';

-- In a SECURITY DEFINER function current_user is the extension's owner.
CREATE OR REPLACE FUNCTION outbox.pause(sink text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  LOCK TABLE outbox.events_pending IN ROW SHARE MODE; -- the sink is not renamed meanwhile
  PERFORM outbox_internal.require_sink(pause.sink);
  INSERT INTO outbox.stopped_sinks AS s (sink, state, stopped_by)
  VALUES (pause.sink, 'paused', coalesce(nullif(current_setting('role'), 'none'), session_user))
  ON CONFLICT ON CONSTRAINT stopped_sinks_pkey DO UPDATE
    SET state = 'paused', reason = NULL, error = NULL, since = now(), stopped_by = EXCLUDED.stopped_by
    WHERE s.state <> 'paused';
  IF NOT FOUND THEN
    RAISE NOTICE 'sink "%" is paused already', pause.sink;
    RETURN false;
  END IF;
  DELETE FROM outbox_internal.failing_sinks AS f WHERE f.sink = pause.sink;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox.pause(text) IS
  'Stops a sink until outbox.resume(): for all workers, when the transaction commits, also after a restart. Events '
  'in flight end normally, and no attempt is spent. Returns false, with a notice, if the sink was paused already. '
  'GRANT EXECUTE is enough.';

CREATE OR REPLACE FUNCTION outbox_internal.end_pause(server oid) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_end_pause';
COMMENT ON FUNCTION outbox_internal.end_pause(oid) IS
  'Part of outbox.resume(): ends a pause for which the endpoint has asked, when the workers learn at commit of a '
  'change of outbox.stopped_sinks. Returns false if there is none.';

CREATE OR REPLACE FUNCTION outbox_internal.forget_crashes(server oid) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_forget_crashes';
COMMENT ON FUNCTION outbox_internal.forget_crashes(oid) IS
  'Part of outbox.resume(): lets the workers open a sink again, within ten seconds, that crashed them. '
  'Returns false if it did not.';

CREATE OR REPLACE FUNCTION outbox.resume(sink text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  was text;
  server oid;
BEGIN
  LOCK TABLE outbox.events_pending IN ROW SHARE MODE; -- the sink is not renamed meanwhile
  PERFORM outbox_internal.require_sink(resume.sink);
  server := (SELECT s.oid FROM pg_foreign_server AS s WHERE s.srvname = resume.sink);
  DELETE FROM outbox.stopped_sinks AS s WHERE s.sink = resume.sink RETURNING s.state INTO was;
  IF was IS NULL AND (outbox_internal.end_pause(server) OR outbox_internal.forget_crashes(server)) THEN
    RETURN true; -- the DELETE tells the workers, even if it deletes no row
  ELSIF was IS NULL THEN
    RAISE NOTICE 'sink "%" is neither paused nor disabled', resume.sink
      USING HINT = 'What it does and why: SELECT name, state, last_error FROM outbox.sinks;';
    RETURN false;
  END IF;
  PERFORM outbox_internal.forget_crashes(server);
  DELETE FROM outbox_internal.failing_sinks AS f WHERE f.sink = resume.sink;
  IF was = 'disabled' THEN -- failed events are due at once: the endpoint was at fault
    UPDATE outbox.events AS e SET available_at = now()
    WHERE e.status = 'PENDING' AND e.position = ANY (ARRAY(
      SELECT p.position FROM outbox.events_pending AS p
      WHERE p.available_at > now() AND p.last_attempt_at IS NOT NULL AND p.blocked_by IS NULL
        AND p.sink = resume.sink
      FOR UPDATE SKIP LOCKED));
  END IF;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox.resume(text) IS
  'Resumes a sink that was paused or disabled, when the transaction commits: its events are sent in order, slowly '
  'at first. If it was disabled, failed events are due at once. It also ends a pause for which the endpoint has '
  'asked, tries the events that wait for its end, and lets the workers open a sink again that crashed them. Returns '
  'false, with a notice, if the sink was neither paused nor disabled. GRANT EXECUTE is enough.';
