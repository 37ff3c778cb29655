-- The consumer's side: the events that it has processed, so that it recognises a duplicate.
-- processed_events is partitioned by the id's own time, so that partitions of a day and of an hour can stand side by
-- side when the retention changes, and an id always meets itself. mark_processed() takes 25 us of CPU.

CREATE TABLE IF NOT EXISTS outbox_inbox.processed_events (
  event_id uuid NOT NULL,
  handler text COLLATE "C" NOT NULL,
  id_time timestamptz NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
) PARTITION BY RANGE (id_time);
COMMENT ON TABLE outbox_inbox.processed_events IS
  'Events that handlers of this database have processed, written by outbox_inbox.mark_processed(). One partition per '
  'day of their ids (UTC), per hour if outbox_inbox.retention() is below two days; dropped as a whole.';
COMMENT ON COLUMN outbox_inbox.processed_events.event_id IS 'The event.';
COMMENT ON COLUMN outbox_inbox.processed_events.handler IS
  'The name of the handler that processed it; an event may have several.';
COMMENT ON COLUMN outbox_inbox.processed_events.id_time IS
  'The time in a UUIDv7, by which the same id always belongs to the same partition; infinity for ids of other '
  'versions.';
COMMENT ON COLUMN outbox_inbox.processed_events.processed_at IS
  'When it was processed: the start of the consumer''s transaction.';

CREATE TABLE IF NOT EXISTS outbox_inbox.processed_events_other PARTITION OF outbox_inbox.processed_events (
  PRIMARY KEY (event_id, handler, id_time)
) FOR VALUES FROM ('infinity') TO (MAXVALUE);
COMMENT ON TABLE outbox_inbox.processed_events_other IS
  'Processed events whose ids contain no time (UUID versions other than 7). They are deleted row by row, '
  'outbox_inbox.retention() after they were processed.';

-- A sequence and not a row: a consumer's old snapshot sees it as it is now.
CREATE SEQUENCE IF NOT EXISTS outbox_inbox.processed_dropped MINVALUE 0 START 0;
COMMENT ON SEQUENCE outbox_inbox.processed_dropped IS
  'Records of processed events whose ids are of an earlier time may have been dropped. In milliseconds since 1970.';

CREATE OR REPLACE FUNCTION outbox_inbox.processed_dropped() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT timestamptz 'epoch' + last_value * interval '1 ms' FROM outbox_inbox.processed_dropped $$;
COMMENT ON FUNCTION outbox_inbox.processed_dropped() IS
  'The time before which records of outbox_inbox.processed_events may have been dropped.';

-- Not a setting: without a library it would be a placeholder, which every role may SET.
CREATE SEQUENCE IF NOT EXISTS outbox_inbox.retention_seconds MINVALUE 3600 MAXVALUE 315360000 START 604800;
COMMENT ON SEQUENCE outbox_inbox.retention_seconds IS
  'How long a processed event is remembered, in seconds: see outbox_inbox.set_retention().';

CREATE OR REPLACE FUNCTION outbox_inbox.retention() RETURNS interval
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$ SELECT justify_hours(last_value * interval '1 s') FROM outbox_inbox.retention_seconds $$;
COMMENT ON FUNCTION outbox_inbox.retention() IS
  'How long outbox_inbox.mark_processed() remembers an event; 7 days if outbox_inbox.set_retention() was not called.';

CREATE OR REPLACE FUNCTION outbox_inbox.set_retention(retention interval) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF retention IS NULL THEN
    RAISE EXCEPTION 'the retention must not be null' USING ERRCODE = 'null_value_not_allowed',
      HINT = 'Such as outbox_inbox.set_retention(''14 days'').';
  ELSIF retention NOT BETWEEN interval '1 hour' AND interval '3650 days' THEN
    RAISE EXCEPTION 'the retention must be 1 hour to 3650 days' USING ERRCODE = 'invalid_parameter_value',
      DETAIL = format('It is %s.', retention);
  END IF;
  PERFORM setval('outbox_inbox.retention_seconds', extract(epoch FROM retention)::bigint);
END
$$;
COMMENT ON FUNCTION outbox_inbox.set_retention(interval) IS
  'Sets how long outbox_inbox.mark_processed() remembers an event (1 hour to 3650 days). That counts from the time '
  'in the event''s id; if the id has none, from the processing. In effect at once, also if the transaction '
  'rolls back. Choose it longer than an event may take to come, or to come again. What a shorter retention has '
  'dropped stays unknown under a longer one.';

