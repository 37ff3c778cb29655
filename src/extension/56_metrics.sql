-- The metrics that a monitoring system scrapes: names and meanings in docs/monitoring.md.
-- Each column of three views is a metric and its comment the HELP text, so outbox.metrics(), docker/queries.yaml and
-- the documentation cannot differ unnoticed.

-- It counts as outbox_internal.sink_backlog() does: a small table in one pass. Of a large one the first events are
-- counted by the indexes, so that a few are not overlooked, and the rest is estimated from a sample of its pages.
CREATE OR REPLACE FUNCTION outbox_internal.backlog_apart(OUT not_adopted bigint, OUT unrouted bigint) RETURNS record
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  here bigint := (SELECT l.origin FROM outbox_internal.library() AS l);
  counted bigint := 2000; -- rows
  elsewhere bigint;
  nowhere bigint;
  pages bigint := pg_relation_size('outbox.events_pending') / current_setting('block_size')::bigint;
  share double precision := CASE WHEN pages <= 1500 THEN 100 ELSE 30000.0 / pages END; -- percent: 300 pages
BEGIN
  SELECT count(*) FILTER (WHERE e.origin <> here) * 100 / share,
         count(*) FILTER (WHERE e.sink IS NULL) * 100 / share
  INTO not_adopted, unrouted
  FROM outbox.events_pending AS e TABLESAMPLE SYSTEM (share) REPEATABLE (1);
  IF share < 100 THEN
    SELECT count(*) INTO elsewhere
    FROM ((SELECT FROM outbox.events_pending AS e WHERE e.origin < here
           ORDER BY e.origin, e.xact, e.position LIMIT counted)
          UNION ALL (SELECT FROM outbox.events_pending AS e WHERE e.origin > here
                     ORDER BY e.origin, e.xact, e.position LIMIT counted)) AS few;
    SELECT count(*) INTO nowhere
    FROM (SELECT FROM outbox.events_pending AS e WHERE e.sink IS NULL ORDER BY e.position LIMIT counted) AS few;
    not_adopted := CASE WHEN elsewhere < counted THEN elsewhere ELSE greatest(elsewhere, not_adopted) END;
    unrouted := CASE WHEN nowhere < counted THEN nowhere ELSE greatest(nowhere, unrouted) END;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.backlog_apart() IS
  'Pending events that belong to no sink of this database: those of another database or cluster, and those that no '
  'sink takes. Exact up to 2,000; beyond that, for a large table, estimated from a sample.';

-- Each column of the three views that is not a label is a metric, outbox_COLUMN, and its comment is the HELP text.
-- The views are empty on a standby: its primary shows the same rows.
CREATE OR REPLACE VIEW outbox.database_metrics AS
  SELECT pg_catalog.current_database() AS datname,
         (lib.version = (SELECT e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = 'outbox')
          AND (lib.idle
               OR coalesce(workers.last_loop_at > pg_catalog.clock_timestamp() - interval '30 seconds'
                             - pg_catalog.current_setting('outbox.poll_interval')::interval, false)))::integer
           AS worker_up,
         workers.n AS worker_processes,
         (SELECT a.not_adopted FROM outbox_internal.backlog_apart() AS a) AS not_adopted_events,
         (SELECT a.unrouted FROM outbox_internal.backlog_apart() AS a) AS unrouted_events,
         (SELECT coalesce(pg_catalog.sum(b.pending), 0)::bigint FROM outbox_internal.sink_backlog() AS b
          WHERE b.dropped IS NOT NULL) AS dropped_sink_events
  FROM outbox_internal.library() AS lib
  CROSS JOIN (SELECT pg_catalog.count(*) AS n, pg_catalog.min(w.last_loop_at) AS last_loop_at
              FROM outbox.workers AS w WHERE w.database = pg_catalog.current_database()) AS workers
  WHERE NOT pg_catalog.pg_is_in_recovery();
COMMENT ON VIEW outbox.database_metrics IS 'Metrics of this database, for exporters: one row.';
COMMENT ON COLUMN outbox.database_metrics.datname IS 'Label: this database.';
COMMENT ON COLUMN outbox.database_metrics.worker_up IS
  '1: a worker delivers this database''s events, or none is needed because nothing is due; 0: no worker delivers, '
  'or one has stood still for outbox.poll_interval and 30 seconds.';
