-- The work of outbox.ack() and nack(), in SQL over the tables alone; that of outbox.claim() is in 3_claim.sql. They
-- call ack_for(), nack_for() and claim_for() as the owner of the tables, and pass the caller's role
-- (src/server/manual/as_owner.cpp). Five functions here are C: they need the delivery library, shared memory, or
-- bytes.
--
-- outbox.leases is the only record of claimed events. In an ordered sink a lease is of a key, otherwise of an event.
-- A claim locks the rows of its events without waiting, and leaves a key at the first row that it cannot lock. The
-- primary key of the leases decides between two claims that read the same key. ack() and nack() take the claim's
-- token and not ids alone: a dispatcher that lost a lease must not end the claim of another one. Leases are rows of a
-- small table and not columns of events: a claim would write each event's row, payload and indexes anew.
--
-- There is no deadlock: a claim locks rows and ended leases without waiting, and makes leases in the order of their
-- keys. ack() and nack() first lock the leases of their claim, in the same order, and then write events.

CREATE OR REPLACE FUNCTION outbox_internal.manual_sink(
  caller oid, sink text,
  OUT server oid, OUT ordered boolean, OUT block boolean, OUT max_attempts integer, OUT retry text, OUT keep boolean,
  OUT origin bigint, OUT max_payload bigint)
RETURNS record LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_manual_sink';
COMMENT ON FUNCTION outbox_internal.manual_sink(oid, text) IS
  'Part of outbox.claim(), ack() and nack(): the options of a sink of kind outbox_manual, with the settings for '
  'options that are not set; keep: whether delivered events are kept; origin: of the events of this database. '
  'Raises an error if the caller may not claim from it.';

-- Not the row as a whole, which would be made with all its TOAST values in it.
CREATE OR REPLACE FUNCTION outbox_internal.check_size(
  max_payload bigint, payload jsonb, payload_bytes bytea, headers jsonb, aggregate_type text, aggregate_id text,
  event_type text, content_type text, partition_key text, dedup_key text) RETURNS boolean
LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_check_size';
COMMENT ON FUNCTION outbox_internal.check_size(bigint, jsonb, bytea, jsonb, text, text, text, text, text, text) IS
  'Part of outbox.claim(): true, or an error with SQLSTATE 54000 if the event is larger than its sink takes.';

CREATE OR REPLACE FUNCTION outbox_internal.retry_delay(retry text, attempt integer) RETURNS interval
LANGUAGE c VOLATILE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_retry_delay';
COMMENT ON FUNCTION outbox_internal.retry_delay(text, integer) IS
  'Part of outbox.nack(): the time until the next attempt by the option retry, with jitter.';

CREATE OR REPLACE FUNCTION outbox_internal.count_delivered(server oid, latencies bigint[], late bigint) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_count_delivered';
COMMENT ON FUNCTION outbox_internal.count_delivered(oid, bigint[], bigint) IS
  'Part of outbox.ack(): counts delivered events for outbox.sinks when the transaction commits: the latency of each '
  'in microseconds, and the number of events delivered late after outbox.redrive() with force.';

CREATE OR REPLACE FUNCTION outbox_internal.count_failed(server oid, dead boolean, error text) RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_count_failed';
COMMENT ON FUNCTION outbox_internal.count_failed(oid, boolean, text) IS
  'Part of outbox.nack(): counts one failure for outbox.sinks when the transaction commits, and shows its error at '
  'once.';