-- After a restore by another role the days may have another owner than the table, who could let a trigger run with
-- the rights of this function's owner.
CREATE OR REPLACE FUNCTION outbox_inbox.own_partitions() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  part regclass;
BEGIN
  FOR part IN
    SELECT c.oid FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass AND pg_get_userbyid(c.relowner) <> current_user
  LOOP
    EXECUTE format('ALTER TABLE %s OWNER TO %I', part, current_user);
    IF EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = part AND NOT t.tgisinternal
               AND t.tgfoid <> 'outbox_inbox.refuse_dropped()'::regprocedure)
       OR EXISTS (SELECT FROM pg_constraint AS c WHERE c.conrelid = part AND c.contype = 'c')
       OR EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = part)
       OR EXISTS (SELECT FROM pg_index AS x
                  WHERE x.indrelid = part AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)) THEN
      RAISE EXCEPTION 'partition % has another owner, who gave it triggers, constraints, policies or indexes', part
        USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = format('Look at them, and drop them. Then: ALTER TABLE %s OWNER TO %I;', part, current_user);
    END IF;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox_inbox.own_partitions() IS
  'Gives partitions of outbox_inbox.processed_events that belong to other roles to the owner of the inbox, unless '
  'inserting into them would run code of these roles.';

CREATE OR REPLACE FUNCTION outbox_inbox.add_processed_partition(id_time timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  utc timestamp := id_time AT TIME ZONE 'UTC';
  unit text := CASE WHEN outbox_inbox.retention() < interval '2 days' THEN 'hour' ELSE 'day' END;
BEGIN
  LOCK TABLE ONLY outbox_inbox.processed_events IN SHARE UPDATE EXCLUSIVE MODE; -- its partitions stay as they are
  PERFORM outbox_inbox.own_partitions();
  IF to_regclass('outbox_inbox.processed_events_' || to_char(utc, 'YYYYMMDD')) IS NOT NULL THEN
    RETURN false; -- made when the retention was longer
  ELSIF id_time < outbox_inbox.processed_dropped() THEN
    RETURN false; -- it would be empty: what it knew was dropped
  ELSIF unit = 'day' AND outbox_inbox.processed_dropped() > date_trunc('day', utc) AT TIME ZONE 'UTC' THEN
    unit := 'hour'; -- the day's first hours were dropped
  END IF;
  IF unit = 'day'
     AND EXISTS (SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                 WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass
                   AND c.relname ~ ('^processed_events_' || to_char(utc, 'YYYYMMDD') || '[0-9]{2}$')) THEN
    unit := 'hour'; -- made when it was shorter
  END IF;
  RETURN outbox_inbox.add_partition('outbox_inbox.processed_events',
    'processed_events_' || to_char(utc, CASE unit WHEN 'day' THEN 'YYYYMMDD' ELSE 'YYYYMMDDHH24' END),
    'event_id, handler, id_time',
    date_trunc(unit, utc) AT TIME ZONE 'UTC',
    (date_trunc(unit, utc) + ('1 ' || unit)::interval) AT TIME ZONE 'UTC');
END
$$;
COMMENT ON FUNCTION outbox_inbox.add_processed_partition(timestamptz) IS
  'Creates the partition of outbox_inbox.processed_events for ids of that time, if it does not exist and was not '
  'dropped.';

CREATE OR REPLACE FUNCTION outbox_inbox.refuse_processed(event_id uuid, handler text, id_time timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF event_id IS NULL OR handler IS NULL THEN
    RAISE EXCEPTION '% must not be null',
        CASE WHEN event_id IS NULL THEN 'the id of an event' ELSE 'the name of a handler' END
      USING ERRCODE = 'null_value_not_allowed',
      HINT = 'Such as outbox_inbox.mark_processed(event_id, ''name of the consumer'').';
  ELSIF octet_length(handler) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'the name of a handler must have 1 to 200 bytes'
      USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It has %s.', octet_length(handler)),
      HINT = 'Name the consumer: one short text for each of its handlers.';
  ELSIF id_time < greatest(clock_timestamp(), outbox_inbox.processed_dropped()) THEN
    RAISE EXCEPTION 'event % is too old to tell whether it was processed', event_id
      USING ERRCODE = 'datetime_field_overflow',
      DETAIL = CASE WHEN id_time < clock_timestamp() - outbox_inbox.retention() THEN
          format('Its id is of %s; what was processed is known for %s.',
                 id_time, outbox_inbox.retention())
        ELSE
          format('Its id is of %s; records of ids from before %s have been dropped.',
                 id_time, outbox_inbox.processed_dropped())
        END,
      HINT = 'Skip it, or process it where doing so twice is harmless. '
             'Give outbox_inbox.set_retention() the longest time that an event may take to come, or come again.';
  END IF;
  RAISE EXCEPTION 'the id of event % lies in the future', event_id
    USING ERRCODE = 'datetime_field_overflow',
    DETAIL = format('It is of %s, farther ahead than the retention (%s).',
                    id_time, outbox_inbox.retention()),
    HINT = 'Correct the clock of the machine that makes the ids.';
END
$$;
COMMENT ON FUNCTION outbox_inbox.refuse_processed(uuid, text, timestamptz) IS
  'Raises the error for wrong arguments of outbox_inbox.mark_processed().';

CREATE OR REPLACE FUNCTION outbox_inbox.refuse_dropped() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM outbox_inbox.refuse_processed(NEW.event_id, NEW.handler, NEW.id_time);
  RETURN NULL;
END
$$;
COMMENT ON FUNCTION outbox_inbox.refuse_dropped() IS
  'Trigger of partitions of outbox_inbox.processed_events that were emptied and are to be dropped.';

-- It is exact, because an id always belongs to the same partition, which has a unique index. It has no
-- subtransaction, because a consumer may call it thousands of times in one transaction.
CREATE OR REPLACE FUNCTION outbox_inbox.mark_processed(event_id uuid, handler text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  digits text := event_id;
  born timestamptz := 'infinity';
  keep interval;
  part text;
  place regclass;
  there boolean;
BEGIN
  IF event_id IS NULL OR handler IS NULL OR octet_length(handler) NOT BETWEEN 1 AND 200 THEN
    PERFORM outbox_inbox.refuse_processed(event_id, handler, NULL);
  ELSIF substr(digits, 15, 1) = '7' THEN
    born := timestamptz 'epoch'
            + ('x' || left(digits, 8) || substr(digits, 10, 4))::bit(48)::bigint * interval '1 ms';
    part := 'outbox_inbox.processed_events_' || to_char(born AT TIME ZONE 'UTC', 'YYYYMMDDHH24');
    place := coalesce(to_regclass(left(part, -2)), to_regclass(part));
    SELECT s.last_value * interval '1 s', pg_get_userbyid(c.relowner) = current_user INTO keep, there
    FROM outbox_inbox.retention_seconds AS s LEFT JOIN pg_class AS c ON c.oid = place;
    -- This is also where ids are refused whose partition was dropped: known ones cost nothing more.
    IF born NOT BETWEEN clock_timestamp() - keep AND clock_timestamp() + keep
       OR (there IS NOT TRUE AND NOT outbox_inbox.add_processed_partition(born)
           AND born < outbox_inbox.processed_dropped()) THEN
      PERFORM outbox_inbox.refuse_processed(event_id, handler, born);
    END IF;
  END IF;
  INSERT INTO outbox_inbox.processed_events (event_id, handler, id_time)
  VALUES (mark_processed.event_id, mark_processed.handler, born)
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
COMMENT ON FUNCTION outbox_inbox.mark_processed(uuid, text) IS
  'Records in the consumer''s own transaction that a handler has processed an event. Returns true the first time, '
  'and false for a duplicate, which the consumer then skips. A concurrent call for the same event and handler waits '
  'for that transaction: it returns false if that commits, true if it rolls back. An event whose id is older than '
  'outbox_inbox.retention(), or whose record may have been dropped under a shorter one, is an error, because it '
  'would count as new.';

CREATE OR REPLACE FUNCTION outbox_inbox.add_processed_partitions() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  step interval := CASE WHEN outbox_inbox.retention() < interval '2 days' THEN '1 hour' ELSE '1 day' END;
  part text;
  done bigint := 0;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass
                 AND i.inhrelid <> 'outbox_inbox.processed_events_other'::regclass) THEN
    RETURN 0; -- no handler has used the table; the first one makes the first partition
  END IF;
  FOR n IN 0 .. 2 LOOP
    part := 'outbox_inbox.processed_events_'
            || to_char((clock_timestamp() + n * step) AT TIME ZONE 'UTC', 'YYYYMMDDHH24');
    IF to_regclass(left(part, -2)) IS NULL AND to_regclass(part) IS NULL
       AND outbox_inbox.add_processed_partition(clock_timestamp() + n * step) THEN
      done := done + 1;
    END IF;
  END LOOP;
  RETURN done;
EXCEPTION WHEN lock_not_available THEN
  RETURN 0; -- a consumer's transaction is making one, and may take long
END
$$;
COMMENT ON FUNCTION outbox_inbox.add_processed_partitions() IS
  'Creates the next three partitions of outbox_inbox.processed_events, if that table is in use. Returns the number '
  'of created ones.';

CREATE OR REPLACE FUNCTION outbox_inbox.empty_partition(part text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  rel regclass := to_regclass(format('outbox_inbox.%I', part));
BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = rel AND t.tgname = 'refuse_rows') THEN
    EXECUTE format('CREATE OR REPLACE TRIGGER refuse_rows BEFORE INSERT ON outbox_inbox.%I '
                   'FOR EACH ROW EXECUTE FUNCTION outbox_inbox.refuse_dropped()', part);
    EXECUTE format('TRUNCATE outbox_inbox.%I', part);
  END IF;
  RETURN true;
EXCEPTION
  WHEN lock_not_available THEN
    RAISE LOG 'outbox: partition % is in use and will be emptied later', part;
    RETURN false;
  WHEN undefined_table THEN
    RETURN false; -- another caller was quicker
  WHEN OTHERS THEN -- a foreign key of a user's refers to it, for example
    RAISE LOG 'outbox: partition % cannot be emptied: %', part, SQLERRM;
    RETURN false;
END
$$;
COMMENT ON FUNCTION outbox_inbox.empty_partition(text) IS
  'Frees the space of a partition that is to be dropped, also if its parent is always in use; from then on a trigger '
  'function refuses new rows. Returns false if that fails, for example because a session is using it. '
  'outbox_inbox.run_maintenance() calls it.';

CREATE OR REPLACE FUNCTION outbox_inbox.drop_processed_partitions() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  over CONSTANT timestamp := (clock_timestamp() - outbox_inbox.retention()) AT TIME ZONE 'UTC';
  part text;
  ends timestamp;
  dropped boolean;
  in_use boolean := false;
  done bigint := 0;
BEGIN
  IF NOT pg_try_advisory_xact_lock('outbox_inbox.processed_events'::regclass::oid::integer, 0) THEN
    RETURN 0; -- another session is dropping them
  END IF;
  FOR part, ends IN
    SELECT c.relname, span.ends
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid,
         regexp_match(c.relname, '^processed_events_([0-9]{8})([0-9]{2})?$') AS name (parts),
         LATERAL (SELECT to_date(parts[1], 'YYYYMMDD') + CASE WHEN parts[2] IS NULL THEN interval '1 day'
                         ELSE (parts[2]::integer + 1) * interval '1 hour' END) AS span (ends)
    WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass AND span.ends < over
    ORDER BY c.relname
  LOOP
    -- First, and not undone by a rollback: an id from before it is refused unless its partition still knows it.
    PERFORM setval('outbox_inbox.processed_dropped',
                   greatest(s.last_value, extract(epoch FROM ends)::bigint * 1000))
    FROM outbox_inbox.processed_dropped AS s;
    -- While consumers always have a transaction open, the partition is emptied now and dropped only later.
    IF outbox_inbox.empty_partition(part) AND NOT in_use THEN
      dropped := outbox_inbox.drop_partition(part);
      in_use := dropped IS FALSE;
      done := done + (dropped IS TRUE)::integer;
    END IF;
  END LOOP;
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox_inbox.drop_processed_partitions() IS
  'Drops the partitions of outbox_inbox.processed_events whose retention is over, and empties those that are in use. '
  'Returns the number of dropped ones.';

CREATE OR REPLACE FUNCTION outbox_inbox.expire_processed(first_block bigint DEFAULT 0, blocks bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT outbox_inbox.expire_rows('outbox_inbox.processed_events_other', 'processed_at',
    clock_timestamp() - outbox_inbox.retention(), first_block, blocks)
$$;
COMMENT ON FUNCTION outbox_inbox.expire_processed(bigint, bigint) IS
  'Deletes processed events of outbox_inbox.processed_events_other whose retention is over, in some blocks (without '
  'arguments: in all). Returns the number of its blocks.';

-- A worker of the extension outbox calls this function and expire_processed() (../42_maintain.sql).
CREATE OR REPLACE FUNCTION outbox_inbox.maintain_partitions() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
BEGIN
  -- A dump makes a day first, fills it, and gives it its primary key last.
  IF EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = 'outbox_inbox.processed_events'::regclass
             AND NOT EXISTS (SELECT FROM pg_index AS x WHERE x.indrelid = i.inhrelid AND x.indisprimary)) THEN
    RETURN 0;
  END IF;
  BEGIN
    PERFORM outbox_inbox.own_partitions();
  EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
  END;
  RETURN outbox_inbox.add_processed_partitions() + outbox_inbox.drop_processed_partitions();
END
$$;
COMMENT ON FUNCTION outbox_inbox.maintain_partitions() IS
  'Part of outbox_inbox.run_maintenance(): creates the coming partitions and drops those whose retention is over, '
  'unless a restore seems to be running. Returns the number of both.';

CREATE OR REPLACE FUNCTION outbox_inbox.run_maintenance() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM outbox_inbox.expire_processed();
  RETURN outbox_inbox.maintain_partitions();
END
$$;
COMMENT ON FUNCTION outbox_inbox.run_maintenance() IS
  'Creates the coming partitions of outbox_inbox.processed_events and drops those whose retention is over. Call it '
  'every few minutes. Returns the number of both. GRANT EXECUTE is enough.';
