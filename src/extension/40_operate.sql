-- The views and functions of an operator.
-- The oldest event of a sink is the first in the sink's order, and a scheduled event counts since it was due.
-- A table of up to 12 MB is counted whole; of a larger one each sink's first rows are counted by the index, and 300
-- pages are a sample of the rest. Dropped sinks are found in the gaps between the names of existing ones, one look at
-- an index for each: SELECT DISTINCT sink would read all rows. With 10 million events and 1,000 sinks it takes 0.2 s
-- of CPU.

CREATE OR REPLACE FUNCTION outbox_internal.sink_statistics(
  OUT server oid, OUT state text, OUT in_flight integer, OUT delivered bigint, OUT retried bigint, OUT failed bigint,
  OUT redriven_late bigint,
  OUT rate double precision, OUT latency_p50 double precision, OUT latency_p99 double precision,
  OUT last_error text, OUT last_error_at timestamptz, OUT paused_until timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_statistics';
COMMENT ON FUNCTION outbox_internal.sink_statistics() IS
  'Part of outbox.sinks: the counters of this database''s sinks in shared memory, since stats_since. Latencies in '
  'milliseconds from the start of the enqueuing transaction to the acknowledgement; rate in events per second.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_unrecorded(
  OUT server oid, OUT n bigint, OUT since timestamptz, OUT error text
) RETURNS SETOF record
LANGUAGE c VOLATILE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_unrecorded';
COMMENT ON FUNCTION outbox_internal.sink_unrecorded() IS
  'Part of outbox.sinks and outbox.doctor(): the sinks of this database whose deliveries the workers cannot record: '
  'the number of events, since when, and the last error.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_bounds(
  OUT server oid, OUT stats_since timestamptz, OUT low_watermark bigint
) RETURNS SETOF record
LANGUAGE c VOLATILE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_bounds';
COMMENT ON FUNCTION outbox_internal.sink_bounds() IS
  'Part of outbox.sinks: the time since which the counters of this database''s sinks count, and the position before '
  'which they have no pending row without available_at, as far as the workers know (0: not known).';

