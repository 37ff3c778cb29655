-- Delivered events are sent again: to a consumer that lost them, or to a sink that was created later.

CREATE OR REPLACE FUNCTION outbox_internal.matches_globs(value text, globs text) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_matches_globs';
COMMENT ON FUNCTION outbox_internal.matches_globs(text, text) IS
  'Whether a text matches one of a comma-separated list of globs, such as ''order.*, customer.created'', as in the '
  'options events and aggregates of a sink.';

CREATE OR REPLACE FUNCTION outbox_internal.route_refusal(
  sink text, aggregate_type text, event_type text, headers jsonb
) RETURNS text
LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_route_refusal';
COMMENT ON FUNCTION outbox_internal.route_refusal(text, text, text, jsonb) IS
  'Part of outbox.replay() and outbox.story(): the name of an option by which the sink does not take such an event. '
  'NULL: it takes it. Empty: there is no such sink any more.';

CREATE OR REPLACE FUNCTION outbox_internal.replay_time(given text) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN given::timestamptz;
EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow THEN
  BEGIN
    RETURN now() - given::interval;
  EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
    RAISE EXCEPTION 'neither a time nor an interval: "%"', given USING ERRCODE = 'invalid_datetime_format',
      HINT = 'Such as ''2026-01-31 12:00'', or ''2 hours'' for two hours ago.';
  END;
END
$$;
COMMENT ON FUNCTION outbox_internal.replay_time(text) IS
  'Part of outbox.replay(): a time from its text, or from an interval counted back from now.';

-- The times are anycompatible: the parser then takes times and intervals as they are, and literals and parameters
-- without a type for text.
CREATE OR REPLACE FUNCTION outbox.replay(
  sink text, since anycompatible DEFAULT NULL, until anycompatible DEFAULT NULL, events text DEFAULT '*',
  event uuid DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_replay';
COMMENT ON FUNCTION outbox.replay(text, anycompatible, anycompatible, text, uuid) IS
  'Sends delivered events again, with their ids: those that were delivered from since to before until (by default '
  'now) and are still kept (outbox.retention), also those of other sinks that this one takes by its options. Both '
  'are times, or intervals counted back from now: outbox.replay(''main'', ''2 hours''). events selects by event '
  'type, with globs. They are sent in their old order, after pending events; those that are pending or dead letters '
  'for the sink are left out. Returns their number. With event instead of since, it sends this one event, whichever '
  'sink delivered it: outbox.replay(''main'', event => id); 0, with a warning, if it cannot. Needs USAGE on the '
  'foreign server.';