COMMENT ON COLUMN outbox.database_metrics.worker_processes IS 'Running workers of this database.';
COMMENT ON COLUMN outbox.database_metrics.not_adopted_events IS
  'Pending events that were enqueued in another database or cluster (a restored or copied one) and wait for '
  'outbox.adopt(); an estimate if very many are pending.';
COMMENT ON COLUMN outbox.database_metrics.unrouted_events IS
  'Pending events that no sink takes; an estimate if very many are pending.';
COMMENT ON COLUMN outbox.database_metrics.dropped_sink_events IS
  'Pending events of sinks that were dropped; an estimate if very many are pending.';

CREATE OR REPLACE VIEW outbox.sink_metrics AS
  WITH shown AS MATERIALIZED (SELECT * FROM outbox.sinks) -- else it may be computed for each sink
  SELECT pg_catalog.current_database() AS datname, s.name AS sink,
         s.pending AS pending_events, s.estimated::integer AS pending_events_estimated,
         s.scheduled AS scheduled_events, s.blocked AS blocked_events, s.failing AS failing_events,
         s.due AS due_events,
         coalesce(extract(epoch FROM s.oldest_pending_age), 0)::double precision AS oldest_pending_age_seconds,
         coalesce(extract(epoch FROM s.oldest_due_age), 0)::double precision AS oldest_due_age_seconds,
         s.in_flight AS inflight_events, s.dead AS dead_letter_events,
         (s.state = 'circuit open')::integer AS sink_circuit_open, (s.state = 'degraded')::integer AS sink_degraded,
         (s.state = 'paused')::integer AS sink_paused, (s.state LIKE 'disabled%')::integer AS sink_disabled,
         (s.state = 'misconfigured')::integer AS sink_misconfigured,
         s.delivered AS published_events_total, s.retried AS retries_total, s.dead_total AS dead_letters_total,
         s.redriven_late AS redriven_late_total, s.unanswered AS unanswered_events_total,
         coalesce(l.le, '{}') AS publish_latency_seconds, coalesce(l.buckets, '{}') AS publish_latency_seconds_bucket,
         coalesce(l.sum, 0) AS publish_latency_seconds_sum, coalesce(l.count, 0) AS publish_latency_seconds_count,
         coalesce(l.unrecorded, 0) AS unrecorded_events
  FROM shown AS s
  JOIN pg_catalog.pg_foreign_server AS f ON f.srvname = s.name
  LEFT JOIN outbox_internal.sink_statistics() AS l ON l.server = f.oid
  WHERE NOT pg_catalog.pg_is_in_recovery();
COMMENT ON VIEW outbox.sink_metrics IS 'Metrics of the sinks, for exporters: one row per sink.';
COMMENT ON COLUMN outbox.sink_metrics.datname IS 'Label: this database.';
COMMENT ON COLUMN outbox.sink_metrics.sink IS 'Label: the sink.';
COMMENT ON COLUMN outbox.sink_metrics.pending_events IS
  'Pending events of the sink, scheduled and blocked ones included.';
COMMENT ON COLUMN outbox.sink_metrics.pending_events_estimated IS
  '1: very many events are pending, and the numbers of pending, scheduled and blocked events and of dead letters '
  'are estimates.';
COMMENT ON COLUMN outbox.sink_metrics.scheduled_events IS 'Pending events whose available_at is in the future.';
COMMENT ON COLUMN outbox.sink_metrics.blocked_events IS
  'Pending events that wait for a failing event of the same key, or for a dead letter if on_dead_letter is block.';
COMMENT ON COLUMN outbox.sink_metrics.failing_events IS
  'Pending events that have failed and wait for their next attempt.';
COMMENT ON COLUMN outbox.sink_metrics.due_events IS
  'Pending events that can be delivered now: not scheduled for later, not failing, not blocked.';
COMMENT ON COLUMN outbox.sink_metrics.oldest_pending_age_seconds IS
  'How long the oldest event that is not scheduled for later has waited, failing ones included, from the committed '
  'rows; 0 if there is none.';
