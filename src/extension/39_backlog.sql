-- The counts and ages of outbox.sinks, from the committed rows. They read a bounded number of rows.
-- The oldest event of a sink is the first in the sink's order, and a scheduled event counts since it was due.
-- A table of up to 12 MB is counted whole; of a larger one each sink's first rows are counted by the index, and 300
-- pages are a sample of the rest. Dropped sinks are found in the gaps between the names of existing ones, one look at
-- an index for each: SELECT DISTINCT sink would read all rows. With 10 million events and 1,000 sinks it takes 0.2 s
-- of CPU.

-- Each gap between the names of two sinks is one look at each index, and one more for each dropped sink in it; no row
-- of an existing sink is read.
CREATE OR REPLACE FUNCTION outbox_internal.dropped_sinks() RETURNS TABLE (sink text)
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  WITH RECURSIVE names AS MATERIALIZED (SELECT n.name FROM outbox_internal.sink_names AS n UNION ALL SELECT ''),
  gaps (low, high) AS (
    SELECT n.name, lead(n.name) OVER (ORDER BY n.name)
    FROM names AS n
    UNION ALL
    SELECT f.sink, g.high FROM gaps AS g CROSS JOIN LATERAL (
      SELECT min(r.sink) AS sink
      FROM ((SELECT e.sink FROM outbox.events_pending AS e
             WHERE g.high IS NOT NULL AND e.available_at IS NULL AND e.sink > g.low AND e.sink < g.high
             ORDER BY e.sink, e.position LIMIT 1)
            UNION ALL
            (SELECT e.sink FROM outbox.events_pending AS e
             WHERE g.high IS NULL AND e.available_at IS NULL AND e.sink > g.low
             ORDER BY e.sink, e.position LIMIT 1)
            UNION ALL
            (SELECT e.sink FROM outbox.events_pending AS e
             WHERE g.high IS NOT NULL AND e.available_at IS NOT NULL AND e.blocked_by IS NULL
               AND e.sink > g.low AND e.sink < g.high
             ORDER BY e.sink, e.available_at, e.position LIMIT 1)
            UNION ALL
            (SELECT e.sink FROM outbox.events_pending AS e
             WHERE g.high IS NULL AND e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.sink > g.low
             ORDER BY e.sink, e.available_at, e.position LIMIT 1)
            UNION ALL
            (SELECT e.sink FROM outbox.events_failed AS e
             WHERE g.high IS NOT NULL AND e.sink > g.low AND e.sink < g.high
             ORDER BY e.sink, hashtextextended(e.partition_key, 0), e.position LIMIT 1)
            UNION ALL
            (SELECT e.sink FROM outbox.events_failed AS e WHERE g.high IS NULL AND e.sink > g.low
             ORDER BY e.sink, hashtextextended(e.partition_key, 0), e.position LIMIT 1)) AS r) AS f
    WHERE f.sink IS NOT NULL)
  SELECT g.low FROM gaps AS g WHERE g.low <> '' AND NOT EXISTS (SELECT FROM names AS n WHERE n.name = g.low)
$$;
COMMENT ON FUNCTION outbox_internal.dropped_sinks() IS
  'Part of outbox.sinks: sinks that were dropped and that still have pending events or dead letters.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_dead_letters(names text[])
RETURNS TABLE (sink text, n bigint, estimated boolean)
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
#variable_conflict use_column
DECLARE
  pages bigint := pg_relation_size('outbox.events_failed') / current_setting('block_size')::bigint;
  share double precision := 30000.0 / greatest(pages, 300); -- percent: 300 pages
  counted bigint := greatest(5, 5000 / greatest(cardinality(names), 1)); -- rows per sink
BEGIN
  IF pages <= 1500 THEN
    RETURN QUERY
    SELECT e.sink, count(*), false FROM outbox.events_failed AS e TABLESAMPLE SYSTEM (100) GROUP BY e.sink;
    RETURN;
  END IF;
  RETURN QUERY
  WITH sample AS (
    SELECT e.sink, (count(*) * 100 / share)::bigint AS n
    FROM outbox.events_failed AS e TABLESAMPLE SYSTEM (share) REPEATABLE (1)
    GROUP BY e.sink)
  SELECT s.name, CASE WHEN f.n < counted THEN f.n ELSE greatest(f.n, p.n) END, f.n >= counted
  FROM unnest(names) AS s (name)
  CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (SELECT FROM outbox.events_failed AS e WHERE e.sink = s.name
          ORDER BY hashtextextended(e.partition_key, 0), e.position LIMIT counted) AS r) AS f
  LEFT JOIN sample AS p ON p.sink = s.name;
