-- Maintenance by time: coming days are created, days that are over are dropped, and expired keys are deleted. The
-- worker does it in small pieces. Where no worker runs, outbox.run_maintenance() does all of it at once.

CREATE OR REPLACE FUNCTION outbox_internal.restore_seen() RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  here bigint := (SELECT l.origin FROM outbox_internal.library() AS l);
BEGIN
  -- A dump makes a day first, fills it, and gives it its primary key last.
  IF EXISTS (SELECT FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
             WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]+$'
               AND NOT EXISTS (SELECT FROM pg_index AS x WHERE x.indrelid = c.oid AND x.indisprimary)) THEN
    RETURN true;
  END IF;
  -- Pending rows have an index on their origin. Restored dead letters come in one piece, before or after those of
  -- here: so it is enough to look at both ends.
  RETURN outbox_internal.has_rows_of_elsewhere(here)
    OR EXISTS (SELECT FROM (SELECT e.origin FROM outbox.events_failed AS e ORDER BY e.position LIMIT 1000) AS e
               WHERE e.origin <> here)
    OR EXISTS (SELECT FROM (SELECT e.origin FROM outbox.events_failed AS e ORDER BY e.position DESC LIMIT 1000) AS e
               WHERE e.origin <> here);
END
$$;
COMMENT ON FUNCTION outbox_internal.restore_seen() IS
  'Whether a restore seems to be running, or events of another origin wait for outbox.adopt(). The worker then '
  'drops no partition, and creates only those that delivered events need, so that it does not disturb the restore.';

CREATE OR REPLACE FUNCTION outbox_internal.has_day(part text) RETURNS boolean LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT EXISTS (SELECT FROM pg_inherits AS i
                 WHERE i.inhparent = 'outbox.events_sent'::regclass AND NOT i.inhdetachpending
                   AND i.inhrelid = to_regclass(format('outbox.%I', part)))
$$;
COMMENT ON FUNCTION outbox_internal.has_day(text) IS
  'Part of outbox.run_maintenance() and outbox.ack(): whether the table is a partition of outbox.events_sent. A '
  'user may have detached it.';

CREATE OR REPLACE FUNCTION outbox_internal.maintain_days(by_worker boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
  day date;
  part text;
  done bigint := 0;
  keep interval := (SELECT l.longest_retention FROM outbox_internal.library() AS l);
  dropped boolean;
BEGIN
  -- Also during a restore: events that are delivered meanwhile are to be kept, and an empty day gives way to one of
  -- the dump. Sessions that enqueue or read do not wait for this lock. A caller of outbox.run_maintenance() waits for
  -- a worker that makes the same days.
  IF NOT by_worker THEN
    SET LOCAL lock_timeout = '5s';
  END IF;
  LOCK TABLE ONLY outbox.events_sent IN SHARE UPDATE EXCLUSIVE MODE; -- a restore may be about to make one of them
  SET LOCAL lock_timeout = '100ms';
  FOR day IN SELECT today + n FROM generate_series(-1, 3) AS n LOOP
    part := 'events_sent_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN outbox_internal.has_day(part);
    IF to_regclass(format('outbox.%I', part)) IS NOT NULL AND NOT by_worker THEN
      RAISE WARNING 'partition % of outbox.events_sent cannot be created', part
        USING ERRCODE = 'duplicate_table',
        DETAIL = format('The table outbox.%I has its name and is no partition of outbox.events_sent.', part),
        HINT = format('ALTER TABLE outbox.%I RENAME TO %I; SELECT outbox.run_maintenance();',
                      part, part || '_detached');
    ELSIF outbox_internal.add_partition('outbox.events_sent', part, 'position',
                            day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC') THEN
      done := done + 1;
    END IF;
  END LOOP;

  PERFORM outbox_internal.expire_failures(); -- also during a restore: a dump has no failed attempts
  IF by_worker AND outbox_internal.restore_seen() THEN
    RETURN done;
  END IF;
  -- Whole days are dropped when the longest retention of any sink is over. If a reader is in the way, the next run
  -- tries again.
  FOR part, day IN
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD') AS begins
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]{8}$' ORDER BY begins
  LOOP
    CONTINUE WHEN (day + 1)::timestamp AT TIME ZONE 'UTC' + keep >= clock_timestamp() OR day >= today - 1;
    dropped := outbox_internal.drop_partition(part);
    EXIT WHEN NOT dropped; -- the session in its way is in the way of the others too
    done := done + (dropped IS TRUE)::integer;
  END LOOP;
  -- The next claim deletes leases that are over. Those of events and sinks that do not exist any more are deleted
  -- here.
  DELETE FROM outbox.leases WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM outbox.leases AS l
    WHERE l.lease_until < clock_timestamp() - interval '1 day'
    FOR UPDATE SKIP LOCKED));
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox_internal.maintain_days(boolean) IS
  'Part of outbox.run_maintenance(): creates and drops partitions, and deletes leases that ended a day ago and '
  'failed attempts of a week ago. For a worker, during a restore or while events of another origin wait, it only '
  'creates days of outbox.events_sent.';

CREATE OR REPLACE FUNCTION outbox_internal.expire_dedup(first_block bigint DEFAULT 0, blocks bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT outbox_internal.expire_rows('outbox_internal.dedup', 'created_at',
    clock_timestamp() - current_setting('outbox.dedup_window')::interval, first_block, blocks)
$$;
COMMENT ON FUNCTION outbox_internal.expire_dedup(bigint, bigint) IS
  'Deletes expired dedup keys in some blocks of their table (without arguments: in all). Returns the number of its '
  'blocks. The worker calls it for a part of the table at a time.';

-- Only what a superuser owns, because the worker is one. An inbox of another owner needs calls of its own
-- run_maintenance().
CREATE OR REPLACE FUNCTION outbox_internal.maintain_inbox(first_block bigint, blocks bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  size bigint;
BEGIN
  IF (SELECT count(*) FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
      WHERE p.oid IN (to_regprocedure('outbox_inbox.maintain_partitions()'),
                      to_regprocedure('outbox_inbox.expire_processed(bigint, bigint)')) AND r.rolsuper) < 2 THEN
    RETURN 0;
  END IF;
  EXECUTE 'SELECT outbox_inbox.maintain_partitions()';
  EXECUTE 'SELECT outbox_inbox.expire_processed($1, $2)' INTO size USING first_block, blocks;
  RETURN size;
END
$$;
COMMENT ON FUNCTION outbox_internal.maintain_inbox(bigint, bigint) IS
  'Does the work of outbox_inbox.run_maintenance() if a superuser has created that extension; deletes expired rows '
  'in some blocks. Returns the number of blocks. The worker calls it for a part of the table at a time.';

CREATE OR REPLACE FUNCTION outbox.run_maintenance() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  done bigint := outbox_internal.maintain_days(false);
BEGIN
  PERFORM outbox_internal.expire_dedup();
  WHILE outbox_internal.route_waiting() > 0 LOOP
  END LOOP;
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox.run_maintenance() IS
  'Creates the coming days of outbox.events_sent, drops those whose retention is over, deletes expired dedup keys, '
  'and gives waiting events to the sinks that take them now. The worker does this by itself; call it every few '
  'minutes where no worker runs. A day that is in use is left for the next call. Returns the number of partitions '
  'that it created or dropped. GRANT EXECUTE is enough.';