COMMENT ON COLUMN outbox.sink_metrics.oldest_due_age_seconds IS
  'How long the oldest due event has been due, without failing and blocked ones, from the committed rows; 0 if none '
  'is due.';
COMMENT ON COLUMN outbox.sink_metrics.inflight_events IS 'Events handed to the sink and not yet acknowledged.';
COMMENT ON COLUMN outbox.sink_metrics.dead_letter_events IS 'Dead letters in the table.';
COMMENT ON COLUMN outbox.sink_metrics.sink_circuit_open IS
  '1: the whole sink is down; it is probed, and no event spends an attempt.';
COMMENT ON COLUMN outbox.sink_metrics.sink_degraded IS
  '1: the sink delivers, but not to all of its topics, or more slowly than usual.';
COMMENT ON COLUMN outbox.sink_metrics.sink_paused IS '1: a user has paused the sink.';
COMMENT ON COLUMN outbox.sink_metrics.sink_disabled IS
  '1: the sink is disabled (HTTP 410, or disable_after) until outbox.resume().';
COMMENT ON COLUMN outbox.sink_metrics.sink_misconfigured IS '1: the sink cannot be opened with its options.';
COMMENT ON COLUMN outbox.sink_metrics.published_events_total IS 'Events that the sink has acknowledged.';
COMMENT ON COLUMN outbox.sink_metrics.retries_total IS 'Failed deliveries whose event is tried again.';
COMMENT ON COLUMN outbox.sink_metrics.dead_letters_total IS 'Events that became dead letters.';
COMMENT ON COLUMN outbox.sink_metrics.redriven_late_total IS
  'Dead letters that were redriven by force and delivered after later events of their keys.';
COMMENT ON COLUMN outbox.sink_metrics.unanswered_events_total IS
  'Events that were sent again because no answer came: at most so many arrived twice.';
COMMENT ON COLUMN outbox.sink_metrics.publish_latency_seconds IS
  'Seconds from created_at, the start of the enqueuing transaction, to the acknowledgement, including retries and '
  'the time until a scheduled event is due.';
COMMENT ON COLUMN outbox.sink_metrics.publish_latency_seconds_bucket IS
  'The number of events that took at most the seconds at the same place of publish_latency_seconds.';
COMMENT ON COLUMN outbox.sink_metrics.publish_latency_seconds_sum IS 'The sum of these times.';
COMMENT ON COLUMN outbox.sink_metrics.publish_latency_seconds_count IS 'The number of these events.';
COMMENT ON COLUMN outbox.sink_metrics.unrecorded_events IS
  'Events whose delivery or failure cannot be recorded; a restart sends them again.';

CREATE OR REPLACE VIEW outbox.failure_metrics AS
  SELECT pg_catalog.current_database() AS datname, f.srvname AS sink, e.reason, e.failures AS publish_failures_total
  FROM outbox_internal.sink_statistics() AS st
  CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(st.reasons), pg_catalog.unnest(st.failures)) AS e (reason, failures)
  JOIN pg_catalog.pg_foreign_server AS f ON f.oid = st.server
  WHERE NOT pg_catalog.pg_is_in_recovery();
COMMENT ON VIEW outbox.failure_metrics IS
  'Metrics of failures, for exporters: one row per sink and reason that has occurred.';
COMMENT ON COLUMN outbox.failure_metrics.datname IS 'Label: this database.';
COMMENT ON COLUMN outbox.failure_metrics.sink IS 'Label: the sink.';
COMMENT ON COLUMN outbox.failure_metrics.reason IS
  'Label: timeout, connection (refused or lost), dns, tls, auth, http_3xx, http_4xx, http_5xx, rate_limited, '
  'too_large, topic, broker, blocked (by the network guard), invalid (this event), duplicate (dropped by the '
  'destination), or other.';
COMMENT ON COLUMN outbox.failure_metrics.publish_failures_total IS
  'Failed deliveries, also those that cost no attempt, and times that the sink was found down.';

