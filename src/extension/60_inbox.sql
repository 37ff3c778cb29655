-- The consumer's side: the events that it has processed, so that it recognises a duplicate.
-- processed_events is partitioned by the id's own time, so that partitions of a day and of an hour can stand side by
-- side when the retention changes, and an id always meets itself. mark_processed() takes 25 us, a plain INSERT ... ON
-- CONFLICT DO NOTHING 15.

CREATE TABLE IF NOT EXISTS outbox.processed_events (
  event_id uuid NOT NULL,
  handler text COLLATE "C" NOT NULL,
  id_time timestamptz NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
) PARTITION BY RANGE (id_time);
COMMENT ON TABLE outbox.processed_events IS
  'Events that handlers of this database have processed, written by outbox.mark_processed(). One partition per day '
  'of their ids (UTC), per hour if outbox.processed_retention is below 2d; dropped as a whole.';
COMMENT ON COLUMN outbox.processed_events.event_id IS 'The event.';
COMMENT ON COLUMN outbox.processed_events.handler IS
  'The name of the handler that processed it; an event may have several.';
COMMENT ON COLUMN outbox.processed_events.id_time IS
  'The time in a UUIDv7, by which the same id always belongs to the same partition; infinity for ids of other '
  'versions.';
COMMENT ON COLUMN outbox.processed_events.processed_at IS
  'When it was processed: the start of the consumer''s transaction.';

CREATE TABLE IF NOT EXISTS outbox.processed_events_other PARTITION OF outbox.processed_events (
  PRIMARY KEY (event_id, handler, id_time)
) FOR VALUES FROM ('infinity') TO (MAXVALUE);
COMMENT ON TABLE outbox.processed_events_other IS
  'Processed events whose ids contain no time (UUID versions other than 7). They are deleted row by row, '
  'outbox.processed_retention after they were processed.';

-- A sequence and not a row: a consumer's old snapshot sees it as it is now.
CREATE SEQUENCE IF NOT EXISTS outbox_internal.processed_dropped MINVALUE 0 START 0;
COMMENT ON SEQUENCE outbox_internal.processed_dropped IS
  'Records of processed events whose ids are of an earlier time may have been dropped. In milliseconds since 1970.';

CREATE OR REPLACE FUNCTION outbox_internal.processed_dropped() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT timestamptz 'epoch' + last_value * interval '1 ms' FROM outbox_internal.processed_dropped $$;
COMMENT ON FUNCTION outbox_internal.processed_dropped() IS
  'The time before which records of outbox.processed_events may have been dropped.';

-- Where the library is not loaded, the setting is a placeholder, which every role may SET, also for itself by ALTER
-- ROLE. Partitions are made and dropped by what the owner of the database has set (ALTER DATABASE).
CREATE OR REPLACE FUNCTION outbox_internal.processed_retention() RETURNS interval
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF to_regprocedure('outbox_internal.library()') IS NOT NULL THEN
    PERFORM l.version FROM outbox_internal.library() AS l; -- loads the library, if this session has not
  END IF;
  RETURN coalesce(
    (SELECT current_setting('outbox.processed_retention') FROM pg_settings AS s
     WHERE s.name = 'outbox.processed_retention' AND s.context = 'superuser'), -- a placeholder is not shown
    (SELECT substr(c.c, strpos(c.c, '=') + 1)
     FROM pg_db_role_setting AS r CROSS JOIN LATERAL unnest(r.setconfig) AS c (c)
     WHERE r.setrole = 0 AND c.c LIKE 'outbox.processed_retention=%'
       AND r.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
     ORDER BY r.setdatabase DESC LIMIT 1),
    '7d')::interval;
END
$$;
COMMENT ON FUNCTION outbox_internal.processed_retention() IS
  'The setting outbox.processed_retention; 7d if it is not set. If the library is not loaded: as ALTER DATABASE '
  'has set it, and not as a session or a role has.';

