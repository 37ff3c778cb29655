\echo Use "CREATE EXTENSION outbox_manual" to load this file. \quit
-- The extension outbox_manual: sinks whose events a program of the user's own claims and ends. Its C functions are in
-- the library of outbox: they need the delivery library's options and the counters in shared memory.

CREATE OR REPLACE FUNCTION outbox_internal.manual_validator(options text[], catalog oid) RETURNS void
LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_validator';
COMMENT ON FUNCTION outbox_internal.manual_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_manual when the DDL runs.';

CREATE FOREIGN DATA WRAPPER outbox_manual NO HANDLER VALIDATOR outbox_internal.manual_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_manual IS
  'Sinks whose events your own program claims, with outbox.claim(), outbox.ack() and outbox.nack(): CREATE SERVER '
  'name FOREIGN DATA WRAPPER outbox_manual OPTIONS (events ''order.*''). No worker delivers them. USAGE on this '
  'wrapper lets a role make sinks that take every event.';

CREATE OR REPLACE FUNCTION outbox.claim(
  sink text, "limit" integer DEFAULT 100, lease interval DEFAULT '30 seconds',
  OUT id uuid, OUT aggregate_type text, OUT aggregate_id text, OUT event_type text, OUT payload jsonb,
  OUT payload_bytes bytea, OUT content_type text, OUT headers jsonb, OUT partition_key text, OUT dedup_key text,
  OUT seq bigint, OUT created_at timestamptz, OUT attempts integer, OUT "position" bigint, OUT token uuid,
  OUT lease_until timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.claim(text, integer, interval) IS
  'Returns at most limit due events of a sink of kind outbox_manual, in order. Commit, handle them before '
  'lease_until, and then call outbox.ack(token, ids) or outbox.nack(). In an ordered sink no other claim gets '
  'events of the same keys until all of them are ended or the lease is over. A failing event blocks its key as in '
  'every sink. Concurrent claims do not wait for each other. A paused sink returns nothing and raises a notice. '
  'limit: 1 to 10000; lease: 1 ms to 7 days. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.ack(token uuid, ids uuid[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.ack(uuid, uuid[]) IS
  'Reports claimed events as delivered: they are deleted, or kept for the retention. Without ids: all events that '
  'the claim still has. Returns the number of accepted events, which is smaller if the lease was over and another '
  'claim has taken some, or if an outbox.nack() returned some to the table. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.nack(
  token uuid, id uuid, error text, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.nack(uuid, uuid, text, interval, boolean) IS
  'Reports a claimed event as failed: an attempt is counted, and the event comes again after retry_in, or as the '
  'sink''s option retry says. Later events of its key in the claim are returned to the table. After max_attempts, '
  'or at once with give_up, it becomes a dead letter. Returns its status, PENDING or FAILED, or NULL if the claim '
  'does not have the event any more. Needs USAGE on the foreign server.';

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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET enable_indexscan = on SET enable_tidscan = on SET enable_nestloop = on SET jit = off SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan
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
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET enable_indexscan = on SET enable_tidscan = on SET enable_nestloop = on SET jit = off SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
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

-- The work of outbox.claim(): which events are given out, and their leases. 2_end.sql says how claims, ack() and
-- nack() go together.

-- ROWS keeps the plan of lease_events() independent of the table's size when it is planned. STABLE: it reads with the
-- snapshot of the calling statement.
CREATE OR REPLACE FUNCTION outbox_internal.ready_events(
  sink text, ordered boolean, origin bigint, due_at timestamptz, most integer, blocked bigint[])
RETURNS TABLE ("position" bigint, place tid, writer xid, id uuid, key_hash bigint, single bigint)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT e.position, e.place, e.writer, e.id, e.key_hash, CASE WHEN e.key_hash = 0 THEN e.position ELSE 0 END
  FROM (
    (SELECT e.position, e.ctid AS place, e.xmin AS writer, e.id,
            CASE WHEN ready_events.ordered THEN coalesce(hashtextextended(e.partition_key, 0), 0)
                 ELSE 0 END AS key_hash
     FROM outbox.events_pending AS e
     WHERE e.sink = ready_events.sink AND e.available_at IS NOT NULL AND e.available_at <= due_at
       AND e.blocked_by IS NULL AND e.origin = ready_events.origin
       AND coalesce(hashtextextended(e.partition_key, 0), 0) NOT IN (SELECT unnest(blocked))
     ORDER BY e.sink, e.available_at, e.position LIMIT most)
    UNION ALL
    (SELECT e.position, e.ctid, e.xmin, e.id,
            CASE WHEN ready_events.ordered THEN coalesce(hashtextextended(e.partition_key, 0), 0)
                 ELSE 0 END
     FROM outbox.events_pending AS e
     WHERE e.available_at IS NULL
       AND (e.sink, e.position) > (ready_events.sink, 0)
       AND (e.sink, e.position) < (ready_events.sink, 9223372036854775807)
       AND e.origin = ready_events.origin
       AND coalesce(hashtextextended(e.partition_key, 0), 0) NOT IN (SELECT unnest(blocked))
     ORDER BY e.sink, e.position LIMIT most)) AS e;
END
$$;
COMMENT ON FUNCTION outbox_internal.ready_events(text, boolean, bigint, timestamptz, integer, bigint[]) IS
  'Part of outbox.claim(): the first due events of a sink in order of time, and the first events without a time in '
  'order of position: at most `most` of each, without the events of blocked keys.';

-- One statement is a pass, with one snapshot: with two, a later event could be seen without an earlier one of its key
-- that was committed before it. LATERAL, "+ 0" and the settings of claim_for() leave the planner one look at the
-- right index per key, also when it plans on empty tables.
--
-- The steps of a pass: `ready` events are due. `free` ones are not leased, and no earlier event of their key is in
-- front of them. `locked` ones have their rows locked by this claim. `taken` ones have no earlier event of their key
-- that could not be locked. `made` has their new leases.
CREATE OR REPLACE FUNCTION outbox_internal.lease_events(
  caller oid, sink_name text, most integer, lease interval, claim_token uuid,
  OUT given bigint[], OUT given_until timestamptz, OUT max_payload bigint)
RETURNS record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  sink record;
  pass_at timestamptz;
  span integer := most + 16; -- a pass reads this many events with a time, and as many without one
  n_ready integer;
  n_free integer;
  leased bigint[];
  blocked bigint[] := '{}'; -- keys without a free event
BEGIN
  given := '{}';
  SELECT s.*, EXISTS (SELECT FROM outbox.stopped_sinks AS p WHERE p.sink = sink_name) AS paused,
         outbox_internal.other_leases(s.server, s.ordered) AS leased_until
  INTO sink
  FROM outbox_internal.manual_sink(lease_events.caller, sink_name) AS s;
  max_payload := sink.max_payload;
  IF sink.paused THEN
    RAISE NOTICE 'sink "%" is paused: it gives out nothing', sink_name
      USING HINT = format('SELECT outbox.resume(%L);', sink_name);
    RETURN;
  ELSIF sink.leased_until IS NOT NULL THEN
    RAISE NOTICE 'sink "%" gives out nothing while earlier leases last', sink_name
      USING DETAIL = format('Until %s, events are leased that were claimed before its option ordered was changed.',
                            sink.leased_until),
      HINT = 'outbox.ack() and outbox.nack() with the tokens of these claims end the leases.';
    RETURN;
  END IF;
  FOR pass IN 1..20 LOOP
    pass_at := clock_timestamp();
    given_until := coalesce(given_until, pass_at + lease_events.lease);
    BEGIN
      WITH ready AS MATERIALIZED (
        SELECT e.*
        FROM outbox_internal.ready_events(sink_name, sink.ordered, sink.origin, pass_at, span, blocked) AS e
        -- After ALTER SERVER ... ordered, nothing is given out until the leases made before it have ended.
        WHERE NOT EXISTS (
          SELECT FROM outbox.leases AS l
          WHERE l.server = sink.server AND l.ordered = NOT sink.ordered AND l.lease_until > pass_at)),
      -- leased: NULL without a lease, false when its time is over. waits_at: later events of the key wait for the
      -- event at this position: one that failed or was redriven and is not in `ready`, or a dead letter that blocks.
      key AS MATERIALIZED (
        SELECT k.key_hash, k.single,
               (SELECT l.lease_until > pass_at FROM outbox.leases AS l
                WHERE l.server = sink.server AND l.ordered = sink.ordered
                  AND l.key_hash = k.key_hash AND l.single = k.single) AS leased,
               CASE WHEN k.single = 0 THEN least(
                 (SELECT min(t.position + 0) FROM outbox.events_pending AS t
                  WHERE t.sink = sink_name AND hashtextextended(t.partition_key, 0) = k.key_hash
                    AND (t.last_attempt_at IS NOT NULL OR t.redrive_late IS NOT NULL)
                    AND t.origin = sink.origin
                    AND t.position NOT IN (SELECT r.position FROM ready AS r)),
                 CASE WHEN sink.block THEN (
                   SELECT min(f.position + 0) FROM outbox.events_failed AS f
                   WHERE f.sink = sink_name AND hashtextextended(f.partition_key, 0) = k.key_hash
                     AND f.origin = sink.origin) END) END AS waits_at
        FROM (SELECT DISTINCT r.key_hash, r.single FROM ready AS r) AS k),
      free AS MATERIALIZED (
        SELECT r.*, k.leased
        FROM ready AS r JOIN key AS k ON k.key_hash = r.key_hash AND k.single = r.single
        WHERE k.leased IS NOT TRUE AND coalesce(r.position < k.waits_at, true)
        ORDER BY r.position),
      -- room: how many events the pass takes. 0 when too few are free and there are more to read: the next pass finds
      -- these again.
      found AS MATERIALIZED (
        SELECT n.*,
               CASE WHEN n.free >= most - cardinality(given) OR n.ready < span OR pass = 20
                    THEN most - cardinality(given)
                    ELSE 0 END AS room
        FROM (SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM free) AS free) AS n),
      -- Leases whose time is over. One that an ack() has locked at this moment stays.
      over AS MATERIALIZED (
        SELECT l.*
        FROM (SELECT DISTINCT f.key_hash, f.single FROM free AS f
              WHERE NOT f.leased AND (SELECT n.room > 0 FROM found AS n)) AS f
        CROSS JOIN LATERAL (
          SELECT l.ctid AS place, l.key_hash, l.single FROM outbox.leases AS l
          WHERE l.server = sink.server AND l.ordered = sink.ordered
            AND l.key_hash = f.key_hash AND l.single = f.single AND l.lease_until <= pass_at
          FOR UPDATE SKIP LOCKED) AS l),
      -- xmin: an event that was changed after it was read counts as locked by another session.
      locked AS MATERIALIZED (
        SELECT f.*
        FROM (SELECT f.* FROM free AS f
              WHERE f.leased IS NULL OR (f.key_hash, f.single) IN (SELECT l.key_hash, l.single FROM over AS l)
              ORDER BY f.position) AS f
        CROSS JOIN LATERAL (
          SELECT FROM outbox.events_pending AS e
          WHERE e.ctid = f.place AND e.position = f.position AND e.xmin = f.writer
          FOR UPDATE SKIP LOCKED) AS e
        LIMIT (SELECT n.room FROM found AS n)),
      -- An event that another session has locked blocks its key.
      missed AS (
        SELECT f.key_hash, min(f.position) AS position
        FROM free AS f
        WHERE f.single = 0
          AND f.position <= (SELECT max(l.position) FROM locked AS l)
          AND f.position NOT IN (SELECT l.position FROM locked AS l)
        GROUP BY f.key_hash),
      taken AS MATERIALIZED (
        SELECT l.*
        FROM locked AS l LEFT JOIN missed AS m ON m.key_hash = l.key_hash
        WHERE coalesce(l.position < m.position, true)),
      -- Only the leases of taken events are deleted: the former claim may still end the others.
      ended AS (
        DELETE FROM outbox.leases AS l WHERE l.ctid = ANY (ARRAY(
          SELECT o.place FROM over AS o
          WHERE (o.key_hash, o.single) IN (SELECT t.key_hash, t.single FROM taken AS t)))
        RETURNING l.key_hash),
      -- Leases are unique: of two claims that read the same key at the same time, one gets no lease. The count makes
      -- this step run after `ended`.
      made AS (
        INSERT INTO outbox.leases (server, ordered, key_hash, single, token, lease_until, ids, positions)
        SELECT sink.server, sink.ordered, t.key_hash, t.single, claim_token, given_until,
               array_agg(t.id), array_agg(t.position)
        FROM (SELECT t.* FROM taken AS t
              WHERE (SELECT count(*) FROM ended) >= 0
              ORDER BY t.key_hash, t.single, t.position) AS t
        GROUP BY t.key_hash, t.single
        ORDER BY t.key_hash, t.single
        ON CONFLICT DO NOTHING
        RETURNING positions)
      SELECT n.ready, n.free,
             ARRAY(SELECT unnest(m.positions) FROM made AS m),
             CASE WHEN n.free >= most - cardinality(given) THEN blocked
                  ELSE blocked || ARRAY(
                    SELECT k.key_hash FROM key AS k
                    WHERE k.single = 0 AND k.key_hash NOT IN (SELECT f.key_hash FROM free AS f)) END
      INTO n_ready, n_free, leased, blocked
      FROM found AS n;
      given := given || leased;
      -- The next pass reads further, without the blocked keys. When nothing is left to read, a second pass tries the
      -- rows again that other sessions had locked.
      EXIT WHEN cardinality(given) >= most OR (n_ready < span AND (cardinality(leased) = n_free OR pass > 1));
      span := least(span::bigint * 3, 100000000);
    EXCEPTION WHEN serialization_failure THEN
      -- An UPDATE of status moved an event to another partition between the snapshot and the lock.
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE;
      END IF;
    END;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox_internal.lease_events(oid, text, integer, interval, uuid) IS
  'Part of outbox.claim(): leases at most `most` events of a sink, in order within each key, and returns their '
  'positions and the end of the leases.';