END
$$;
COMMENT ON FUNCTION outbox_internal.sink_dead_letters(text[]) IS
  'Part of outbox_internal.sink_backlog(): the number of dead letters of sinks, by the names in the rows. In a '
  'large table the first ones are counted by the index, and the others are estimated from a sample.';

-- In a sink of kind outbox_manual blocked_by is not set: its extension finds the events that wait for others.
CREATE OR REPLACE FUNCTION outbox_internal.blocked_claims()
RETURNS TABLE (server oid, n bigint, due_since timestamptz)
LANGUAGE plpgsql STABLE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF EXISTS (SELECT FROM outbox_internal.wrappers AS w WHERE w.kind = 'manual') THEN
    RETURN QUERY SELECT m.* FROM outbox_internal.manual_blocked() AS m;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.blocked_claims() IS
  'Part of outbox.sinks: what outbox_internal.manual_blocked() says, if the extension outbox_manual is there.';

-- min(origin) would pass every row that was delivered since the oldest snapshot: in the index these are the first
-- ones.
CREATE OR REPLACE FUNCTION outbox_internal.has_rows_of_elsewhere(here bigint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT EXISTS (SELECT FROM (SELECT FROM outbox.events_pending AS e WHERE e.origin < has_rows_of_elsewhere.here
                              ORDER BY e.origin, e.xact, e.position LIMIT 1) AS f)
      OR EXISTS (SELECT FROM (SELECT FROM outbox.events_pending AS e WHERE e.origin > has_rows_of_elsewhere.here
                              ORDER BY e.origin, e.xact, e.position LIMIT 1) AS f)
$$;
COMMENT ON FUNCTION outbox_internal.has_rows_of_elsewhere(bigint) IS
  'Whether pending events have another origin than this one.';

-- A small table is counted in one pass. Of a large one each sink's first rows are counted by the indexes, so that no
-- sink is overlooked, and its further rows are estimated from a sample of the table's pages. Ages come from rows that
-- the indexes find, so they are exact; of very many failing events the oldest may be none of these.
CREATE OR REPLACE FUNCTION outbox_internal.sink_backlog(
  OUT server oid, OUT dropped text, OUT pending bigint, OUT scheduled bigint, OUT blocked bigint, OUT failing bigint,
  OUT due bigint, OUT dead bigint, OUT estimated boolean, OUT waiting_since timestamptz, OUT due_since timestamptz
) RETURNS SETOF record
LANGUAGE plpgsql STABLE ROWS 10 PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
#variable_conflict use_column
DECLARE
  at timestamptz := clock_timestamp();
  pages bigint := pg_relation_size('outbox.events_pending') / current_setting('block_size')::bigint;
  share double precision := 30000.0 / greatest(pages, 300); -- percent: 300 pages
  here bigint := (SELECT l.origin FROM outbox_internal.library() AS l);
  elsewhere boolean; -- there are rows of another origin, for which the worker's bounds do not hold
  lost text[] := ARRAY(SELECT d.sink FROM outbox_internal.dropped_sinks() AS d);
  all_names text[] := lost || ARRAY(SELECT n.name FROM outbox_internal.sink_names AS n);
  counted bigint; -- rows per sink
  counted_apart bigint := 2000; -- rows behind a failing one, of all sinks together
BEGIN
  IF pages <= 1500 THEN
    RETURN QUERY
    WITH names AS MATERIALIZED (
      SELECT n.server, NULL AS dropped, n.name FROM outbox_internal.sink_names AS n
      UNION ALL SELECT NULL, l, l FROM unnest(lost) AS l),
    rows AS (
      SELECT e.sink,
             count(*) AS n,
             count(*) FILTER (WHERE e.available_at > at AND e.last_attempt_at IS NULL) AS scheduled,
             count(*) FILTER (WHERE e.blocked_by IS NOT NULL) AS blocked,
             count(*) FILTER (
               WHERE e.blocked_by IS NULL AND e.available_at > at AND e.last_attempt_at IS NOT NULL) AS failing,
             count(*) FILTER (
               WHERE e.blocked_by IS NULL AND (e.available_at IS NULL OR e.available_at <= at)) AS due,
             min(CASE WHEN e.available_at IS NULL OR e.last_attempt_at IS NOT NULL THEN e.created_at
                      WHEN e.available_at <= at THEN greatest(e.created_at, e.available_at) END) AS since,
             min(greatest(e.created_at, e.available_at)) FILTER (
               WHERE e.blocked_by IS NULL AND (e.available_at IS NULL OR e.available_at <= at)) AS due_since
      FROM outbox.events_pending AS e TABLESAMPLE SYSTEM (100)
      GROUP BY e.sink)
    SELECT n.server, n.dropped,
           coalesce(r.n, 0), coalesce(r.scheduled, 0), coalesce(r.blocked + coalesce(m.n, 0), 0),
           coalesce(r.failing, 0), greatest(r.due - coalesce(m.n, 0), 0), coalesce(d.n, 0),
           coalesce(d.estimated, false), r.since, CASE WHEN m.n > 0 THEN m.due_since ELSE r.due_since END
    FROM names AS n
    LEFT JOIN rows AS r ON r.sink = n.name
    LEFT JOIN outbox_internal.sink_dead_letters(all_names) AS d ON d.sink = n.name
    LEFT JOIN outbox_internal.blocked_claims() AS m ON m.server = n.server;
    RETURN;
  END IF;

  counted := greatest(5, 5000 / greatest(cardinality(all_names), 1));
  elsewhere := outbox_internal.has_rows_of_elsewhere(here);
  RETURN QUERY
  WITH names AS MATERIALIZED (
    SELECT n.server, NULL AS dropped, n.name,
           CASE WHEN elsewhere THEN 0 ELSE coalesce(s.low_watermark, 0) END AS low_watermark
    FROM outbox_internal.sink_names AS n LEFT JOIN outbox_internal.sink_statistics() AS s ON s.server = n.server
    UNION ALL SELECT NULL, l, l, 0 FROM unnest(lost) AS l),
  sample AS (
    SELECT e.sink,
           count(*) * 100 / share AS n,
           count(*) FILTER (WHERE e.available_at > at AND e.last_attempt_at IS NULL) * 100 / share AS scheduled,
           count(*) FILTER (WHERE e.blocked_by IS NOT NULL) * 100 / share AS blocked,
           count(*) FILTER (
             WHERE e.blocked_by IS NULL AND e.available_at > at AND e.last_attempt_at IS NOT NULL) * 100 / share
             AS failing,
           min(e.created_at) FILTER (WHERE e.last_attempt_at IS NOT NULL) AS failing_since,
           count(*) FILTER (
             WHERE e.blocked_by IS NULL AND (e.available_at IS NULL OR e.available_at <= at)) * 100 / share AS due
    FROM outbox.events_pending AS e TABLESAMPLE SYSTEM (share) REPEATABLE (1)
    GROUP BY e.sink),
  -- The first events without a time. Row comparisons and the order leave the planner one index for each of the
  -- following steps, with any statistics of the table.
  ready AS (
    SELECT n.name, n.low_watermark, f.*
    FROM names AS n CROSS JOIN LATERAL (
      SELECT count(*) AS n,
             count(*) FILTER (WHERE r.blocked_by IS NULL) AS due,
             min(r.created_at) AS since,
             min(r.created_at) FILTER (WHERE r.blocked_by IS NULL) AS due_since
      FROM (SELECT e.created_at, e.blocked_by FROM outbox.events_pending AS e
            WHERE e.available_at IS NULL AND (e.sink, e.position) >= (n.name, n.low_watermark)
              AND (e.sink, e.position) < (n.name, 9223372036854775807)
            ORDER BY e.sink, e.position LIMIT counted) AS r) AS f),
  -- The first one that can be delivered, of a sink whose counted events all wait for a failing one.
  ready_behind AS (
    SELECT n.name, f.created_at AS since
    FROM ready AS n CROSS JOIN LATERAL (
      SELECT r.created_at
      FROM (SELECT e.created_at, e.blocked_by FROM outbox.events_pending AS e
            WHERE e.available_at IS NULL AND (e.sink, e.position) >= (n.name, n.low_watermark)
              AND (e.sink, e.position) < (n.name, 9223372036854775807)
            ORDER BY e.sink, e.position LIMIT counted_apart) AS r
      WHERE r.blocked_by IS NULL LIMIT 1) AS f
    WHERE n.due = 0 AND n.n = counted),
  timed AS (
    SELECT n.name, f.*
    FROM names AS n CROSS JOIN LATERAL (
      SELECT count(*) AS n,
             count(*) FILTER (WHERE r.available_at > at AND r.last_attempt_at IS NULL) AS scheduled,
             count(*) FILTER (WHERE r.available_at > at AND r.last_attempt_at IS NOT NULL) AS failing,
             min(r.created_at) FILTER (WHERE r.last_attempt_at IS NOT NULL) AS failing_since,
             count(*) FILTER (WHERE r.available_at <= at) AS due,
             min(greatest(r.created_at, r.available_at)) FILTER (
               WHERE r.available_at <= at AND r.last_attempt_at IS NULL) AS since,
             min(greatest(r.created_at, r.available_at)) FILTER (WHERE r.available_at <= at) AS due_since
      FROM (SELECT e.created_at, e.available_at, e.last_attempt_at FROM outbox.events_pending AS e
            WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL
              AND (e.sink, e.available_at) >= (n.name, '-infinity')
              AND (e.sink, e.available_at) <= (n.name, 'infinity')
            ORDER BY e.sink, e.available_at, e.position LIMIT counted) AS r) AS f),
  -- The first due one that has not failed, of a sink whose counted events with a time have all failed before.
  timed_behind AS (
    SELECT n.name, f.since
    FROM timed AS n CROSS JOIN LATERAL (
      SELECT greatest(e.created_at, e.available_at) AS since FROM outbox.events_pending AS e
      WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.last_attempt_at IS NULL
        AND (e.sink, e.available_at) >= (n.name, '-infinity')
        AND (e.sink, e.available_at) <= (n.name, at)
      ORDER BY e.sink, e.available_at, e.position LIMIT 1) AS f
    WHERE n.since IS NULL AND n.n = counted),
  blocked AS MATERIALIZED (
    SELECT e.sink,
           count(*) AS n,
           count(e.available_at) AS timed,
           count(*) FILTER (WHERE e.available_at > at AND e.last_attempt_at IS NULL) AS scheduled
    FROM (SELECT sink, available_at, last_attempt_at FROM outbox.events_pending
          WHERE blocked_by IS NOT NULL ORDER BY blocked_by, position LIMIT counted_apart) AS e
    GROUP BY e.sink),
  whole AS MATERIALIZED (SELECT (SELECT coalesce(sum(h.n), 0) FROM blocked AS h) < counted_apart AS apart),
  -- In this index stand failing events and redriven ones, in the order of their keys.
  failing AS (
    SELECT n.name, f.*
    FROM names AS n CROSS JOIN LATERAL (
      SELECT count(*) AS read,
             count(*) FILTER (
               WHERE r.blocked_by IS NULL AND r.available_at > at AND r.last_attempt_at IS NOT NULL) AS n,
             min(r.created_at) FILTER (WHERE r.last_attempt_at IS NOT NULL) AS since
      FROM (SELECT e.created_at, e.available_at, e.last_attempt_at, e.blocked_by FROM outbox.events_pending AS e
            WHERE (e.last_attempt_at IS NOT NULL OR e.redrive_late IS NOT NULL)
              AND e.sink = n.name
            ORDER BY e.sink, hashtextextended(e.partition_key, 0), e.position LIMIT counted) AS r) AS f)
  -- Where not all rows were counted, the estimate from the sample is shown if it is higher.
  SELECT n.server, n.dropped,
         greatest(r.n + t.n + coalesce(h.timed, 0), CASE WHEN NOT k.whole THEN s.n END)::bigint,
         greatest(t.scheduled + coalesce(h.scheduled, 0), CASE WHEN NOT k.whole THEN s.scheduled END)::bigint,
         greatest(coalesce(h.n, 0), CASE WHEN NOT w.apart THEN s.blocked END)::bigint + coalesce(m.n, 0),
         greatest(f.n, t.failing, CASE WHEN f.read = counted THEN s.failing END)::bigint,
         greatest(greatest(greatest(r.due, (b.since IS NOT NULL)::integer) + t.due,
                           CASE WHEN r.n = counted OR t.n = counted THEN s.due END)::bigint - coalesce(m.n, 0), 0),
         coalesce(d.n, 0),
         NOT k.whole OR f.read = counted OR coalesce(d.estimated, false),
         least(r.since, t.since, l.since, f.since,
               CASE WHEN f.read = counted THEN least(t.failing_since, s.failing_since) END),
         CASE WHEN m.n > 0 THEN m.due_since ELSE least(r.due_since, b.since, t.due_since) END
  FROM names AS n
  CROSS JOIN whole AS w
  JOIN ready AS r ON r.name = n.name
  JOIN timed AS t ON t.name = n.name
  JOIN failing AS f ON f.name = n.name
  CROSS JOIN LATERAL (SELECT r.n < counted AND t.n < counted AND w.apart AS whole) AS k
  LEFT JOIN ready_behind AS b ON b.name = n.name
  LEFT JOIN timed_behind AS l ON l.name = n.name
  LEFT JOIN blocked AS h ON h.sink = n.name
  LEFT JOIN sample AS s ON s.sink = n.name
  LEFT JOIN outbox_internal.sink_dead_letters(all_names) AS d ON d.sink = n.name
  LEFT JOIN outbox_internal.blocked_claims() AS m ON m.server = n.server;
END
$$;
COMMENT ON FUNCTION outbox_internal.sink_backlog() IS
  'Part of outbox.sinks: for each sink, also for dropped ones, the counts of pending events and dead letters, and '
  'since when the first pending and the first due event have waited. It reads a bounded number of rows, however '
  'many there are.';