CREATE OR REPLACE FUNCTION outbox_internal.worker_slots(
  OUT database oid, OUT pid integer, OUT worker integer, OUT workers integer, OUT shards integer, OUT state text,
  OUT started_at timestamptz, OUT last_loop_at timestamptz, OUT memory bigint,
  OUT routing_since timestamptz, OUT routing_error text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_worker_slots';
COMMENT ON FUNCTION outbox_internal.worker_slots() IS
  'Part of outbox.workers: the running workers of the whole cluster, from shared memory; for outbox.doctor() also '
  'since when events wait to be routed, and the error of the last routing.';

CREATE OR REPLACE FUNCTION outbox.library(
  OUT version text, OUT preloaded boolean, OUT launcher_pid integer, OUT out_of_slots boolean, OUT origin bigint,
  OUT longest_retention interval, OUT libraries text, OUT idle boolean) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_library';
COMMENT ON FUNCTION outbox.library() IS
  'The state of the loaded library: its version, whether it was preloaded, the launcher, this database''s origin, '
  'the longest retention of any sink, the versions of librdkafka, libcurl and OpenSSL, and whether this database is '
  'idle: it needs no worker until an event is committed or due (outbox.worker_idle_timeout).';

CREATE OR REPLACE FUNCTION outbox_internal.kafka_library(OUT status text, OUT detail text, OUT hint text)
RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_kafka_library';
COMMENT ON FUNCTION outbox_internal.kafka_library() IS
  'Part of outbox.doctor(): whether the loaded librdkafka is suitable: ok, warning for a version with a defect, '
  'error for one that is too old.';

CREATE OR REPLACE VIEW outbox.workers AS
  SELECT d.datname AS database, w.pid, w.worker, w.workers, w.shards, w.state, w.started_at, w.last_loop_at, w.memory
  FROM outbox_internal.worker_slots() AS w LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.database;
COMMENT ON VIEW outbox.workers IS
  'One row per running worker of the cluster. An idle database has none (outbox.worker_idle_timeout).';

CREATE OR REPLACE VIEW outbox_internal.wrappers AS
  SELECT w.oid, w.fdwname AS name, pg_catalog.substr(w.fdwname, 8) AS kind
  FROM pg_catalog.pg_foreign_data_wrapper AS w
  JOIN pg_catalog.pg_proc AS v ON v.oid = w.fdwvalidator AND v.prosrc IN ('outbox_validator', 'outbox_kind_validator')
  JOIN pg_catalog.pg_language AS l ON l.oid = v.prolang AND l.lanname = 'c'
  WHERE w.fdwname = 'outbox_' || pg_catalog.regexp_replace(v.proname, '_validator$', '');
COMMENT ON VIEW outbox_internal.wrappers IS
  'The kinds of sink: one row per foreign-data wrapper whose validator belongs to this library, or to that of an '
  'extension with a kind of its own.';
COMMENT ON COLUMN outbox_internal.wrappers.oid IS 'The wrapper.';
COMMENT ON COLUMN outbox_internal.wrappers.name IS 'The name that CREATE SERVER uses, such as outbox_kafka.';
COMMENT ON COLUMN outbox_internal.wrappers.kind IS 'The kind of sink: the name without outbox_.';

CREATE OR REPLACE VIEW outbox_internal.sink_names AS
  SELECT s.oid AS server, s.srvname::text COLLATE "C" AS name
  FROM pg_catalog.pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw;
COMMENT ON VIEW outbox_internal.sink_names IS 'The sinks, with their names as rows have them.';
COMMENT ON COLUMN outbox_internal.sink_names.server IS 'The foreign server.';
COMMENT ON COLUMN outbox_internal.sink_names.name IS 'Its name.';

-- Each gap between the names of two sinks is one look at an index, and one more for each dropped sink in it; no row
-- of an existing sink is read.
CREATE OR REPLACE FUNCTION outbox_internal.dropped_sinks() RETURNS TABLE (sink text)
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
  WITH RECURSIVE names AS MATERIALIZED (SELECT n.name FROM outbox_internal.sink_names AS n UNION ALL SELECT ''),
  ready (low, high) AS (
    SELECT n.name COLLATE "C", lead(n.name) OVER (ORDER BY n.name COLLATE "C") COLLATE "C"
    FROM names AS n
    UNION ALL
    SELECT f.sink COLLATE "C", g.high FROM ready AS g CROSS JOIN LATERAL (
      (SELECT e.sink FROM outbox.events_pending AS e
       WHERE g.high IS NOT NULL AND e.available_at IS NULL
         AND e.sink COLLATE "C" > g.low AND e.sink COLLATE "C" < g.high
       ORDER BY e.sink COLLATE "C", e.position LIMIT 1)
      UNION ALL
      (SELECT e.sink FROM outbox.events_pending AS e
       WHERE g.high IS NULL AND e.available_at IS NULL AND e.sink COLLATE "C" > g.low
       ORDER BY e.sink COLLATE "C", e.position LIMIT 1)) AS f),
  timed (low, high) AS (
    SELECT n.name COLLATE "default", lead(n.name) OVER (ORDER BY n.name COLLATE "default") COLLATE "default"
    FROM names AS n
    WHERE EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL)
    UNION ALL
    SELECT f.sink, g.high FROM timed AS g CROSS JOIN LATERAL (
      (SELECT e.sink FROM outbox.events_pending AS e
       WHERE g.high IS NOT NULL AND e.available_at IS NOT NULL AND e.blocked_by IS NULL
         AND e.sink > g.low AND e.sink < g.high
       ORDER BY e.sink, e.available_at, e.position LIMIT 1)
      UNION ALL
      (SELECT e.sink FROM outbox.events_pending AS e
       WHERE g.high IS NULL AND e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.sink > g.low
       ORDER BY e.sink, e.available_at, e.position LIMIT 1)) AS f),
  dead (low, high) AS (
    SELECT n.name COLLATE "default", lead(n.name) OVER (ORDER BY n.name COLLATE "default") COLLATE "default"
    FROM names AS n
    WHERE EXISTS (SELECT FROM outbox.events_failed)
    UNION ALL
    SELECT f.sink, g.high FROM dead AS g CROSS JOIN LATERAL (
      (SELECT e.sink FROM outbox.events_failed AS e WHERE g.high IS NOT NULL AND e.sink > g.low AND e.sink < g.high
       ORDER BY e.sink, hashtextextended(e.partition_key, 0), e.position LIMIT 1)
      UNION ALL
      (SELECT e.sink FROM outbox.events_failed AS e WHERE g.high IS NULL AND e.sink > g.low
       ORDER BY e.sink, hashtextextended(e.partition_key, 0), e.position LIMIT 1)) AS f)
  SELECT f.low
  FROM (SELECT r.low COLLATE "default" AS low FROM ready AS r
        UNION SELECT t.low FROM timed AS t
        UNION SELECT d.low FROM dead AS d) AS f
  WHERE f.low <> '' AND NOT EXISTS (SELECT FROM names AS n WHERE n.name = f.low COLLATE "C")