CREATE OR REPLACE FUNCTION outbox_internal.claim_for(caller oid, sink text, "limit" integer, lease interval)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET enable_indexscan = on SET enable_tidscan = on SET enable_nestloop = on SET jit = off SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
  claim_token uuid := gen_random_uuid();
  given record;
  encoding text := nullif(current_setting('client_encoding'), getdatabaseencoding()::text);
  reason text;
  too_large boolean;
BEGIN
  IF num_nulls(claim_for.sink, claim_for."limit", claim_for.lease) > 0 THEN
    RAISE EXCEPTION '"%" must not be null',
        CASE WHEN claim_for.sink IS NULL THEN 'sink' WHEN claim_for."limit" IS NULL THEN 'limit' ELSE 'lease' END
      USING ERRCODE = 'null_value_not_allowed', HINT = 'Such as outbox.claim(''sink'', 100, ''30 seconds'').';
  ELSIF claim_for."limit" NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'limit of a claim is out of range' USING ERRCODE = 'invalid_parameter_value',
      DETAIL = format('It is %s, and must be between 1 and 10000.', claim_for."limit"),
      HINT = 'Claim as many as are handled well within the lease, and then again.';
  ELSIF claim_for.lease NOT BETWEEN '1 ms' AND '7 days' THEN
    RAISE EXCEPTION 'lease is out of range' USING ERRCODE = 'invalid_parameter_value',
      DETAIL = format('It is %s, and must be between 1 ms and 7 days.', claim_for.lease),
      HINT = 'Take longer than it takes to handle what is claimed at once: ''30 seconds''.';
  END IF;
  SELECT e.* INTO given
  FROM outbox_internal.lease_events(
    claim_for.caller, claim_for.sink, claim_for."limit", claim_for.lease, claim_token
  ) AS e (positions, until, max_payload);
  -- All events together (n = 0); if that fails, one by one. An event that cannot be read, or not be sent in the
  -- client's encoding, is returned to the table with its error, and later events of its key with it. One that is too
  -- large is a dead letter. The expressions in WHERE detoast all values, and the sort reads all events before it
  -- returns the first.
  FOR n IN 0..cardinality(given.positions) LOOP
    BEGIN
      RETURN QUERY
      SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.payload_bytes, e.content_type,
             e.headers, e.partition_key, e.dedup_key, e.seq, e.created_at, e.attempts, e.position,
             claim_token, given.until
      FROM outbox.events_pending AS e
      WHERE e.position = ANY (CASE WHEN n = 0 THEN given.positions ELSE given.positions[n:n] END)
        AND CASE WHEN outbox_internal.check_size(
              given.max_payload, e.payload, e.payload_bytes, e.headers, e.aggregate_type, e.aggregate_id,
              e.event_type, e.content_type, e.partition_key, e.dedup_key)
            THEN num_nulls(
              e.aggregate_type ~>=~ '', e.aggregate_id ~>=~ '', e.event_type ~>=~ '', jsonb_typeof(e.payload),
              e.payload_bytes >= '', e.content_type ~>=~ '', jsonb_typeof(e.headers), e.partition_key ~>=~ '',
              e.dedup_key ~>=~ '',
              CASE WHEN encoding IS NOT NULL THEN convert_to(
                concat_ws(' ', e.aggregate_type, e.aggregate_id, e.event_type, e.payload, e.content_type,
                          e.headers, e.partition_key, e.dedup_key),
                encoding) END) >= 0 END
        AND (n = 0 OR EXISTS (SELECT FROM outbox.leases AS l
                              WHERE l.token = claim_token AND e.position = ANY (l.positions)))
      ORDER BY e.position + 0;
      EXIT WHEN n = 0;
    EXCEPTION WHEN OTHERS THEN
      IF SQLSTATE ~ '^(40|57|58|53100|55P03)' THEN -- not the event's
        RAISE;
      ELSIF n = 0 THEN
        given.positions := ARRAY(SELECT p.position FROM unnest(given.positions) AS p (position) ORDER BY p.position);
      ELSE
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        too_large := SQLSTATE = '54000';
        reason := CASE WHEN too_large THEN SQLERRM || coalesce(': ' || nullif(reason, ''), '')
                       ELSE left('the event cannot be read: ' || SQLERRM, 255) END;
        PERFORM outbox_internal.record_failure(
          caller, claim_token, NULL, reason, '1 minute', too_large, given.positions[n]);
      END IF;
    END;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox_internal.claim_for(oid, text, integer, interval) IS
  'The work of outbox.claim() for its caller.';

