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

CREATE OR REPLACE FUNCTION outbox.replay(
  sink text, since timestamptz, until timestamptz DEFAULT now(), events text DEFAULT '*'
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_replay';
COMMENT ON FUNCTION outbox.replay(text, timestamptz, timestamptz, text) IS
  'Sends delivered events again, with their ids: those that were delivered from since to before until and are still '
  'kept (outbox.retention). Returns their number. It includes events that this sink delivered, and events that only '
  'other sinks delivered and that this one takes by its options; so a sink that was created later gets the events '
  'that it missed. events selects by event type, with globs as in a sink''s option. The events are sent in their '
  'old order, as if they were enqueued now, after pending events. Events that are pending or dead letters for the '
  'sink are left out. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.replay(sink text, since interval, events text DEFAULT '*') RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT outbox.replay(sink, now() - since, now(), events) $$;
COMMENT ON FUNCTION outbox.replay(text, interval, text) IS
  'Sends events again that were delivered within this interval up to now: the same as since => now() - the interval.';

-- The parser takes this function for literals and parameters without a type, such as '2 hours' and '2026-01-01'.
CREATE OR REPLACE FUNCTION outbox.replay(sink text, since text, until text DEFAULT 'now', events text DEFAULT '*')
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  given text[] := ARRAY[since, until];
  times timestamptz[];
BEGIN
  FOR i IN 1..2 LOOP
    BEGIN
      times[i] := CASE WHEN given[i] = 'now' THEN now() ELSE given[i]::timestamptz END;
    EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow THEN
      BEGIN
        times[i] := now() - given[i]::interval;
      EXCEPTION WHEN invalid_datetime_format OR datetime_field_overflow OR interval_field_overflow THEN
        RAISE EXCEPTION 'neither a time nor an interval: "%"', given[i] USING ERRCODE = 'invalid_datetime_format',
          HINT = 'Such as ''2026-01-31 12:00'', or ''2 hours'' for two hours ago.';
      END;
    END;
  END LOOP;
  RETURN outbox.replay(sink, times[1], times[2], events);
END
$$;
COMMENT ON FUNCTION outbox.replay(text, text, text, text) IS
  'The same with since and until as text: each is a time, or an interval counted back from now: '
  'outbox.replay(''main'', ''2 hours'').';

CREATE OR REPLACE FUNCTION outbox.resend(id uuid, sink text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_resend';
COMMENT ON FUNCTION outbox.resend(uuid, text) IS
  'Sends a delivered event that is still kept (outbox.retention) once more to this sink, with its id, after pending '
  'events. Returns true if it is sent; if it is pending, a dead letter or not kept, it returns false with a '
  'warning. Many: SELECT outbox.resend(id, sink) FROM outbox.events WHERE status = ''SENT''. Needs USAGE on the '
  'foreign server.';