$$;
COMMENT ON FUNCTION outbox_internal.dropped_sinks() IS
  'Part of outbox.sinks: sinks that were dropped and that still have pending events or dead letters.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_dead_letters(names text[])
RETURNS TABLE (sink text, n bigint, estimated boolean)
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET max_parallel_workers_per_gather = 0 SET jit = off
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
    FROM (SELECT FROM outbox.events_failed AS e WHERE e.sink = s.name COLLATE "default" LIMIT counted) AS r) AS f
  LEFT JOIN sample AS p ON p.sink = s.name;
END
$$;
COMMENT ON FUNCTION outbox_internal.sink_dead_letters(text[]) IS
  'Part of outbox_internal.sink_backlog(): the number of dead letters of sinks, by the names in the rows. In a '
  'large table the first ones are counted by the index, and the others are estimated from a sample.';

-- A small table is counted in one pass. Of a large one each sink's first rows are counted by the indexes, so that no
-- sink is overlooked, and its further rows are estimated from a sample of the table's pages. Ages come from rows that
-- the indexes find, so they are exact.
CREATE OR REPLACE FUNCTION outbox_internal.sink_backlog(
  OUT server oid, OUT dropped text, OUT pending bigint, OUT scheduled bigint, OUT blocked bigint, OUT failing bigint,
  OUT due bigint, OUT failed bigint, OUT estimated boolean, OUT waiting_since timestamptz, OUT due_since timestamptz
) RETURNS SETOF record
LANGUAGE plpgsql STABLE ROWS 10 PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_indexscan = on SET enable_nestloop = on
SET max_parallel_workers_per_gather = 0 SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  at timestamptz := clock_timestamp();
  pages bigint := pg_relation_size('outbox.events_pending') / current_setting('block_size')::bigint;
  share double precision := 30000.0 / greatest(pages, 300); -- percent: 300 pages
  here bigint := (SELECT l.origin FROM outbox.library() AS l);
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
    dead AS (SELECT * FROM outbox_internal.sink_dead_letters(all_names)),
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
           coalesce(sum(r.n), 0)::bigint, coalesce(sum(r.scheduled), 0)::bigint, coalesce(sum(r.blocked), 0)::bigint,
           coalesce(sum(r.failing), 0)::bigint, coalesce(sum(r.due), 0)::bigint, coalesce(sum(d.n), 0)::bigint,
           coalesce(bool_or(d.estimated), false), min(r.since), min(r.due_since)
    FROM names AS n
    LEFT JOIN rows AS r ON r.sink = n.name
    LEFT JOIN dead AS d ON d.sink = n.name
    GROUP BY n.server, n.dropped;
    RETURN;
  END IF;

  counted := greatest(5, 5000 / greatest(cardinality(all_names), 1));
  elsewhere := EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.origin < here)
               OR EXISTS (SELECT FROM outbox.events_pending AS e WHERE e.origin > here);
  RETURN QUERY
  WITH names AS MATERIALIZED (
    SELECT n.server, NULL AS dropped, n.name,
           CASE WHEN elsewhere THEN 0 ELSE coalesce(s.low_watermark, 0) END AS low_watermark
    FROM outbox_internal.sink_names AS n LEFT JOIN outbox_internal.sink_bounds() AS s ON s.server = n.server
    UNION ALL SELECT NULL, l, l COLLATE "C", 0 FROM unnest(lost) AS l),
  dead AS (SELECT * FROM outbox_internal.sink_dead_letters(all_names)),
  sample AS (
    SELECT e.sink,
           count(*) * 100 / share AS n,
           count(*) FILTER (WHERE e.available_at > at AND e.last_attempt_at IS NULL) * 100 / share AS scheduled,
           count(*) FILTER (WHERE e.blocked_by IS NOT NULL) * 100 / share AS blocked,
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
            WHERE e.available_at IS NULL AND (e.sink COLLATE "C", e.position) >= (n.name, n.low_watermark)
              AND (e.sink COLLATE "C", e.position) < (n.name, 9223372036854775807)
            ORDER BY e.sink COLLATE "C", e.position LIMIT counted) AS r) AS f),
  -- The first one that can be delivered, of a sink whose counted events all wait for a failing one.
  ready_behind AS (
    SELECT n.name, f.created_at AS since
    FROM ready AS n CROSS JOIN LATERAL (
      SELECT r.created_at
      FROM (SELECT e.created_at, e.blocked_by FROM outbox.events_pending AS e
            WHERE e.available_at IS NULL AND (e.sink COLLATE "C", e.position) >= (n.name, n.low_watermark)
              AND (e.sink COLLATE "C", e.position) < (n.name, 9223372036854775807)
            ORDER BY e.sink COLLATE "C", e.position LIMIT counted_apart) AS r
      WHERE r.blocked_by IS NULL LIMIT 1) AS f
    WHERE n.due = 0 AND n.n = counted),
  timed AS (
    SELECT n.name, f.*
    FROM names AS n CROSS JOIN LATERAL (
      SELECT count(*) AS n,
             count(*) FILTER (WHERE r.available_at > at AND r.last_attempt_at IS NULL) AS scheduled,
             count(*) FILTER (WHERE r.available_at <= at) AS due,
             min(greatest(r.created_at, r.available_at)) FILTER (
               WHERE r.available_at <= at AND r.last_attempt_at IS NULL) AS since,
             min(greatest(r.created_at, r.available_at)) FILTER (WHERE r.available_at <= at) AS due_since
      FROM (SELECT e.created_at, e.available_at, e.last_attempt_at FROM outbox.events_pending AS e
            WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL
              AND (e.sink, e.available_at) >= (n.name COLLATE "default", '-infinity')
              AND (e.sink, e.available_at) <= (n.name COLLATE "default", 'infinity')
            ORDER BY e.sink, e.available_at, e.position LIMIT counted) AS r) AS f),
  -- The first due one that has not failed, of a sink whose counted events with a time have all failed before.
  timed_behind AS (
    SELECT n.name, f.since
    FROM timed AS n CROSS JOIN LATERAL (
      SELECT greatest(e.created_at, e.available_at) AS since FROM outbox.events_pending AS e
      WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.last_attempt_at IS NULL
        AND (e.sink, e.available_at) >= (n.name COLLATE "default", '-infinity')
        AND (e.sink, e.available_at) <= (n.name COLLATE "default", at)
      ORDER BY e.sink, e.available_at, e.position LIMIT 1) AS f
    WHERE n.since IS NULL AND n.n = counted),
  blocked AS MATERIALIZED (
    SELECT e.sink,
           count(*) AS n,
           count(e.available_at) AS timed,
           count(*) FILTER (WHERE e.available_at > at AND e.last_attempt_at IS NULL) AS scheduled
    FROM (SELECT sink, available_at, last_attempt_at FROM outbox.events_pending
          WHERE blocked_by IS NOT NULL LIMIT counted_apart) AS e
    GROUP BY e.sink),
  whole AS MATERIALIZED (SELECT (SELECT coalesce(sum(h.n), 0) FROM blocked AS h) < counted_apart AS apart),
  failing AS (
    SELECT e.sink,
           count(*) FILTER (WHERE e.blocked_by IS NULL AND e.available_at > at) AS n,
           min(e.created_at) AS since
    FROM outbox.events_pending AS e
    WHERE e.last_attempt_at IS NOT NULL
    GROUP BY e.sink),
  counts AS (
    SELECT n.server, n.dropped,
           r.n < counted AND t.n < counted AS counted_all,
           w.apart,
           r.n + t.n + coalesce(h.timed, 0) AS n,
           t.scheduled + coalesce(h.scheduled, 0) AS scheduled,
           coalesce(h.n, 0) AS blocked,
           greatest(r.due, (b.since IS NOT NULL)::integer) + t.due AS due,
           coalesce(s.n, 0) AS sample_n,
           coalesce(s.scheduled, 0) AS sample_scheduled,
           coalesce(s.blocked, 0) AS sample_blocked,
           coalesce(s.due, 0) AS sample_due,
           coalesce(f.n, 0) AS failing,
           coalesce(d.n, 0) AS failed,
           coalesce(d.estimated, false) AS failed_estimated,
           least(r.since, t.since, l.since, f.since) AS since,
           least(r.due_since, b.since, t.due_since) AS due_since
    FROM names AS n
    CROSS JOIN whole AS w
    JOIN ready AS r ON r.name = n.name
    JOIN timed AS t ON t.name = n.name
    LEFT JOIN ready_behind AS b ON b.name = n.name
    LEFT JOIN timed_behind AS l ON l.name = n.name
    LEFT JOIN blocked AS h ON h.sink = n.name
    LEFT JOIN sample AS s ON s.sink = n.name
    LEFT JOIN dead AS d ON d.sink = n.name
    LEFT JOIN failing AS f ON f.sink = n.name)
  SELECT c.server, c.dropped,
         sum(CASE WHEN c.counted_all AND c.apart THEN c.n ELSE greatest(c.n, c.sample_n) END)::bigint,
         sum(CASE WHEN c.counted_all AND c.apart THEN c.scheduled
                  ELSE greatest(c.scheduled, c.sample_scheduled) END)::bigint,
         sum(CASE WHEN c.apart THEN c.blocked ELSE greatest(c.blocked, c.sample_blocked) END)::bigint,
         sum(c.failing)::bigint,
         sum(CASE WHEN c.counted_all THEN c.due ELSE greatest(c.due, c.sample_due) END)::bigint,
         sum(c.failed)::bigint,
         NOT bool_and(c.counted_all AND c.apart) OR bool_or(c.failed_estimated),
         min(c.since), min(c.due_since)
  FROM counts AS c
  GROUP BY c.server, c.dropped;