-- What events of a sink of kind outbox_manual wait for, for outbox.sinks and outbox.story().

-- In a sink of kind outbox_manual blocked_by is not set: outbox.claim() looks for the event for which a key waits.
CREATE OR REPLACE FUNCTION outbox_internal.manual_blocked()
RETURNS TABLE (server oid, n bigint, due_since timestamptz)
LANGUAGE sql STABLE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET enable_indexscan = on SET enable_tidscan = on SET enable_nestloop = on SET jit = off SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan SET enable_nestloop = off
AS $$
  WITH here AS MATERIALIZED (SELECT l.origin FROM outbox_internal.library() AS l),
  heads AS MATERIALIZED (
    SELECT m.server, m.name, h.key_hash, min(h.position) AS position
    FROM (SELECT n.server, n.name,
                 'on_dead_letter=block' = ANY (coalesce(s.srvoptions, '{}')) AS block
          FROM outbox_internal.sink_names AS n
          JOIN pg_foreign_server AS s ON s.oid = n.server
          JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw
          WHERE w.kind = 'manual'
            AND coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(s.srvoptions) AS o
                          WHERE o.option_name = 'ordered'), true)) AS m
    CROSS JOIN LATERAL (
      (SELECT hashtextextended(e.partition_key, 0) AS key_hash, e.position FROM outbox.events_pending AS e
       WHERE (e.last_attempt_at IS NOT NULL OR e.redrive_late IS NOT NULL)
         AND e.available_at > statement_timestamp() AND e.partition_key IS NOT NULL
         AND e.sink = m.name AND e.origin = (SELECT here.origin FROM here)
       ORDER BY 1, 2 LIMIT 5000)
      UNION ALL
      (SELECT hashtextextended(f.partition_key, 0), f.position FROM outbox.events_failed AS f
       WHERE m.block AND f.sink = m.name AND f.partition_key IS NOT NULL
         AND f.origin = (SELECT here.origin FROM here)
       ORDER BY 1, 2 LIMIT 5000)) AS h
    GROUP BY m.server, m.name, h.key_hash),
  due AS (
    SELECT m.server, e.position, e.origin, hashtextextended(e.partition_key, 0) AS key_hash, e.since
    FROM (SELECT DISTINCT h.server, h.name FROM heads AS h) AS m
    CROSS JOIN LATERAL (
      (SELECT p.position, p.origin, p.blocked_by, p.partition_key, p.created_at AS since
       FROM outbox.events_pending AS p
       WHERE p.available_at IS NULL AND (p.sink, p.position) >= (m.name, 0)
         AND (p.sink, p.position) < (m.name, 9223372036854775807)
       ORDER BY p.sink, p.position LIMIT 5000)
      UNION ALL
      (SELECT p.position, p.origin, p.blocked_by, p.partition_key, greatest(p.created_at, p.available_at)
       FROM outbox.events_pending AS p
       WHERE p.available_at IS NOT NULL AND p.blocked_by IS NULL
         AND (p.sink, p.available_at) >= (m.name, '-infinity')
         AND (p.sink, p.available_at) <= (m.name, statement_timestamp())
       ORDER BY p.sink, p.available_at, p.position LIMIT 5000)) AS e
    WHERE e.blocked_by IS NULL)
  SELECT d.server, count(h.position), min(d.since) FILTER (WHERE h.position IS NULL)
  FROM due AS d
  LEFT JOIN heads AS h ON h.server = d.server AND h.key_hash = d.key_hash AND h.position < d.position
    AND d.origin = (SELECT here.origin FROM here)
  GROUP BY d.server
