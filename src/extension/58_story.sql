-- The history of one event as text: from its transaction to its acknowledgement, or to what it waits for. It is read
-- from the tables: of an event that was delivered and deleted, only the failures are left. It tells no more than
-- these say, because more would cost each delivery.
-- A worker that has ended is replaced at once if it was told to end, and otherwise after 1 s to 1 min. Meanwhile the
-- other workers do not take over its shards.

CREATE OR REPLACE FUNCTION outbox_internal.shard_of(
  partition_key text, "position" bigint,
  OUT worker integer, OUT workers integer, OUT is_running boolean, OUT is_owned boolean
) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_shard_of';
COMMENT ON FUNCTION outbox_internal.shard_of(text, bigint) IS
  'Part of outbox.story(): which worker of how many is to serve a pending event, whether it runs, and whether one '
  'serves the event''s shard now. NULL: the launcher has not spread the shards.';

-- The first cause that holds. Causes that stop all sinks come before those that stop this event alone.
CREATE OR REPLACE FUNCTION outbox_internal.story_waits_for(
  pending bigint, kind text, state text, error text, paused_until timestamptz
) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  event record;
  blocker text;
  holders text[];
  claim text;
  shard record;
BEGIN
  SELECT p.*, p.ctid AS place INTO event FROM outbox.events_pending AS p WHERE p.position = pending;
  IF NOT FOUND THEN
    RETURN 'nothing any more: it has just ended';
  ELSIF event.origin <> (SELECT l.origin FROM outbox_internal.library() AS l) THEN
    RETURN 'outbox.adopt(): it was enqueued in another cluster or database';
  ELSIF event.sink IS NULL THEN
    RETURN CASE
      WHEN event.last_error IS NOT NULL THEN 'its routing, which failed: ' || event.last_error
      WHEN outbox_internal.has_taker(event.aggregate_type, event.event_type, event.headers)
        THEN 'its routing by a worker'
      ELSE 'a sink that takes it' END;
  END IF;
  SELECT format('event %s of the same key, %s: %s', b.id,
                CASE WHEN b.dead THEN 'a dead letter'
                     WHEN b.attempts = 0 THEN 'which waits'
                     ELSE 'which has failed ' || outbox_internal.counted(b.attempts, 'time', 'times') END,
                left(b.last_error, 200))
  INTO blocker
  FROM (SELECT p.id, p.attempts, p.last_error, false AS dead
        FROM outbox.events_pending AS p WHERE p.position = event.blocked_by
        UNION ALL
        SELECT f.id, f.attempts, f.last_error, true
        FROM outbox.events_failed AS f WHERE f.position = event.blocked_by) AS b;
  SELECT s.* INTO shard FROM outbox_internal.shard_of(event.partition_key, event.position) AS s;
  holders := outbox_internal.row_holders(event.place);
  IF story_waits_for.kind = 'manual' THEN
    claim := outbox_internal.claim_waits_for(event.position); -- of the extension, without which there is no such sink
  END IF;
  RETURN CASE
    WHEN blocker IS NOT NULL THEN blocker
    WHEN coalesce(story_waits_for.state, 'dropped') = 'dropped' THEN 'its sink, which does not exist any more'
    WHEN story_waits_for.state IN ('paused', 'not preloaded', 'no worker', 'misconfigured', 'circuit open',
                                   'recording fails', 'worker stands still')
      OR story_waits_for.state LIKE 'disabled%' OR story_waits_for.state LIKE 'waiting for%'
      THEN format('its sink, which is in the state "%s"%s', story_waits_for.state,
                  coalesce(': ' || left(story_waits_for.error, 200), ''))
    WHEN story_waits_for.state = 'paused by endpoint'
      THEN format('its sink, which asked for a pause until %s', story_waits_for.paused_until)
    WHEN event.available_at > clock_timestamp() AND event.last_attempt_at IS NULL
      THEN format('the time for which it is scheduled, %s', event.available_at)
    WHEN event.available_at > clock_timestamp() THEN format('its next attempt at %s', event.available_at)
    WHEN cardinality(holders) > 0
      THEN format('transaction %s, which has locked its row: SELECT l.transactionid, a.* FROM pg_locks AS l '
                  'LEFT JOIN pg_stat_activity AS a USING (pid) WHERE l.granted AND l.transactionid::text = ANY (%L); '
                  'without a pid it is prepared: SELECT * FROM pg_prepared_xacts',
                  array_to_string(holders, ', '), holders)
    WHEN claim IS NOT NULL THEN claim
    WHEN shard.is_owned IS NOT FALSE OR (SELECT l.idle FROM outbox_internal.library() AS l)
      THEN format('the worker, which delivers it next (the sink is in the state "%s")', story_waits_for.state)
    WHEN shard.is_running THEN format('worker %s of %s, which takes over its shard', shard.worker, shard.workers)
    ELSE format('worker %s of %s, which serves its shard and does not run: outbox.doctor() says why',
                shard.worker, shard.workers) END;
