-- Dead letters are made pending again. A SELECT over many calls redrive() once per event: one that cannot be redriven
-- must not stop the others, so the function says why in a warning and returns false.

CREATE OR REPLACE FUNCTION outbox_internal.notice_old_timestamps(server oid) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_notice_old_timestamps';
COMMENT ON FUNCTION outbox_internal.notice_old_timestamps(oid) IS
  'Part of outbox.redrive(): says once per statement that the sink''s destination may drop events for their times.';

CREATE OR REPLACE FUNCTION outbox.redrive(id uuid, sink text DEFAULT NULL, force boolean DEFAULT false)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  letter record;
  other record;
  sent integer := 0;
  refused integer := 0;
  late boolean := coalesce(redrive.force, false);
BEGIN
  LOCK TABLE outbox.events_pending IN ROW SHARE MODE; -- its sink is not renamed meanwhile
  FOR letter IN
    SELECT f.position, f.sink, f.overtaken_by, f.attempts, f.last_attempt_at, left(f.last_error, 1000) AS error,
           f.partition_key, n.server, coalesce(n.ordered, true) AS ordered
    FROM outbox.events_failed AS f LEFT JOIN outbox_internal.sink_names AS n ON n.name = f.sink
    WHERE f.id = redrive.id AND (redrive.sink IS NULL OR f.sink = redrive.sink)
    ORDER BY f.position + 0 FOR UPDATE OF f -- not by the index on the position
  LOOP
    IF letter.sink IS NOT NULL AND letter.server IS NULL THEN
      RAISE WARNING 'event % was not redriven: its sink "%" does not exist', redrive.id, letter.sink
        USING ERRCODE = 'undefined_object', DETAIL = 'It stays a dead letter.',
        HINT = 'Create the sink again, or set the column sink of the dead letter to another one.';
    ELSIF EXISTS (SELECT FROM outbox.events_pending AS p
                  WHERE p.id = redrive.id AND p.sink IS NOT DISTINCT FROM letter.sink) THEN
      RAISE WARNING 'event % was not redriven: another one with its id is pending', redrive.id
        USING ERRCODE = 'unique_violation', DETAIL = format('It was enqueued again for the sink "%s".', letter.sink),
        HINT = format('Redrive it when that one is delivered, or delete it: '
                      'DELETE FROM outbox.events WHERE position = %s;', letter.position);
    ELSIF letter.overtaken_by IS NOT NULL AND letter.ordered AND NOT late THEN
      RAISE WARNING 'event % was not redriven: later events of its key have been delivered', redrive.id
        USING ERRCODE = 'object_not_in_prerequisite_state',
        DETAIL = format('It has position %s for the sink "%s"; the first later one that was delivered has %s.',
                        letter.position, letter.sink, letter.overtaken_by),
        HINT = format('To send it late: SELECT outbox.redrive(%L, %L, force => true);', redrive.id, letter.sink);
    ELSE
      -- DELETE and INSERT, as the worker moves rows: an UPDATE of status would make its SKIP LOCKED fail.
      WITH gone AS (DELETE FROM outbox.events_failed AS f WHERE f.position = letter.position RETURNING f.*)
      INSERT INTO outbox.events (
        id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers,
        partition_key, dedup_key, seq, created_at, position, sink, origin, application, last_error,
        overtaken_by, redrive_late, status)
      SELECT
        g.id, g.aggregate_type, g.aggregate_id, g.event_type, g.payload, g.payload_bytes, g.content_type, g.headers,
        g.partition_key, g.dedup_key, g.seq, g.created_at, g.position, g.sink, g.origin, g.application, g.last_error,
        CASE WHEN letter.ordered THEN g.overtaken_by END, late, 'PENDING'
      FROM gone AS g;
      PERFORM outbox_internal.keep_redrive(redrive.id, letter.position, letter.sink, letter.attempts,
                                           letter.last_attempt_at, letter.error, letter.partition_key);
      PERFORM outbox_internal.notice_old_timestamps(letter.server);
      sent := sent + 1;
      CONTINUE;
    END IF;
    refused := refused + 1;
  END LOOP;
  IF sent + refused > 0 OR redrive.id IS NULL THEN
    RETURN refused = 0 AND sent > 0;
  END IF;

  SELECT p.sink, p.attempts INTO other FROM outbox.events_pending AS p
  WHERE p.id = redrive.id AND (redrive.sink IS NULL OR p.sink = redrive.sink) LIMIT 1;
  IF FOUND THEN
    RAISE WARNING 'event % is not a dead letter', redrive.id
      USING ERRCODE = 'object_not_in_prerequisite_state',
      DETAIL = format('It is pending for the sink "%s", with %s.', other.sink,
                      outbox_internal.counted(other.attempts, 'failed attempt', 'failed attempts')),
      HINT = format('To have it tried at once: UPDATE outbox.events SET available_at = now() '
                    'WHERE id = %L AND status = ''PENDING'';', redrive.id);
  ELSE
    RAISE WARNING 'there is no dead letter %', redrive.id
      USING ERRCODE = 'no_data_found',
      DETAIL = CASE WHEN redrive.sink IS NULL THEN 'It was delivered, deleted or never enqueued.'
               ELSE format('For the sink "%s" it was delivered, deleted or never enqueued.', redrive.sink) END,
      HINT = format('SELECT sink, status, sent_at, last_error FROM outbox.events WHERE id = %L;', redrive.id);
  END IF;
  RETURN false;
END
$$;
COMMENT ON FUNCTION outbox.redrive(uuid, text, boolean) IS
  'Puts a dead letter back into its place in the order of its key, before unsent later events, with attempts 0; '
  'without a sink, for all sinks in which it is a dead letter. Returns true if it was put back; false, with a '
  'warning, if later events have been delivered, or the event is no dead letter. With force it is then sent late, '
  'and outbox.sinks counts it. If a later event that is in flight arrives first, it becomes a dead letter again. '
  'Many: SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED''.';