CREATE OR REPLACE FUNCTION outbox.metrics(format text DEFAULT 'prometheus') RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  open_metrics boolean := format IS NOT DISTINCT FROM 'openmetrics';
BEGIN
  IF format IS DISTINCT FROM 'prometheus' AND NOT open_metrics THEN
    RAISE EXCEPTION 'unknown format of metrics' USING ERRCODE = 'invalid_parameter_value',
      DETAIL = format('It is %s.', coalesce(quote_literal(format), 'null')),
      HINT = 'Give ''prometheus'' (text format 0.0.4) or ''openmetrics'' (OpenMetrics 1.0).';
  END IF;

  RETURN (
  WITH source AS MATERIALIZED (
    SELECT 'outbox.database_metrics'::regclass AS view, to_jsonb(m) AS row FROM outbox.database_metrics AS m
    UNION ALL SELECT 'outbox.sink_metrics'::regclass, to_jsonb(m) FROM outbox.sink_metrics AS m
    UNION ALL SELECT 'outbox.failure_metrics'::regclass, to_jsonb(m) FROM outbox.failure_metrics AS m),
  labelled AS MATERIALIZED (
    SELECT s.view, s.row,
           (SELECT string_agg(
              format('%s="%s"', l.name,
                     replace(replace(replace(s.row ->> l.name, E'\\', E'\\\\'), '"', E'\\"'), E'\n', E'\\n')), ',')
            FROM unnest('{datname,sink,reason}'::text[]) AS l (name)
            WHERE s.row ? l.name) AS labels
    FROM source AS s),
  family AS (
    SELECT a.attrelid AS view, a.attnum, a.attname::text AS col, 'outbox_' || a.attname AS name,
           CASE WHEN a.atttypid = 'double precision[]'::regtype THEN 'histogram'
                WHEN a.attname LIKE E'%\\_total' THEN 'counter' ELSE 'gauge' END AS type,
           col_description(a.attrelid, a.attnum) AS help
    FROM pg_attribute AS a
    WHERE a.attnum > 0 AND a.attrelid IN (SELECT s.view FROM source AS s)
      AND a.attname <> ALL ('{datname,sink,reason}') AND a.attname !~ '_(bucket|sum|count)$'),
  sample AS (
    SELECT f.view, f.col, l.labels, 0 AS n, format(E'%s{%s} %s\n', f.name, l.labels, l.row ->> f.col) AS line
    FROM family AS f JOIN labelled AS l ON l.view = f.view WHERE f.type <> 'histogram'
    UNION ALL
    SELECT f.view, f.col, l.labels, b.n, format(E'%s_bucket{%s,le="%s"} %s\n', f.name, l.labels, b.le, b.count)
    FROM family AS f JOIN labelled AS l ON l.view = f.view
    CROSS JOIN LATERAL (
      SELECT e.n, e.le || CASE WHEN open_metrics AND e.le !~ '[.]' THEN '.0' ELSE '' END AS le,
             l.row -> (f.col || '_bucket') ->> (e.n::int - 1) AS count
      FROM jsonb_array_elements_text(l.row -> f.col) WITH ORDINALITY AS e (le, n)
      UNION ALL SELECT 1000, '+Inf', l.row ->> (f.col || '_count')) AS b
    WHERE f.type = 'histogram'
    UNION ALL
    SELECT f.view, f.col, l.labels, 1001,
           format(E'%1$s_sum{%2$s} %3$s\n%1$s_count{%2$s} %4$s\n', f.name, l.labels,
                  l.row ->> (f.col || '_sum'), l.row ->> (f.col || '_count'))
    FROM family AS f JOIN labelled AS l ON l.view = f.view WHERE f.type = 'histogram'),
  lines AS (
    SELECT s.view, s.col, string_agg(s.line, '' ORDER BY s.labels, s.n) AS text
    FROM sample AS s
    GROUP BY s.view, s.col)
  SELECT coalesce(string_agg(
           format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n%4$s',
                  CASE WHEN open_metrics THEN regexp_replace(f.name, '_total$', '') ELSE f.name END,
                  replace(f.help, E'\\', E'\\\\'), f.type, l.text),
           '' ORDER BY f.view, f.attnum), '')
         || CASE WHEN open_metrics THEN E'# EOF\n' ELSE '' END
  FROM family AS f JOIN lines AS l USING (view, col));
END
$$;
COMMENT ON FUNCTION outbox.metrics(text) IS
  'The metrics of this database and its sinks as text for Prometheus: format 0.0.4 (''prometheus''), or OpenMetrics '
  '1.0 (''openmetrics'').';