END
$$;
COMMENT ON FUNCTION outbox_internal.story_waits_for(bigint, text, text, text, timestamptz) IS
  'Part of outbox.story(): what a pending event waits for. The sink is as outbox.sinks shows it, or NULL.';

-- A day of delivered events has no index on the id, so it is read as a whole, and not by its index on the position.
CREATE OR REPLACE FUNCTION outbox_internal.story_sent(id uuid) RETURNS SETOF outbox.events_sent
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = on SET jit = off
AS $$ SELECT s.* FROM outbox.events_sent AS s WHERE s.id = story_sent.id $$;
COMMENT ON FUNCTION outbox_internal.story_sent(uuid) IS
  'Part of outbox.story(): the delivered events with this id that are kept.';

CREATE OR REPLACE FUNCTION outbox.story(id uuid) RETURNS TABLE (at timestamptz, sink text, what text, detail text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE ROWS 20 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@ SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
  WITH pending AS MATERIALIZED (SELECT p.* FROM outbox.events_pending AS p WHERE p.id = story.id),
  kept AS MATERIALIZED (
    SELECT p.* FROM pending AS p
    UNION ALL SELECT f.* FROM outbox.events_failed AS f WHERE f.id = story.id
    UNION ALL SELECT s.* FROM outbox_internal.story_sent(story.id) AS s),
  failures AS MATERIALIZED (SELECT a.* FROM outbox_internal.failed_attempts AS a WHERE a.event_id = story.id),
  -- Of an event that is gone, the end is not known.
  life AS (
    SELECT min(l.begun) AS begun, max(l.ended) AS ended
    FROM (SELECT k.created_at AS begun, coalesce(k.sent_at, clock_timestamp()) AS ended FROM kept AS k
          UNION ALL
          SELECT a.ended_at, CASE WHEN EXISTS (SELECT FROM kept) THEN a.ended_at ELSE 'infinity' END
          FROM failures AS a) AS l),
  -- A redrive gives the row a transaction of its own. For six days it is known that there was none.
  first AS (
    SELECT k.*, k.redrive_late IS NULL AND k.created_at > clock_timestamp() - interval '6 days'
                AND NOT EXISTS (SELECT FROM failures AS a WHERE a.redriven_by IS NOT NULL) AS xact_is_known
    FROM kept AS k ORDER BY k.position LIMIT 1),
  targets AS MATERIALIZED (SELECT s.* FROM outbox.sinks AS s WHERE EXISTS (SELECT FROM pending)),
  lines (n, at, sink, what, detail) AS (
    SELECT 1, f.created_at, NULL, 'enqueued',
           format('%s, %s%s, by %s%s%s',
                  f.event_type, f.aggregate_type, coalesce(' ' || f.aggregate_id, ''),
                  CASE WHEN f.xact_is_known THEN 'transaction ' || f.xact ELSE 'a transaction' END,
                  coalesce(' of application "' || f.application || '"', ''),
                  coalesce(', traceparent ' || (f.headers ->> 'traceparent'), ''))
    FROM first AS f
    UNION ALL
    SELECT 2,
           CASE WHEN k.again
                THEN greatest(k.created_at, least(
                  k.available_at, k.last_attempt_at, k.sent_at,
                  (SELECT min(coalesce(a.started_at, a.ended_at)) FROM failures AS a
                   WHERE a.sink = k.sink AND a.position = k.position)))
                ELSE k.created_at END,
           k.sink, CASE WHEN k.again THEN 'sent again' ELSE 'routed' END,
           format('position %s%s', k.position,
                  coalesce(', key ' || quote_literal(k.partition_key), ', without a key'))
    FROM (SELECT k.*, row_number() OVER (PARTITION BY k.sink ORDER BY k.position) > 1
                      OR (f.xact_is_known AND k.xact <> f.xact) AS again
          FROM kept AS k CROSS JOIN first AS f) AS k
    WHERE k.sink IS NOT NULL
    UNION ALL
    SELECT 3, f.created_at, n.name,
           CASE WHEN r.option IS NULL AND NOT r.unrouted THEN 'no row is kept' ELSE 'not routed' END,
           CASE WHEN r.option IS NULL AND r.unrouted THEN 'it has yet to be routed'
                WHEN r.option IS NULL THEN
                  'it takes such events: this one was delivered there and is not kept, or deleted by a user, or '
                  'enqueued for named sinks; or the sink is newer, or its options or its name were changed'
                WHEN r.option = '' THEN 'it has just been dropped or renamed'
                ELSE format('its option %s is %s', r.option, coalesce(
                  (SELECT quote_literal(o.option_value)
                   FROM pg_foreign_server AS s CROSS JOIN LATERAL pg_options_to_table(s.srvoptions) AS o
                   WHERE s.oid = n.server AND o.option_name = r.option),
                  'not set, and a type that begins with "outbox." goes only to sinks that name it')) END
    FROM first AS f CROSS JOIN outbox_internal.sink_names AS n
    CROSS JOIN LATERAL (
      SELECT outbox_internal.route_refusal(n.name, f.aggregate_type, f.event_type, f.headers) AS option,
             EXISTS (SELECT FROM pending AS p WHERE p.sink IS NULL) AS unrouted) AS r
    WHERE n.name NOT IN (SELECT k.sink FROM kept AS k WHERE k.sink IS NOT NULL
                         UNION ALL SELECT a.sink FROM failures AS a)
    UNION ALL
    SELECT 3, greatest(d.dropped_at, f.created_at), d.name, 'sink dropped',
           CASE WHEN d.dropped_at < f.created_at
                THEN format('such events went there until %s, when role "%s" dropped it', d.dropped_at, d.dropped_by)
                ELSE format('by role "%s"', d.dropped_by) END
    FROM first AS f CROSS JOIN outbox_internal.dropped_sinks AS d
    WHERE d.name IN (SELECT k.sink FROM kept AS k WHERE k.status <> 'SENT')
       OR (d.dropped_at >= f.created_at OR EXISTS (SELECT FROM pending AS p WHERE p.sink IS NULL))
          AND outbox_internal.dropped_sink_takes(d.options, f.aggregate_type, f.event_type, f.headers)
    UNION ALL
    SELECT 3, greatest(b.due, min(CASE WHEN a.redriven_by IS NULL THEN a.ended_at ELSE a.started_at END)), b.sink,
           'was blocked',
           format('by event %s of the same key, at least until %s', a.event_id, max(a.blocks_until))
    FROM (SELECT k.position, k.sink, hashtextextended(k.partition_key, 0) AS hash, k.blocked_by,
                 greatest(k.created_at, CASE WHEN k.last_attempt_at IS NULL THEN k.available_at END) AS due,
                 coalesce(k.sent_at, clock_timestamp()) AS ended
          FROM kept AS k) AS b
    JOIN outbox_internal.failed_attempts AS a
      ON a.sink = b.sink AND a.key_hash = b.hash AND a.position < b.position
         AND a.position IS DISTINCT FROM b.blocked_by AND a.blocks_until > b.due AND a.blocks_until <= b.ended
    GROUP BY b.position, b.sink, b.due, a.event_id
    UNION ALL
    SELECT 4, a.ended_at, a.sink,
           CASE WHEN a.attempt IS NULL THEN 'put off' ELSE format('attempt %s failed', a.attempt) END,
           concat_ws(
             ', ',
             CASE WHEN a.started_at IS NOT NULL
                  THEN format('after %s ms', round(1000 * date_part('epoch', a.ended_at - a.started_at))) END,
             CASE WHEN a.attempt IS NULL THEN 'no attempt is spent' END,
             coalesce('worker ' || a.worker, 'outbox.nack()')) || ': ' || a.error
    FROM failures AS a WHERE a.redriven_by IS NULL
    UNION ALL
    SELECT 5, a.started_at, a.sink, 'dead letter',
           format('after %s: %s', outbox_internal.counted(a.attempt, 'attempt', 'attempts'), a.error)
    FROM failures AS a WHERE a.redriven_by IS NOT NULL AND a.started_at IS NOT NULL
    UNION ALL
    SELECT 6, a.ended_at, a.sink, 'redriven', format('by role "%s"', a.redriven_by)
    FROM failures AS a WHERE a.redriven_by IS NOT NULL
    UNION ALL
    SELECT 5, coalesce(k.last_attempt_at, k.created_at), k.sink, 'dead letter',
           concat_ws(
             ': ',
             format('after %s%s', outbox_internal.counted(k.attempts, 'attempt', 'attempts'),
                    coalesce('; the later event of its key at position ' || k.overtaken_by
                             || ' was delivered meanwhile', '')),
             CASE WHEN k.last_attempt_at IS NULL THEN 'a user set its status' END,
             k.last_error)
    FROM kept AS k WHERE k.status = 'FAILED'
    UNION ALL
    SELECT 7, k.sent_at, k.sink, 'delivered',
           concat_ws(
             ', ',
             k.acknowledgement,
             CASE WHEN k.attempts > 0
                  THEN 'after ' || outbox_internal.counted(k.attempts, 'failed attempt', 'failed attempts') END)
    FROM kept AS k WHERE k.status = 'SENT'
    UNION ALL
    SELECT 8, greatest(f.since, l.begun), NULL, 'not all kept',
           'of this UTC day no further failed attempts and redrives are kept: they take a gigabyte'
    FROM life AS l CROSS JOIN outbox_internal.full_failure_days() AS f
    WHERE l.ended >= f.since AND l.begun < date_trunc('day', f.since, 'UTC') + interval '24 hours'
    UNION ALL
    SELECT 9, clock_timestamp(), p.sink, 'waits',
           'for ' || outbox_internal.story_waits_for(p.position, t.kind, t.state, t.last_error, t.paused_until)
    FROM pending AS p LEFT JOIN targets AS t ON t.name = p.sink
    UNION ALL
    SELECT 10, clock_timestamp(), NULL, CASE WHEN e.existed THEN 'gone' ELSE 'unknown' END,
           'no row has this id: it was delivered to all its sinks and deleted '
           '(outbox.retention keeps what is delivered), deleted by a user'
           || CASE WHEN e.existed THEN '' ELSE ', rolled back, or never enqueued' END
    FROM (SELECT EXISTS (SELECT FROM failures) AS existed) AS e
    WHERE NOT EXISTS (SELECT FROM kept))
  SELECT l.at, l.sink, l.what, l.detail FROM lines AS l ORDER BY l.at, l.n, l.sink
$$;
COMMENT ON FUNCTION outbox.story(uuid) IS
  'Tells the way of one event, in the order of time: when it was enqueued, which sinks got it and why others did '
  'not, which failing events of its key it has waited for, its failed attempts and redrives of the last six days, '
  'whether it was delivered, or what it waits for. Without the payload. Like outbox.event_status() it needs EXECUTE '
  'and the id.';