CREATE OR REPLACE FUNCTION outbox_internal.record_failure(
  caller oid, token uuid, id uuid, error text, retry_in interval, give_up boolean, unreadable bigint DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
#variable_conflict use_column
DECLARE
  sink_name text;
  sink record;
  lease record;
  event record;
  failed_at timestamptz := clock_timestamp();
  next_at timestamptz; -- NULL: it becomes a dead letter
  dead boolean;
  later_too boolean := false;
BEGIN
  SELECT s.srvname INTO sink_name FROM pg_foreign_server AS s WHERE s.oid = (
    SELECT min(l.server)
    FROM (SELECT l.server FROM outbox.leases AS l
          WHERE l.token = record_failure.token
          ORDER BY l.key_hash, l.single FOR UPDATE) AS l);
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  sink := outbox_internal.manual_sink(record_failure.caller, sink_name);
  SELECT l.server, l.ordered, l.key_hash, l.single,
         nullif(greatest(l.overtaken_by, p.position), p.position) AS overtaken_by,
         p.position, p.id AS event_id, p.n::integer AS n
  INTO lease
  FROM outbox.leases AS l CROSS JOIN unnest(l.ids, l.positions) WITH ORDINALITY AS p (id, position, n)
  WHERE l.token = record_failure.token
    AND (p.position = record_failure.unreadable OR (record_failure.unreadable IS NULL AND p.id = record_failure.id))
  LIMIT 1;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT least(greatest(e.attempts, 0), 2147483646) + 1 AS attempt, e.overtaken_by INTO event
  FROM outbox.events_pending AS e WHERE e.position = lease.position AND e.sink = sink_name FOR UPDATE;
  IF FOUND THEN -- otherwise a user has deleted or moved the event, and later events of its key go on
    dead := coalesce(record_failure.give_up, false)
            OR (record_failure.unreadable IS NULL AND event.attempt >= sink.max_attempts);
    IF dead THEN
      PERFORM outbox_internal.move_to_failed(lease.position, event.attempt, record_failure.error, failed_at,
                                             coalesce(event.overtaken_by, lease.overtaken_by));
    ELSE
      next_at := failed_at
                 + coalesce(record_failure.retry_in, outbox_internal.retry_delay(sink.retry, event.attempt));
      UPDATE outbox.events_pending AS e SET
        attempts = CASE WHEN record_failure.unreadable IS NULL THEN event.attempt ELSE e.attempts END,
        last_error = outbox_internal.error_text(record_failure.error),
        last_attempt_at = failed_at,
        available_at = next_at,
        blocked_by = NULL,
        redrive_late = nullif(e.redrive_late, false),
        overtaken_by = coalesce(event.overtaken_by, lease.overtaken_by)
      WHERE e.position = lease.position;
    END IF;
    INSERT INTO outbox_internal.failed_attempts
      (day, event_id, position, sink, attempt, ended_at, error, key_hash, blocks_until)
    SELECT outbox_internal.failure_day(failed_at), lease.event_id, lease.position, sink_name,
           CASE WHEN dead OR record_failure.unreadable IS NULL THEN event.attempt END,
           failed_at, left(record_failure.error, 1000),
           CASE WHEN lease.single = 0 AND NOT dead THEN lease.key_hash END, next_at
    WHERE outbox_internal.has_room_for_failures();
    PERFORM outbox_internal.count_failed(sink.server, dead, record_failure.error);
    -- Later events of the key are returned to the table: the retry, or a redrive, comes before them.
    later_too := lease.single = 0 AND (NOT dead OR sink.block);
  END IF;
  UPDATE outbox.leases AS l SET
    ids = l.ids[:lease.n - 1] || CASE WHEN later_too THEN '{}' ELSE l.ids[lease.n + 1:] END,
    positions = l.positions[:lease.n - 1] || CASE WHEN later_too THEN '{}' ELSE l.positions[lease.n + 1:] END
  WHERE l.server = lease.server AND l.ordered = lease.ordered
    AND l.key_hash = lease.key_hash AND l.single = lease.single;
  DELETE FROM outbox.leases AS l WHERE l.token = record_failure.token AND l.ids = '{}';
  RETURN CASE WHEN dead THEN 'FAILED' WHEN NOT dead THEN 'PENDING' END;
END
$$;
COMMENT ON FUNCTION outbox_internal.record_failure(oid, uuid, uuid, text, interval, boolean, bigint) IS
  'Part of outbox.nack() and claim(): records the failure of a claimed event, or that the event at this position '
  'cannot be read. The latter spends no attempt, because the event was not returned, unless it is given up.';

CREATE OR REPLACE FUNCTION outbox_internal.nack_for(
  caller oid, token uuid, id uuid, error text, retry_in interval, give_up boolean
) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF num_nulls(token, id, error) > 0 THEN
    RAISE EXCEPTION '"%" must not be null',
        CASE WHEN token IS NULL THEN 'token' WHEN id IS NULL THEN 'id' ELSE 'error' END
      USING ERRCODE = 'null_value_not_allowed',
      HINT = 'Such as outbox.nack(token, id, ''what went wrong''), with the token that outbox.claim() returned.';
  ELSIF retry_in NOT BETWEEN '0' AND '3660 days' THEN
    RAISE EXCEPTION 'retry_in is out of range' USING ERRCODE = 'invalid_parameter_value',
      DETAIL = format('It is %s, and must be between 0 and ten years.', retry_in),
      HINT = 'Leave it out for the sink''s own schedule.';
  END IF;
  RETURN outbox_internal.record_failure(caller, token, id, error, retry_in, give_up);
END
$$;
COMMENT ON FUNCTION outbox_internal.nack_for(oid, uuid, uuid, text, interval, boolean) IS
  'The work of outbox.nack() for its caller.';

-- A user may have postponed an event after it was claimed, to infinity too.
CREATE OR REPLACE FUNCTION outbox_internal.due_since(
  created_at timestamptz, failed_at timestamptz, available_at timestamptz, acked_at timestamptz
) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE
    WHEN NOT isfinite(created_at) THEN acked_at
    ELSE greatest(created_at, CASE WHEN failed_at IS NULL AND available_at <= acked_at THEN available_at END) END
$$;
COMMENT ON FUNCTION outbox_internal.due_since(timestamptz, timestamptz, timestamptz, timestamptz) IS
  'Part of outbox.ack(): the time from which the latency of a delivered event counts.';

CREATE OR REPLACE FUNCTION outbox_internal.ack_for(caller oid, token uuid, ids uuid[]) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@ SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
  claim record;
  sink_name text;
  sink record;
  acked_at timestamptz := clock_timestamp();
  day text;
  deleted record;
BEGIN
  IF ack_for.token IS NULL THEN
    RAISE EXCEPTION '"token" must not be null' USING ERRCODE = 'null_value_not_allowed',
      HINT = 'Such as outbox.ack(token, ARRAY[id]), with the token that outbox.claim() returned.';
  END IF;
  -- events: positions of the acknowledged events. keys and acked: the keys and positions of those that have a key.
  -- rest: positions of the events that the claim still has.
  SELECT min(p.server) AS server,
         array_agg(p.position) FILTER (WHERE p.ended) AS events,
         array_agg(p.key_hash) FILTER (WHERE p.ended AND p.single = 0) AS keys,
         array_agg(p.position) FILTER (WHERE p.ended AND p.single = 0) AS acked,
         coalesce(array_agg(p.position) FILTER (WHERE NOT p.ended), '{}') AS rest
  INTO claim
  FROM (SELECT p.*, ack_for.ids IS NULL OR coalesce(p.id IN (SELECT unnest(ack_for.ids)), false) AS ended
        FROM (SELECT l.server, l.key_hash, l.single, unnest(l.ids) AS id, unnest(l.positions) AS position
              FROM (SELECT l.* FROM outbox.leases AS l
                    WHERE l.token = ack_for.token
                    ORDER BY l.key_hash, l.single FOR UPDATE) AS l) AS p) AS p;
  SELECT s.srvname INTO sink_name FROM pg_foreign_server AS s WHERE s.oid = claim.server;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  sink := outbox_internal.manual_sink(ack_for.caller, sink_name);
  IF claim.events IS NULL THEN
    RETURN 0;
  END IF;

  IF sink.keep THEN
    day := 'events_sent_' || to_char(acked_at AT TIME ZONE 'UTC', 'YYYYMMDD');
    IF NOT outbox_internal.has_day(day) THEN -- without a worker, the day is created here
      PERFORM outbox_internal.maintain_days(false);
    END IF;
    IF NOT outbox_internal.has_day(day) THEN
      sink.keep := false; -- better no audit trail than no acknowledgement
      RAISE WARNING 'outbox deletes acknowledged events although they should be kept'
        USING DETAIL = format('There is no partition outbox.%s.', day), HINT = 'SELECT outbox.run_maintenance();';
    END IF;
  END IF;
  IF sink.keep THEN
    WITH gone AS (
      DELETE FROM outbox.events_pending AS e
      WHERE e.position = ANY (claim.events) AND e.sink = sink_name
      RETURNING e.*),
    kept AS (
      INSERT INTO outbox.events (
        id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers,
        partition_key, dedup_key, seq, created_at, available_at, position, sink, xact, origin, application,
        overtaken_by, attempts, last_error, last_attempt_at, status, sent_at)
      SELECT
        e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.content_type, e.headers,
        e.partition_key, e.dedup_key, e.seq, e.created_at, e.available_at, e.position, e.sink, e.xact, e.origin,
        e.application, e.overtaken_by, e.attempts, e.last_error, e.last_attempt_at, 'SENT', acked_at
      FROM gone AS e)
    SELECT array_agg(outbox_internal.due_since(g.created_at, g.last_attempt_at, g.available_at, acked_at)) AS since,
           count(*) FILTER (WHERE g.redrive_late AND g.overtaken_by IS NOT NULL) AS late
    INTO deleted FROM gone AS g;
  ELSE
    WITH gone AS (
      DELETE FROM outbox.events_pending AS e
      WHERE e.position = ANY (claim.events) AND e.sink = sink_name
      RETURNING e.created_at, e.available_at, e.last_attempt_at, e.redrive_late, e.overtaken_by)
    SELECT array_agg(outbox_internal.due_since(g.created_at, g.last_attempt_at, g.available_at, acked_at)) AS since,
           count(*) FILTER (WHERE g.redrive_late AND g.overtaken_by IS NOT NULL) AS late
    INTO deleted FROM gone AS g;
  END IF;
  PERFORM outbox_internal.count_delivered(
    sink.server,
    ARRAY(SELECT (date_part('epoch', acked_at - t.since) * 1000000)::bigint FROM unnest(deleted.since) AS t (since)),
    deleted.late);
  IF cardinality(claim.rest) = 0 THEN
    DELETE FROM outbox.leases AS l WHERE l.token = ack_for.token;
  ELSE
    UPDATE outbox.leases AS l SET
      ids = r.ids,
      positions = r.positions,
      overtaken_by = greatest(l.overtaken_by, CASE WHEN sink.ordered THEN r.last END)
    FROM (SELECT l.ctid AS place,
                 array_agg(p.id ORDER BY p.position) FILTER (WHERE NOT e.ended) AS ids,
                 coalesce(array_agg(p.position ORDER BY p.position) FILTER (WHERE NOT e.ended), '{}') AS positions,
                 max(p.position) FILTER (WHERE e.ended) AS last
          FROM outbox.leases AS l CROSS JOIN LATERAL unnest(l.ids, l.positions) AS p (id, position)
          CROSS JOIN LATERAL (SELECT p.position IN (SELECT unnest(claim.events)) AS ended) AS e
          WHERE l.token = ack_for.token
          GROUP BY l.ctid
          HAVING bool_or(e.ended)) AS r
    WHERE l.ctid = r.place AND cardinality(r.positions) > 0;
    DELETE FROM outbox.leases AS l
    WHERE l.token = ack_for.token
      AND NOT EXISTS (SELECT FROM unnest(l.positions) AS p (position)
                      WHERE p.position NOT IN (SELECT unnest(claim.events)));
  END IF;

  -- Mark the earlier events of the same keys that the acknowledged ones have overtaken; there are seldom any. Dead
  -- letters come first: a redrive that is not yet committed is waited for, and then its event is a pending one.
  IF sink.ordered AND EXISTS (
    SELECT FROM (SELECT a.key, max(a.position) AS bound
                 FROM unnest(claim.keys, claim.acked) AS a (key, position)
                 GROUP BY a.key) AS k
    CROSS JOIN LATERAL (
      SELECT FROM outbox.events_failed AS f
      WHERE f.sink = sink_name AND hashtextextended(f.partition_key, 0) = k.key
        AND f.position + 0 < k.bound AND f.overtaken_by IS NULL
      UNION ALL
      SELECT FROM outbox.events_pending AS p
      WHERE p.sink = sink_name AND hashtextextended(p.partition_key, 0) = k.key
        AND p.position + 0 < k.bound AND p.overtaken_by IS NULL
        AND (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL)
      LIMIT 1) AS e)
  THEN
    UPDATE outbox.events_failed AS f SET
      overtaken_by = (SELECT min(a.position) FROM unnest(claim.keys, claim.acked) AS a (key, position)
                      WHERE a.key = hashtextextended(f.partition_key, 0) AND a.position > f.position)
    FROM (SELECT a.key, max(a.position) AS bound
          FROM unnest(claim.keys, claim.acked) AS a (key, position)
          GROUP BY a.key) AS k
    WHERE f.sink = sink_name AND hashtextextended(f.partition_key, 0) = k.key
      AND f.position + 0 < k.bound AND f.overtaken_by IS NULL;
    UPDATE outbox.events_pending AS p SET
      overtaken_by = (SELECT min(a.position) FROM unnest(claim.keys, claim.acked) AS a (key, position)
                      WHERE a.key = hashtextextended(p.partition_key, 0) AND a.position > p.position)
    FROM (SELECT a.key, max(a.position) AS bound
          FROM unnest(claim.keys, claim.acked) AS a (key, position)
          GROUP BY a.key) AS k
    WHERE p.sink = sink_name AND hashtextextended(p.partition_key, 0) = k.key
      AND p.position + 0 < k.bound AND p.overtaken_by IS NULL
      AND (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL);
    -- Events that were redriven without force, and overtaken by this acknowledgement, are dead letters again.
    PERFORM outbox_internal.move_to_failed(
      p.position, p.attempts,
      format('redriven too late: the later event of its key at position %s was delivered meanwhile; '
             'outbox.redrive() with force sends it late', p.overtaken_by)
        || coalesce('; before that: ' || p.last_error, ''),
      acked_at, p.overtaken_by)
    FROM outbox.events_pending AS p
    WHERE p.sink = sink_name AND hashtextextended(p.partition_key, 0) = ANY (claim.keys)
      AND p.redrive_late = false AND p.overtaken_by = ANY (claim.acked)
      AND p.position <> ALL (claim.rest);
  END IF;
  RETURN coalesce(cardinality(deleted.since), 0);
END
$$;
COMMENT ON FUNCTION outbox_internal.ack_for(oid, uuid, uuid[]) IS 'The work of outbox.ack() for its caller.';