END
$$;
COMMENT ON FUNCTION outbox_internal.sink_backlog() IS
  'Part of outbox.sinks: for each sink, also for dropped ones, the counts of pending events and dead letters, and '
  'since when the first pending and the first due event have waited. It reads a bounded number of rows, however '
  'many there are.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_claimed(OUT server oid, OUT n integer) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 10 PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT l.server, sum(cardinality(l.positions))::integer
  FROM outbox.leases AS l
  WHERE l.lease_until > clock_timestamp()
  GROUP BY l.server
$$;
COMMENT ON FUNCTION outbox_internal.sink_claimed() IS
  'Part of outbox.sinks: for each sink of kind outbox_manual, the number of claimed events that are neither '
  'acknowledged nor refused.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_retries(OUT server oid, OUT error text, OUT failed_at timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE ROWS 10 PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off
AS $$
  SELECT n.server, left(f.last_error, 500), f.last_attempt_at
  FROM outbox_internal.sink_names AS n
  CROSS JOIN LATERAL (
    SELECT e.last_error, e.last_attempt_at
    FROM (SELECT p.last_error, p.last_attempt_at FROM outbox.events_pending AS p
          WHERE p.last_attempt_at IS NOT NULL AND p.blocked_by IS NULL AND p.sink = n.name COLLATE "default"
            AND p.origin = (SELECT l.origin FROM outbox.library() AS l)
          LIMIT 1000) AS e
    ORDER BY e.last_attempt_at DESC NULLS LAST LIMIT 1) AS f