CREATE OR REPLACE FUNCTION outbox_internal.add_processed_partition(id_time timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  utc timestamp := id_time AT TIME ZONE 'UTC';
  unit text := CASE WHEN outbox_internal.processed_retention() < interval '2 days' THEN 'hour' ELSE 'day' END;
BEGIN
  LOCK TABLE ONLY outbox.processed_events IN SHARE UPDATE EXCLUSIVE MODE; -- its partitions stay as they are
  IF to_regclass('outbox.processed_events_' || to_char(utc, 'YYYYMMDD')) IS NOT NULL THEN
    RETURN false; -- made when the retention was longer
  ELSIF id_time < outbox_internal.processed_dropped() THEN
    RETURN false; -- it would be empty: what it knew was dropped
  ELSIF unit = 'day' AND outbox_internal.processed_dropped() > date_trunc('day', utc) AT TIME ZONE 'UTC' THEN
    unit := 'hour'; -- the day's first hours were dropped
  END IF;
  IF unit = 'day'
     AND EXISTS (SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'outbox.processed_events'::regclass
                   AND c.relname ~ ('^processed_events_' || to_char(utc, 'YYYYMMDD') || '[0-9]{2}$')) THEN
    unit := 'hour'; -- made when it was shorter
  END IF;
  RETURN outbox_internal.add_partition('outbox.processed_events',
    'processed_events_' || to_char(utc, CASE unit WHEN 'day' THEN 'YYYYMMDD' ELSE 'YYYYMMDDHH24' END),
    'event_id, handler, id_time',
    date_trunc(unit, utc) AT TIME ZONE 'UTC',
    (date_trunc(unit, utc) + ('1 ' || unit)::interval) AT TIME ZONE 'UTC');
END
$$;
COMMENT ON FUNCTION outbox_internal.add_processed_partition(timestamptz) IS
  'Creates the partition of outbox.processed_events for ids of that time, if it does not exist and was not dropped.';

CREATE OR REPLACE FUNCTION outbox_internal.refuse_processed(event_id uuid, handler text, id_time timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF event_id IS NULL OR handler IS NULL THEN
    RAISE EXCEPTION '% must not be null',
        CASE WHEN event_id IS NULL THEN 'the id of an event' ELSE 'the name of a handler' END
      USING ERRCODE = 'null_value_not_allowed',
      HINT = 'Such as outbox.mark_processed(event_id, ''name of the consumer'').';
  ELSIF octet_length(handler) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'the name of a handler must have 1 to 200 bytes'
      USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It has %s.', octet_length(handler)),
      HINT = 'Name the consumer: one short text for each of its handlers.';
  ELSIF id_time < greatest(clock_timestamp(), outbox_internal.processed_dropped()) THEN
    RAISE EXCEPTION 'event % is too old to tell whether it was processed', event_id
      USING ERRCODE = 'datetime_field_overflow',
      DETAIL = CASE WHEN id_time < clock_timestamp() - outbox_internal.processed_retention() THEN
          format('Its id is of %s; what was processed is known for %s.',
                 id_time, outbox_internal.processed_retention())
        ELSE
          format('Its id is of %s; records of ids from before %s have been dropped.',
                 id_time, outbox_internal.processed_dropped())
        END,
      HINT = 'Skip it, or process it where doing so twice is harmless. '
             'Set outbox.processed_retention to the longest time that an event may take to come, or come again.';
  END IF;
  RAISE EXCEPTION 'the id of event % lies in the future', event_id
    USING ERRCODE = 'datetime_field_overflow',
    DETAIL = format('It is of %s, farther ahead than outbox.processed_retention (%s).',
                    id_time, outbox_internal.processed_retention()),
    HINT = 'Correct the clock of the machine that makes the ids.';
END
$$;
COMMENT ON FUNCTION outbox_internal.refuse_processed(uuid, text, timestamptz) IS
  'Raises the error for wrong arguments of outbox.mark_processed().';

CREATE OR REPLACE FUNCTION outbox_internal.refuse_dropped() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM outbox_internal.refuse_processed(NEW.event_id, NEW.handler, NEW.id_time);
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION outbox_internal.refuse_dropped() IS
  'Trigger of partitions of outbox.processed_events that were emptied and are to be dropped.';

-- It is exact, because an id always belongs to the same partition, which has a unique index. It has no
-- subtransaction, because a consumer may call it thousands of times in one transaction.
CREATE OR REPLACE FUNCTION outbox.mark_processed(event_id uuid, handler text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  digits text := event_id;
  born timestamptz := 'infinity';
  keep interval := coalesce(nullif(current_setting('outbox.processed_retention', true), ''), '7d');
  part text;
  there boolean;
BEGIN
  IF event_id IS NULL OR handler IS NULL OR octet_length(handler) NOT BETWEEN 1 AND 200 THEN
    PERFORM outbox_internal.refuse_processed(event_id, handler, NULL);
  ELSIF substr(digits, 15, 1) = '7' THEN
    born := timestamptz 'epoch'
            + ('x' || left(digits, 8) || substr(digits, 10, 4))::bit(48)::bigint * interval '1 ms';
    part := 'outbox.processed_events_' || to_char(born AT TIME ZONE 'UTC', 'YYYYMMDDHH24');
    there := to_regclass(left(part, -2)) IS NOT NULL OR to_regclass(part) IS NOT NULL;
    -- This is also where ids are refused whose partition was dropped: known ones cost nothing more.
    IF NOT there OR born NOT BETWEEN clock_timestamp() - keep AND clock_timestamp() + keep THEN
      keep := outbox_internal.processed_retention(); -- the session's may be a placeholder
      IF born NOT BETWEEN clock_timestamp() - keep AND clock_timestamp() + keep
         OR (NOT there AND NOT outbox_internal.add_processed_partition(born)
             AND born < outbox_internal.processed_dropped()) THEN
        PERFORM outbox_internal.refuse_processed(event_id, handler, born);
      END IF;
    END IF;
  END IF;
  INSERT INTO outbox.processed_events (event_id, handler, id_time)
  VALUES (mark_processed.event_id, mark_processed.handler, born)
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION outbox.mark_processed(uuid, text) IS
  'Records in the consumer''s own transaction that a handler has processed an event. Returns true the first time, '
  'and false for a duplicate, which the consumer then skips. A concurrent call for the same event and handler waits '
  'for that transaction: it returns false if that commits, true if it rolls back. An event whose id is older than '
  'outbox.processed_retention, or whose record may have been dropped under a shorter one, is an error, because it '
  'would count as new again.';

CREATE OR REPLACE FUNCTION outbox_internal.add_processed_partitions() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  step interval := CASE WHEN outbox_internal.processed_retention() < interval '2 days' THEN '1 hour' ELSE '1 day' END;
  part text;
  done bigint := 0;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = 'outbox.processed_events'::regclass
                 AND i.inhrelid <> 'outbox.processed_events_other'::regclass) THEN
    RETURN 0; -- no handler has used the table; the first one makes the first partition
  END IF;
  FOR n IN 0 .. 2 LOOP
    part := 'outbox.processed_events_' || to_char((clock_timestamp() + n * step) AT TIME ZONE 'UTC', 'YYYYMMDDHH24');
    IF to_regclass(left(part, -2)) IS NULL AND to_regclass(part) IS NULL
       AND outbox_internal.add_processed_partition(clock_timestamp() + n * step) THEN
      done := done + 1;
    END IF;
  END LOOP;
  RETURN done;
EXCEPTION WHEN lock_not_available THEN
  RETURN 0; -- a consumer's transaction is making one, and may take long
END
$$;
COMMENT ON FUNCTION outbox_internal.add_processed_partitions() IS
  'Creates the next three partitions of outbox.processed_events, if that table is in use. Returns the number of '
  'created ones.';

CREATE OR REPLACE FUNCTION outbox_internal.drop_processed_partitions() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  over CONSTANT timestamp := (clock_timestamp() - outbox_internal.processed_retention()) AT TIME ZONE 'UTC';
  part text;
  ends timestamp;
  dropped boolean;
  in_use boolean := false;
  done bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock('outbox.processed_events'::regclass::oid::integer, 0) THEN
    RETURN 0; -- another session is dropping them
  END IF;
  FOR part, ends IN
    SELECT c.relname, span.ends
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
         regexp_match(c.relname, '^processed_events_([0-9]{8})([0-9]{2})?$') AS name (parts),
         LATERAL (SELECT to_date(parts[1], 'YYYYMMDD') + CASE WHEN parts[2] IS NULL THEN interval '1 day'
                         ELSE (parts[2]::integer + 1) * interval '1 hour' END) AS span (ends)
    WHERE i.inhparent = 'outbox.processed_events'::regclass AND span.ends < over
    ORDER BY c.relname
  LOOP
    -- First, and not undone by a rollback: an id from before it is refused unless its partition still knows it.
    PERFORM setval('outbox_internal.processed_dropped',
                   greatest(s.last_value, extract(epoch FROM ends)::bigint * 1000))
    FROM outbox_internal.processed_dropped AS s;
    -- While consumers always have a transaction open, the partition is emptied now and dropped only later.
    IF outbox_internal.empty_partition(part, 'outbox_internal.refuse_dropped') AND NOT in_use THEN
      dropped := outbox_internal.drop_partition(part);
      in_use := dropped IS FALSE;
      done := done + (dropped IS TRUE)::integer;
    END IF;
  END LOOP;
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox_internal.drop_processed_partitions() IS
  'Drops the partitions of outbox.processed_events whose retention is over, and empties those that are in use. '
  'Returns the number of dropped ones.';

CREATE OR REPLACE FUNCTION outbox_internal.expire_processed(first_block bigint DEFAULT 0, blocks bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT outbox_internal.expire_rows('outbox.processed_events_other', 'processed_at',
    clock_timestamp() - outbox_internal.processed_retention(), first_block, blocks)
$$;
COMMENT ON FUNCTION outbox_internal.expire_processed(bigint, bigint) IS
  'Deletes processed events of outbox.processed_events_other whose retention is over, in some blocks (without '
  'arguments: in all). Returns the number of its blocks.';

CREATE OR REPLACE FUNCTION outbox_internal.maintain_processed() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  made bigint := outbox_internal.add_processed_partitions();
BEGIN
  PERFORM outbox_internal.expire_processed();
  RETURN made + outbox_internal.drop_processed_partitions();
END
$$;
COMMENT ON FUNCTION outbox_internal.maintain_processed() IS
  'The part of outbox.run_maintenance() that outbox_inbox.sql has too: creates the coming partitions of '
  'outbox.processed_events and drops those whose retention is over. Returns the number of both.';