$$;
COMMENT ON FUNCTION outbox_internal.manual_blocked() IS
  'Part of outbox.sinks: for each ordered sink of kind outbox_manual with a failing event or a dead letter that '
  'blocks its key, the number of events behind such ones among its first 10,000 due events, and since when the first '
  'of the others has been due.';

CREATE OR REPLACE FUNCTION outbox_internal.claim_waits_for(pending bigint) RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off SET enable_indexscan = on SET enable_tidscan = on SET enable_nestloop = on SET jit = off SET max_parallel_workers_per_gather = 0 SET plan_cache_mode = force_generic_plan SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
  WITH event AS (
    SELECT e.position, e.sink, e.origin, hashtextextended(e.partition_key, 0) AS key_hash, s.oid AS server,
           'on_dead_letter=block' = ANY (coalesce(s.srvoptions, '{}')) AS block,
           coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(s.srvoptions) AS o
                     WHERE o.option_name = 'ordered'), true) AS ordered
    FROM outbox.events_pending AS e
    JOIN outbox_internal.sink_names AS n ON n.name = e.sink
    JOIN pg_foreign_server AS s ON s.oid = n.server
    WHERE e.position = claim_waits_for.pending),
  cause (n, said) AS (
    SELECT 1, format('the program that has claimed it until %s', l.lease_until)
    FROM event AS e JOIN outbox.leases AS l ON l.server = e.server
    WHERE e.position = ANY (l.positions) AND l.lease_until > clock_timestamp()
    UNION ALL
    SELECT 2, format('the end of leases, at %s, that were given before the option ordered of its sink was changed',
                     o.until)
    FROM event AS e CROSS JOIN LATERAL outbox_internal.other_leases(e.server, e.ordered) AS o (until)
    WHERE o.until IS NOT NULL
    UNION ALL
    SELECT 3, format('the program that has claimed other events of the same key until %s', l.lease_until)
    FROM event AS e JOIN outbox.leases AS l
      ON l.server = e.server AND l.ordered AND l.key_hash = e.key_hash AND l.single = 0
    WHERE e.ordered AND l.lease_until > clock_timestamp()
    UNION ALL
    (SELECT 4, format('event %s of the same key, %s: %s',
                      p.id,
                      CASE WHEN p.attempts = 0 THEN 'which waits'
                           ELSE 'which has failed ' || outbox_internal.counted(p.attempts, 'time', 'times') END,
                      left(p.last_error, 200))
     FROM event AS e CROSS JOIN LATERAL (
       SELECT p.id, p.attempts, p.last_error FROM outbox.events_pending AS p
       WHERE p.sink = e.sink AND hashtextextended(p.partition_key, 0) = e.key_hash AND p.position < e.position
         AND p.origin = e.origin AND p.available_at > clock_timestamp()
         AND (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL)
       ORDER BY p.position LIMIT 1) AS p
     WHERE e.ordered)
    UNION ALL
    (SELECT 5, format('event %s of the same key, a dead letter: %s', f.id, left(f.last_error, 200))
     FROM event AS e CROSS JOIN LATERAL (
       SELECT f.id, f.last_error FROM outbox.events_failed AS f
       WHERE f.sink = e.sink AND hashtextextended(f.partition_key, 0) = e.key_hash AND f.position < e.position
         AND f.origin = e.origin
       ORDER BY f.position LIMIT 1) AS f
     WHERE e.ordered AND e.block))
  SELECT coalesce((SELECT c.said FROM cause AS c ORDER BY c.n LIMIT 1), 'a program that claims it')
$$;
COMMENT ON FUNCTION outbox_internal.claim_waits_for(bigint) IS
  'Part of outbox.story(): what a due event of a sink of kind outbox_manual waits for.';

-- outbox.claim(), ack() and nack() work as the owner of the tables, who needs EXECUTE on the functions of this
-- extension.
DO $$
DECLARE
  item text;
BEGIN
  FOR item IN
    SELECT o.identity
    FROM pg_catalog.pg_depend AS d
    JOIN pg_catalog.pg_extension AS e ON d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
      AND e.oid = d.refobjid AND e.extname = 'outbox_manual',
      LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) AS o
    WHERE d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  LOOP
    EXECUTE format('ALTER FUNCTION %s OWNER TO %I', item,
                   (SELECT pg_get_userbyid(e.extowner) FROM pg_extension AS e WHERE e.extname = 'outbox'));
    EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', item);
  END LOOP;
END
$$;
