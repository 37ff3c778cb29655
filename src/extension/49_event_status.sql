-- The state of an event, for the application that enqueued it and has no right on the tables. It knows the id, which
-- other roles cannot guess.

CREATE OR REPLACE FUNCTION outbox.event_status(
  id uuid, OUT sink text, OUT status text, OUT attempts integer, OUT available_at timestamptz, OUT last_error text)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT p.sink, 'PENDING', p.attempts,
         CASE WHEN p.origin = (SELECT l.origin FROM outbox_internal.library() AS l) THEN p.available_at END,
         p.last_error
  FROM outbox.events_pending AS p WHERE p.id = event_status.id
  UNION ALL
  SELECT f.sink, 'FAILED', f.attempts, NULL, f.last_error FROM outbox.events_failed AS f WHERE f.id = event_status.id
  ORDER BY 1
$$;
COMMENT ON FUNCTION outbox.event_status(uuid) IS
  'Shows where an event has not been delivered yet: one row for each such sink, PENDING or FAILED (a dead letter). '
  'sink NULL: no sink takes it yet. available_at NULL: it has no time, or waits for outbox.adopt(). No row: the '
  'event was delivered, rolled back, deleted, or never enqueued. EXECUTE and the id are enough.';
