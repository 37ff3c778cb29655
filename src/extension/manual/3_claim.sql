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
@READS_BY_INDEX@ SET enable_nestloop = off
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

