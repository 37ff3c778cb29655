-- The attempts that failed and the dead letters that were redriven, for outbox.story(). They are a table of their own
-- and not a column, so that an event without a failure costs nothing.
-- Eight fixed tables, one per day in turn, of which tomorrow's is emptied as a whole: no partition can be missing
-- when a failure is recorded, and a dump has none of it.

CREATE TABLE IF NOT EXISTS outbox_internal.failed_attempts (
  day smallint NOT NULL,
  event_id uuid NOT NULL,
  position bigint NOT NULL,
  sink text COLLATE "C" NOT NULL,
  attempt integer,
  started_at timestamptz,
  ended_at timestamptz NOT NULL,
  worker integer,
  error text NOT NULL,
  redriven_by text,
  key_hash bigint,
  blocks_until timestamptz
) PARTITION BY LIST (day);
COMMENT ON TABLE outbox_internal.failed_attempts IS
  'Attempts that failed in the last six days, for outbox.story(): the worker and outbox.nack() write it. A redrive '
  'adds a row with what is known of the dead letter.';
COMMENT ON COLUMN outbox_internal.failed_attempts.day IS
  'The number of the UTC day in which the attempt ended, modulo 8.';
COMMENT ON COLUMN outbox_internal.failed_attempts.event_id IS 'The event.';
COMMENT ON COLUMN outbox_internal.failed_attempts.position IS 'The event''s position.';
COMMENT ON COLUMN outbox_internal.failed_attempts.sink IS 'The sink, by the name that it had.';
COMMENT ON COLUMN outbox_internal.failed_attempts.attempt IS
  'The number of the attempt. NULL: no attempt was spent. Of a redrive: how many the dead letter had.';
COMMENT ON COLUMN outbox_internal.failed_attempts.started_at IS
  'When the event was handed to the sink. NULL: a program claimed it. Of a redrive: since when the event was a dead '
  'letter.';
COMMENT ON COLUMN outbox_internal.failed_attempts.ended_at IS 'When the failure was reported, or the redrive.';
COMMENT ON COLUMN outbox_internal.failed_attempts.worker IS 'The number of the worker. NULL: outbox.nack() said so.';
COMMENT ON COLUMN outbox_internal.failed_attempts.error IS 'The first 1000 characters of the error.';
COMMENT ON COLUMN outbox_internal.failed_attempts.redriven_by IS
  'The role that made the dead letter pending again. NULL: the row is a failed attempt.';
COMMENT ON COLUMN outbox_internal.failed_attempts.key_hash IS
  'The hash of the key that the event then blocked. NULL: it blocked none.';
COMMENT ON COLUMN outbox_internal.failed_attempts.blocks_until IS
  'Until when at least it blocked later events of the key: its next attempt, or the redrive of a dead letter.';
CREATE INDEX IF NOT EXISTS failed_attempts_event ON outbox_internal.failed_attempts (event_id);
CREATE INDEX IF NOT EXISTS failed_attempts_key ON outbox_internal.failed_attempts (sink, key_hash, position)
  WHERE key_hash IS NOT NULL;
DO $$
BEGIN
  FOR day IN 0..7 LOOP
    EXECUTE format('CREATE TABLE IF NOT EXISTS outbox_internal.failed_attempts_%1$s '
                   'PARTITION OF outbox_internal.failed_attempts FOR VALUES IN (%1$s); '
                   'COMMENT ON TABLE outbox_internal.failed_attempts_%1$s IS '
                   '''Failed attempts of one day in eight.''', day);
  END LOOP;
END
$$;

-- These functions are in plpgsql, which keeps their plans: an UPDATE may redrive many dead letters.
CREATE OR REPLACE FUNCTION outbox_internal.failure_day(at timestamptz) RETURNS smallint
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$ BEGIN RETURN floor(date_part('epoch', at) / 86400)::bigint % 8; END $$;
COMMENT ON FUNCTION outbox_internal.failure_day(timestamptz) IS
  'The day of outbox_internal.failed_attempts to which a time belongs.';

CREATE OR REPLACE FUNCTION outbox_internal.has_room_for_failures(
  day integer DEFAULT outbox_internal.failure_day(clock_timestamp())
) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN pg_total_relation_size(format('outbox_internal.failed_attempts_%s', has_room_for_failures.day)) < 1073741824;
END
$$;
COMMENT ON FUNCTION outbox_internal.has_room_for_failures(integer) IS
  'Whether the failed attempts of a day, today by default, take less than a gigabyte, with their indexes and long '
  'errors. Above that no more are kept, so that a storm of failures cannot fill the disk.';