$$;
COMMENT ON FUNCTION outbox_internal.sink_retries() IS
  'Part of outbox.sinks: the sinks with pending events that have failed, and the last of their errors (among the '
  'first 1,000 such events), from the committed rows.';

CREATE OR REPLACE FUNCTION outbox_internal.mapping_options(server oid) RETURNS text[]
LANGUAGE c STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_mapping_options';
COMMENT ON FUNCTION outbox_internal.mapping_options(oid) IS
  'The names of the options of PUBLIC''s user mapping, for all who see outbox.sinks: also for an owner of the '
  'extension who may not read pg_user_mapping; NULL without a mapping.';

CREATE OR REPLACE FUNCTION outbox_internal.target_options(wrapper oid) RETURNS text[]
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_target_options';
COMMENT ON FUNCTION outbox_internal.target_options(oid) IS
  'Part of outbox.sinks: the options that hold the address of a sink of this wrapper; none if the library of its '
  'kind cannot be loaded.';

CREATE OR REPLACE VIEW outbox.sinks AS
  SELECT coalesce(s.srvname, b.dropped::name) AS name,
         w.kind,
         coalesce(
           CASE WHEN w.kind = 'manual' THEN '(outbox.claim)' WHEN b.dropped IS NOT NULL THEN '(dropped)' END,
           (SELECT pg_catalog.string_agg(pg_catalog.regexp_replace(o.option_value, '//[^/@]*@', '//'), ', ')
            FROM pg_catalog.unnest(outbox_internal.target_options(s.srvfdw)) AS t(name)
            JOIN pg_catalog.pg_options_to_table(s.srvoptions) AS o ON o.option_name = t.name
            WHERE o.option_name <> ALL (coalesce(outbox_internal.mapping_options(s.oid), '{}'))),
           CASE outbox_internal.target_options(s.srvfdw)
             WHEN '{}' THEN '(unknown)' ELSE '(in the user mapping)' END) AS target,
         coalesce(
           CASE WHEN b.dropped IS NOT NULL THEN 'dropped' END,
           CASE WHEN stop.state = 'disabled' THEN 'disabled: ' || stop.reason ELSE stop.state END,
           CASE WHEN w.kind = 'manual'
                THEN CASE WHEN claimed.n > 0 THEN 'delivering'
                          WHEN retries.server IS NOT NULL THEN 'failing'
                          ELSE 'idle' END END,
           CASE WHEN u.since < pg_catalog.clock_timestamp() - interval '2 seconds' THEN 'recording fails' END,
           CASE WHEN st.paused_until IS NOT NULL AND st.state IN ('idle', 'delivering', 'degraded')
                THEN 'paused by endpoint' END,
           CASE WHEN retries.server IS NOT NULL
                     AND coalesce(st.state, CASE WHEN lib.idle THEN 'idle' END) = 'idle'
                THEN 'failing' END,
           CASE WHEN st.state = 'idle' AND b.due_since < pg_catalog.clock_timestamp() - interval '2 seconds'
                THEN 'waiting' END,
           st.state,
           CASE WHEN NOT lib.preloaded THEN 'not preloaded' WHEN lib.idle THEN 'idle' ELSE 'no worker' END) AS state,
         b.pending, b.scheduled, b.blocked, b.estimated,
         coalesce(claimed.n, st.in_flight, 0) AS in_flight,
         b.failed,
         CASE WHEN b.waiting_since IS NOT NULL
              THEN greatest(pg_catalog.clock_timestamp() - b.waiting_since, '0') END AS oldest_pending_age,
         coalesce(st.delivered, 0) AS delivered,
         coalesce(st.retried, 0) AS retried,
         coalesce(st.failed, 0) AS failed_total,
         coalesce(st.redriven_late, 0) AS redriven_late,
         coalesce(st.rate, 0) AS rate,
         st.latency_p50, st.latency_p99,
         coalesce(st.last_error, retries.error) AS last_error,
         CASE WHEN st.last_error IS NULL THEN retries.failed_at ELSE st.last_error_at END AS last_error_at,
         bound.stats_since,
         b.due, b.failing,
         CASE WHEN b.due_since IS NOT NULL
              THEN greatest(pg_catalog.clock_timestamp() - b.due_since, '0') END AS oldest_due_age,
         st.paused_until
  FROM (pg_catalog.pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw)
  FULL JOIN outbox_internal.sink_backlog() AS b ON b.server = s.oid
  CROSS JOIN outbox.library() AS lib
  LEFT JOIN outbox_internal.sink_claimed() AS claimed ON claimed.server = s.oid
  LEFT JOIN outbox_internal.sink_statistics() AS st ON st.server = s.oid
  LEFT JOIN outbox_internal.sink_retries() AS retries ON retries.server = s.oid
  LEFT JOIN outbox_internal.sink_bounds() AS bound ON bound.server = s.oid
  LEFT JOIN outbox_internal.sink_unrecorded() AS u ON u.server = s.oid
  LEFT JOIN outbox.stopped_sinks AS stop ON stop.sink = s.srvname;
COMMENT ON VIEW outbox.sinks IS
  'One row per sink. state is one of: delivering, idle, failing, waiting, recording fails, degraded, circuit open, '
  'paused, paused by endpoint, disabled: 410, disabled: disable_after, misconfigured, waiting for a synchronous '
  'standby, no worker, not preloaded, dropped (the sink does not exist any more, but has events). Counts of large '
  'tables are estimates and marked as such. Ages are exact and come from committed rows, so they are right even if '
  'the worker stands still. Totals count since stats_since.';

CREATE OR REPLACE FUNCTION outbox_internal.forget_statistics(server oid) RETURNS void
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_forget_statistics';
COMMENT ON FUNCTION outbox_internal.forget_statistics(oid) IS
  'Part of outbox.reset_stats(): sets the counters in shared memory to zero, of this sink or, with NULL, of all '
  'sinks of this database.';

CREATE OR REPLACE FUNCTION outbox.reset_stats(sink text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF reset_stats.sink IS NOT NULL THEN
    PERFORM outbox_internal.require_sink(reset_stats.sink);
  END IF;
  PERFORM outbox_internal.forget_statistics(
    (SELECT s.oid FROM pg_foreign_server AS s WHERE s.srvname = reset_stats.sink));
END
$$;
COMMENT ON FUNCTION outbox.reset_stats(text) IS
  'Sets the counters of a sink, or of all sinks of the database, to zero: delivered, retried, failed and late '
  'totals, failures by reason, rate, latencies, the last error. It acts at once, whether the transaction commits or '
  'not; stats_since shows the time. The caller need not own the server: GRANT EXECUTE is enough.';

-- Comments on the columns of the operator's views.
COMMENT ON COLUMN outbox.sinks.name IS 'The foreign server.';
COMMENT ON COLUMN outbox.sinks.kind IS 'The kind of sink: the wrapper''s name without outbox_.';
COMMENT ON COLUMN outbox.sinks.target IS
  'The address of the sink, without credentials; (unknown) if the library of its kind cannot be loaded.';
COMMENT ON COLUMN outbox.sinks.state IS
  'The state of the sink; with several workers, the worst of theirs. failing: none of its events is in flight, and '
  'events that have failed wait for their next attempt, according to the committed rows. waiting: none is in '
  'flight, and one has been due for two seconds (a rate limit, a locked row, an event of another cluster, a worker '
  'that stands still: outbox.doctor() may say which). recording fails: for two seconds, delivered events could not '
  'be recorded (outbox.doctor() says why). For an idle database (outbox.worker_idle_timeout), whose workers have '
  'left: idle, unless one of the above applies according to the committed rows.';
COMMENT ON COLUMN outbox.sinks.pending IS 'Pending events of the sink, scheduled and blocked ones included.';
COMMENT ON COLUMN outbox.sinks.scheduled IS
  'Pending events whose available_at is in the future and that have not failed.';
COMMENT ON COLUMN outbox.sinks.blocked IS
  'Pending events that wait for a failing event of the same key, or for a dead letter if on_dead_letter is block.';
COMMENT ON COLUMN outbox.sinks.estimated IS
  'Whether one of pending, scheduled, blocked and failed is an estimate, because the tables are large.';
COMMENT ON COLUMN outbox.sinks.in_flight IS 'Events handed to the sink and not yet acknowledged.';
COMMENT ON COLUMN outbox.sinks.failed IS 'Dead letters in the table.';
COMMENT ON COLUMN outbox.sinks.oldest_pending_age IS
  'How long the first event in the order has waited: since its transaction began or, if it was scheduled, since it '
  'was due. Always exact. Events scheduled for later do not count; failing ones do.';
COMMENT ON COLUMN outbox.sinks.delivered IS 'Events delivered since stats_since.';
COMMENT ON COLUMN outbox.sinks.retried IS 'Failed deliveries since stats_since whose event is tried again.';
COMMENT ON COLUMN outbox.sinks.failed_total IS 'Events that became dead letters since stats_since.';
COMMENT ON COLUMN outbox.sinks.redriven_late IS
  'Dead letters since stats_since that were redriven by force and delivered after later events of their keys.';
COMMENT ON COLUMN outbox.sinks.rate IS 'Recent deliveries per second.';
COMMENT ON COLUMN outbox.sinks.latency_p50 IS
  'Median time from the start of the enqueuing transaction to the acknowledgement, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.latency_p99 IS 'The 99th percentile of that time, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.last_error IS
  'The last error of an event or of the whole sink since stats_since, at last_error_at; it stays after a later '
  'success. If there was none since, that of an event that has failed and waits.';
COMMENT ON COLUMN outbox.sinks.last_error_at IS 'The time of that error.';
COMMENT ON COLUMN outbox.sinks.due IS
  'Pending events that can be delivered now: not scheduled for later, not failing, not blocked.';
COMMENT ON COLUMN outbox.sinks.failing IS
  'Pending events that have failed and wait for their next attempt. Events that wait behind them are blocked.';
COMMENT ON COLUMN outbox.sinks.oldest_due_age IS
  'How long the oldest due event has been due. Always exact. Failing and blocked events do not count.';
COMMENT ON COLUMN outbox.sinks.paused_until IS
  'The end of a pause for which the endpoint has asked (Retry-After, RateLimit-Reset), as far as max_pause allows. '
  'outbox.resume() ends it. NULL: it has not asked.';
COMMENT ON COLUMN outbox.sinks.stats_since IS
  'The time since which the counters count: the start of the server, the crash of one of its processes, or '
  'outbox.reset_stats().';
COMMENT ON COLUMN outbox.workers.database IS 'The database that the worker serves.';
COMMENT ON COLUMN outbox.workers.pid IS 'Its process id.';
COMMENT ON COLUMN outbox.workers.worker IS 'The number of the worker within its database, from 0.';
COMMENT ON COLUMN outbox.workers.workers IS 'How many workers its database has.';
COMMENT ON COLUMN outbox.workers.shards IS 'How many of the 256 shards it serves.';
COMMENT ON COLUMN outbox.workers.state IS 'What the worker is doing.';
COMMENT ON COLUMN outbox.workers.started_at IS 'When the worker started.';
COMMENT ON COLUMN outbox.workers.last_loop_at IS 'When the last round of its loop began.';
COMMENT ON COLUMN outbox.workers.memory IS 'Its memory, in bytes.';

-- Topics that the options alone do not name. Events of a paused topic have an available_at, and are read first. An
-- event that cannot be read or sent has no topic. A lock on the table must not keep a probe from its other steps.
CREATE OR REPLACE FUNCTION outbox_internal.probe_topics(server oid) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
AS $$
DECLARE
  name text;
  template text;
  by_type boolean; -- events of one type go to one topic
  most int;
  event uuid;
  topics text[] := '{}';
BEGIN
  SELECT s.srvname,
         coalesce((SELECT o.option_value FROM pg_options_to_table(s.srvoptions) AS o WHERE o.option_name = 'topic'),
                  '${aggregate_type}')
  INTO name, template
  FROM pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw
  WHERE s.oid = probe_topics.server AND w.kind = 'kafka';
  IF template IS NULL OR template !~ '\$\{' THEN
    RETURN '';
  END IF;
  by_type := regexp_replace(template, '\$\{(aggregate_type|event_type)\}', '', 'g') !~ '\$\{';
  most := CASE WHEN by_type THEN 10000 ELSE 100 END;
  FOR event IN
    SELECT DISTINCT ON (f.aggregate_type, f.event_type, f.other) f.id
    FROM ((SELECT e.id, e.aggregate_type, e.event_type, CASE WHEN NOT by_type THEN e.id END AS other
           FROM outbox.events_pending AS e
           WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.sink = name
           ORDER BY e.sink, e.available_at, e.position LIMIT most)
          UNION ALL
          (SELECT e.id, e.aggregate_type, e.event_type, CASE WHEN NOT by_type THEN e.id END
           FROM outbox.events_pending AS e
           WHERE e.available_at IS NULL AND e.sink COLLATE "C" = name COLLATE "C"
           ORDER BY e.sink COLLATE "C", e.position LIMIT most)) AS f
    LIMIT 200
  LOOP
    BEGIN
      topics := topics || ARRAY(SELECT p.value FROM outbox.preview(event, name) AS p
                                WHERE p.part = 'topic' AND p.value <> ALL (topics));
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
  RETURN array_to_string(topics, ',');
EXCEPTION WHEN OTHERS THEN
  RETURN '';
END
$$;
COMMENT ON FUNCTION outbox_internal.probe_topics(oid) IS
  'Part of outbox.probe(): the topics of pending events of a Kafka sink whose option topic has variables, separated '
  'by commas.';

CREATE OR REPLACE FUNCTION outbox.probe(
  sink text, timeout interval DEFAULT '10 seconds', send boolean DEFAULT false,
  OUT step text, OUT ok boolean, OUT milliseconds double precision, OUT message text, OUT hint text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_probe';
COMMENT ON FUNCTION outbox.probe(text, interval, boolean) IS
  'Lets the worker try a sink with its committed options, whatever the state of the sink: it connects (a webhook: '
  'resolve, network guard, TLS), authenticates, and asks for metadata and rights. It sends no event or request and '
  'creates no topic. It looks for the topics of the option topic and of pending events. With send => true a webhook '
  'then gets a test event of type outbox.probe, with the header Outbox-Probe: true, signed and with the sink''s '
  'credentials like an event. Returns one row per step with its duration; a failed step says why and what to do. '
  'Needs USAGE on the server. To check that all is well: SELECT bool_and(ok) FROM outbox.probe(''name'').';