-- Rows are only added, so the last pages of a table hold the last rows.
CREATE OR REPLACE FUNCTION outbox_internal.full_failure_days() RETURNS TABLE (since timestamptz)
LANGUAGE plpgsql STABLE PARALLEL SAFE ROWS 1 SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  part text;
BEGIN
  FOR day IN 0..7 LOOP
    CONTINUE WHEN outbox_internal.has_room_for_failures(day);
    part := format('outbox_internal.failed_attempts_%s', day);
    EXECUTE format(
      'SELECT max(ended_at) FROM %s WHERE ctid >= %L', part,
      format('(%s,0)', greatest(pg_relation_size(part) / current_setting('block_size')::bigint - 100, 0)))
    INTO since;
    RETURN NEXT;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox_internal.full_failure_days() IS
  'The days whose failed attempts are not all kept, because they take a gigabyte: when the last one that is kept '
  'ended.';

CREATE OR REPLACE FUNCTION outbox_internal.keep_redrive(
  event_id uuid, at_position bigint, sink text, attempts integer, dead_since timestamptz, error text,
  partition_key text
) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  now timestamptz := clock_timestamp();
  blocked bigint := (
    SELECT hashtextextended(keep_redrive.partition_key, 0) FROM pg_foreign_server AS s
    WHERE s.srvname = keep_redrive.sink AND 'on_dead_letter=block' = ANY (s.srvoptions));
BEGIN
  IF keep_redrive.sink IS NULL OR NOT outbox_internal.has_room_for_failures() THEN
    RETURN;
  END IF;
  INSERT INTO outbox_internal.failed_attempts
    (day, event_id, position, sink, attempt, started_at, ended_at, error, redriven_by, key_hash, blocks_until)
  VALUES (outbox_internal.failure_day(now), keep_redrive.event_id, keep_redrive.at_position, keep_redrive.sink,
          keep_redrive.attempts, keep_redrive.dead_since, now, coalesce(left(keep_redrive.error, 1000), ''),
          coalesce(nullif(current_setting('role'), 'none'), session_user), blocked,
          CASE WHEN blocked IS NOT NULL THEN now END);
END
$$;
COMMENT ON FUNCTION outbox_internal.keep_redrive(uuid, bigint, text, integer, timestamptz, text, text) IS
  'Keeps for outbox.story() that the role of the session has made a dead letter pending again. outbox.redrive() '
  'calls it, and the trigger on UPDATE of outbox.events.';

-- The first row of a table tells whether it still has the failures of a week ago. Each table is emptied the day
-- before its turn, or later if no worker ran.
CREATE OR REPLACE FUNCTION outbox_internal.expire_failures() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  part text;
  oldest timestamptz;
BEGIN
  FOR n IN 0..1 LOOP
    part := format('outbox_internal.failed_attempts_%s',
                   outbox_internal.failure_day(clock_timestamp() + n * interval '1 day'));
    EXECUTE format('SELECT ended_at FROM %s LIMIT 1', part) INTO oldest;
    IF oldest < clock_timestamp() - interval '2 days' THEN
      EXECUTE format('TRUNCATE %s', part);
    END IF;
  END LOOP;
EXCEPTION WHEN lock_not_available THEN
  NULL; -- a session is reading it: the next run tries again
END
$$;
COMMENT ON FUNCTION outbox_internal.expire_failures() IS
  'Part of outbox.run_maintenance(): empties the tables of today''s and tomorrow''s failed attempts, if they have '
  'those of a week ago.';

CREATE OR REPLACE FUNCTION outbox_internal.error_text(error text) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_error_text';
COMMENT ON FUNCTION outbox_internal.error_text(text) IS
  'The text as last_error keeps it: of more than 8192 bytes, the beginning, marked with [cut].';

-- Not an UPDATE of status: one concurrent move to another partition makes the SKIP LOCKED of all other sessions fail.
CREATE OR REPLACE FUNCTION outbox_internal.move_to_failed(
  event bigint, attempts integer, error text, failed_at timestamptz, overtaken_by bigint
) RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  WITH gone AS (DELETE FROM outbox.events_pending AS e WHERE e.position = event RETURNING e.*)
  INSERT INTO outbox.events (
    id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers,
    partition_key, dedup_key, seq, created_at, available_at, position, sink, xact, origin, application,
    overtaken_by, attempts, last_error, last_attempt_at, status)
  SELECT
    g.id, g.aggregate_type, g.aggregate_id, g.event_type, g.payload, g.payload_bytes, g.content_type, g.headers,
    g.partition_key, g.dedup_key, g.seq, g.created_at, g.available_at, g.position, g.sink, g.xact, g.origin,
    g.application, move_to_failed.overtaken_by, move_to_failed.attempts, outbox_internal.error_text(error), failed_at,
    'FAILED'
  FROM gone AS g
$$;
COMMENT ON FUNCTION outbox_internal.move_to_failed(bigint, integer, text, timestamptz, bigint) IS
  'Part of outbox.nack() and of routing: makes a pending event a dead letter.';
