-- outbox.sinks and outbox.workers: the state of the sinks and workers, from shared memory and committed rows. The
-- counts of rows are in 39_backlog.sql.

CREATE OR REPLACE FUNCTION outbox_internal.sink_statistics(
  OUT server oid, OUT state text, OUT in_flight integer, OUT delivered bigint, OUT retried bigint, OUT dead bigint,
  OUT redriven_late bigint, OUT unanswered bigint, OUT rate double precision, OUT latency_p50 double precision,
  OUT latency_p99 double precision, OUT last_error text, OUT last_error_at timestamptz, OUT paused_until timestamptz,
  OUT stats_since timestamptz, OUT low_watermark bigint, OUT unrecorded bigint, OUT unrecorded_since timestamptz,
  OUT record_error text, OUT unrecorded_delivered bigint, OUT reasons text[], OUT failures bigint[],
  OUT le double precision[], OUT buckets bigint[], OUT sum double precision, OUT count bigint) RETURNS SETOF record
LANGUAGE c VOLATILE ROWS 10 PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_statistics';
COMMENT ON FUNCTION outbox_internal.sink_statistics() IS
  'The counters of this database''s sinks in shared memory, since stats_since (the server''s start or '
  'outbox.reset_stats()). Latencies in milliseconds from the start of the enqueuing transaction to the '
  'acknowledgement; rate in events per second. low_watermark: the position before which the sink has no pending row '
  'without available_at, as far as the workers know (0: not known). unrecorded: events whose outcomes the workers '
  'cannot record, since when, the last error, and how many of them were delivered; NULL if there are none. failures: '
  'failed deliveries, and times that the peer was unreachable, by the reasons that have occurred. le, buckets: the '
  'number of events that took at most le seconds to the acknowledgement; the sum of these times, and their number.';

CREATE OR REPLACE FUNCTION outbox_internal.worker_slots(
  OUT database oid, OUT pid integer, OUT worker integer, OUT workers integer, OUT shards integer, OUT state text,
  OUT started_at timestamptz, OUT last_loop_at timestamptz, OUT memory bigint,
  OUT routing_since timestamptz, OUT routing_error text, OUT disk_wait text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_worker_slots';
COMMENT ON FUNCTION outbox_internal.worker_slots() IS
  'Part of outbox.workers: the running workers of the whole cluster, from shared memory; for outbox.doctor() also '
  'since when events wait to be routed, the error of the last routing, and the wait event of one that waits for the '
  'disk now.';

CREATE OR REPLACE FUNCTION outbox_internal.library(
  OUT version text, OUT preloaded boolean, OUT launcher_pid integer, OUT out_of_slots boolean, OUT origin bigint,
  OUT longest_retention interval, OUT idle boolean) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_library';
COMMENT ON FUNCTION outbox_internal.library() IS
  'The state of the loaded library: its version, whether it was preloaded, the launcher, this database''s origin, '
  'the longest retention of any sink, and whether this database is idle: it needs no worker until an event is '
  'committed or due (outbox.worker_idle_timeout).';

CREATE OR REPLACE VIEW outbox.workers AS
  SELECT d.datname AS database, w.pid, w.worker, w.workers, w.shards, w.state, w.started_at, w.last_loop_at, w.memory
  FROM outbox_internal.worker_slots() AS w LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.database;
COMMENT ON VIEW outbox.workers IS
  'One row per running worker of the cluster. An idle database has none (outbox.worker_idle_timeout).';

CREATE OR REPLACE FUNCTION outbox_internal.worker_stands_still(patience interval DEFAULT '30 seconds') RETURNS boolean
LANGUAGE sql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(min(w.last_loop_at) + patience + current_setting('outbox.poll_interval')::interval
                  < clock_timestamp(), false)
  FROM outbox.workers AS w WHERE w.database = current_database()
$$;
COMMENT ON FUNCTION outbox_internal.worker_stands_still(interval) IS
  'Part of outbox.sinks and outbox.doctor(): whether a worker of this database has made no round for so long, beyond '
  'outbox.poll_interval.';

CREATE OR REPLACE FUNCTION outbox_internal.worker_waits_for_disk() RETURNS text
LANGUAGE sql STABLE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS $$
  SELECT w.disk_wait
  FROM outbox_internal.worker_slots() AS w JOIN pg_database AS d ON d.oid = w.database
  WHERE d.datname = current_database() AND w.disk_wait IS NOT NULL
    AND w.last_loop_at < clock_timestamp() - interval '1 second'
  ORDER BY w.last_loop_at LIMIT 1
$$;
COMMENT ON FUNCTION outbox_internal.worker_waits_for_disk() IS
  'Part of outbox.sinks and outbox.doctor(): the wait event of a worker of this database whose round has taken for a '
  'second and waits for the disk now; NULL: there is none.';

CREATE OR REPLACE FUNCTION outbox_internal.sink_claimed(OUT server oid, OUT n integer) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 10 PARALLEL RESTRICTED SECURITY DEFINER SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
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
@READS_BY_INDEX@
AS $$
  SELECT n.server, left(f.last_error, 500), f.last_attempt_at
  FROM outbox_internal.sink_names AS n
  CROSS JOIN LATERAL (
    SELECT e.last_error, e.last_attempt_at
    FROM (SELECT p.last_error, p.last_attempt_at FROM outbox.events_pending AS p
          WHERE p.last_attempt_at IS NOT NULL AND p.blocked_by IS NULL AND p.sink = n.name
            AND p.origin = (SELECT l.origin FROM outbox_internal.library() AS l)
          ORDER BY hashtextextended(p.partition_key, 0), p.position LIMIT 1000) AS e
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

CREATE OR REPLACE FUNCTION outbox_internal.client_library(
  wrapper oid, OUT versions text, OUT status text, OUT detail text, OUT hint text) RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_client_library';
COMMENT ON FUNCTION outbox_internal.client_library(oid) IS
  'Part of outbox.doctor(): the versions of the client library that a kind of sink loads, and whether it is '
  'suitable: ok, warning for a version with a defect, error for one that is too old. NULL where the kind does not '
  'tell.';

CREATE OR REPLACE FUNCTION outbox_internal.server_options(wrapper oid, of_target boolean) RETURNS text[]
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_server_options';
COMMENT ON FUNCTION outbox_internal.server_options(oid, boolean) IS
  'Part of outbox.sinks and outbox.probe(): the options of a server of this wrapper that hold the address of a sink; '
  'or all, at least those that say what its messages are. None if the library of its kind cannot be loaded.';

CREATE OR REPLACE VIEW outbox.sinks AS
  SELECT coalesce(s.srvname, b.dropped::name) AS name,
         w.kind,
         coalesce(
           CASE WHEN b.dropped IS NOT NULL THEN 'dropped' END,
           CASE WHEN stop.state = 'disabled' THEN 'disabled: ' || outbox_internal.for_client(stop.reason)
                ELSE stop.state END,
           CASE WHEN w.kind = 'manual'
                THEN CASE WHEN claimed.n > 0 THEN 'delivering'
                          WHEN retries.server IS NOT NULL THEN 'failing'
                          ELSE 'idle' END END,
           CASE WHEN st.unrecorded_since < pg_catalog.clock_timestamp() - interval '2 seconds'
                THEN 'recording fails' END,
           CASE WHEN st.state IN ('idle', 'delivering', 'degraded')
                     AND b.due_since < pg_catalog.clock_timestamp() - interval '2 seconds'
                THEN CASE WHEN outbox_internal.worker_waits_for_disk() IS NOT NULL THEN 'waiting for the disk'
                          WHEN outbox_internal.worker_stands_still() THEN 'worker stands still' END END,
           CASE WHEN st.paused_until IS NOT NULL AND st.state IN ('idle', 'delivering', 'degraded')
                THEN 'paused by endpoint' END,
           CASE WHEN retries.server IS NOT NULL
                     AND coalesce(st.state, CASE WHEN lib.idle THEN 'idle' END) = 'idle'
                THEN 'failing' END,
           CASE WHEN st.state = 'idle' AND b.due_since < pg_catalog.clock_timestamp() - interval '2 seconds'
                THEN 'waiting' END,
           st.state,
           CASE WHEN NOT lib.preloaded THEN 'not preloaded' WHEN lib.idle THEN 'idle' ELSE 'no worker' END) AS state,
         coalesce(
           CASE WHEN w.kind = 'manual' THEN '(outbox.claim)' WHEN b.dropped IS NOT NULL THEN '(dropped)' END,
           (SELECT pg_catalog.string_agg(pg_catalog.regexp_replace(o.option_value, '//[^/@]*@', '//'), ', ')
            FROM pg_catalog.unnest(outbox_internal.server_options(s.srvfdw, true)) AS t(name)
            JOIN pg_catalog.pg_options_to_table(s.srvoptions) AS o ON o.option_name = t.name
            WHERE o.option_name <> ALL (coalesce(outbox_internal.mapping_options(s.oid), '{}'))),
           CASE outbox_internal.server_options(s.srvfdw, true)
             WHEN '{}' THEN '(unknown)' ELSE '(in the user mapping)' END) AS target,
         b.pending, b.due, b.scheduled, b.failing, b.blocked,
         coalesce(claimed.n, st.in_flight, 0) AS in_flight,
         CASE WHEN b.due_since IS NOT NULL
              THEN greatest(pg_catalog.clock_timestamp() - b.due_since, '0') END AS oldest_due_age,
         CASE WHEN b.waiting_since IS NOT NULL
              THEN greatest(pg_catalog.clock_timestamp() - b.waiting_since, '0') END AS oldest_pending_age,
         b.dead, b.estimated,
         coalesce(st.rate, 0) AS rate,
         st.latency_p50, st.latency_p99,
         outbox_internal.for_client(coalesce(st.last_error, retries.error)) AS last_error,
         CASE WHEN st.last_error IS NULL THEN retries.failed_at ELSE st.last_error_at END AS last_error_at,
         st.paused_until,
         coalesce(st.delivered, 0) AS delivered,
         coalesce(st.retried, 0) AS retried,
         coalesce(st.dead, 0) AS dead_total,
         coalesce(st.redriven_late, 0) AS redriven_late,
         coalesce(st.unanswered, 0) AS unanswered,
         st.stats_since
  FROM (pg_catalog.pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw)
  FULL JOIN outbox_internal.sink_backlog() AS b ON b.server = s.oid
  CROSS JOIN outbox_internal.library() AS lib
  LEFT JOIN outbox_internal.sink_claimed() AS claimed ON claimed.server = s.oid
  LEFT JOIN outbox_internal.sink_statistics() AS st ON st.server = s.oid
  LEFT JOIN outbox_internal.sink_retries() AS retries ON retries.server = s.oid
  LEFT JOIN outbox.stopped_sinks AS stop ON stop.sink = s.srvname;
COMMENT ON VIEW outbox.sinks IS
  'One row per sink: what waits, how it is delivered, and totals since stats_since. state is one of: delivering, '
  'idle, failing, waiting, recording fails, worker stands still, degraded, circuit open, paused, paused by '
  'endpoint, disabled: 410, disabled: disable_after, misconfigured, waiting for a synchronous standby, waiting '
  'for the disk, no worker, not preloaded, dropped. '
  'docs/monitoring.md says when. Ages come from committed rows, so they are right even if the worker stands still; '
  'oldest_pending_age is a lower bound while thousands of events are failing.';

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
  'Sets the counters of a sink, or of all sinks of the database, to zero: totals, failures by reason, rate, '
  'latencies, the last error. It acts at once, whether the transaction commits or not; stats_since shows the time. '
  'GRANT EXECUTE is enough.';

-- Comments on the columns of the operator's views.
COMMENT ON COLUMN outbox.sinks.name IS 'The foreign server.';
COMMENT ON COLUMN outbox.sinks.kind IS 'The kind of sink: the wrapper''s name without outbox_.';
COMMENT ON COLUMN outbox.sinks.state IS
  'What the sink does, or why it does not deliver; with several workers, the worst of theirs.';
COMMENT ON COLUMN outbox.sinks.target IS
  'Its address, without credentials; (unknown) if the library of its kind cannot be loaded.';
COMMENT ON COLUMN outbox.sinks.pending IS 'Its pending events, also scheduled, failing, blocked and in flight ones.';
COMMENT ON COLUMN outbox.sinks.due IS 'Pending events that can be delivered now.';
COMMENT ON COLUMN outbox.sinks.scheduled IS
  'Pending events whose available_at is in the future, without failing ones.';
COMMENT ON COLUMN outbox.sinks.failing IS 'Pending events that have failed and wait for their next attempt.';
COMMENT ON COLUMN outbox.sinks.blocked IS
  'Events behind a failing event of their key or, if on_dead_letter is block, behind a dead letter.';
COMMENT ON COLUMN outbox.sinks.in_flight IS 'Events handed to the sink and not yet acknowledged.';
COMMENT ON COLUMN outbox.sinks.oldest_due_age IS
  'How long the oldest due event has been due. Always exact. Failing and blocked events do not count.';
COMMENT ON COLUMN outbox.sinks.oldest_pending_age IS
  'How long the first pending event has waited, failing ones included. Scheduled ones count once due.';
COMMENT ON COLUMN outbox.sinks.dead IS 'Dead letters in the table.';
COMMENT ON COLUMN outbox.sinks.estimated IS
  'Whether a count from pending to dead is an estimate, because the tables are large.';
COMMENT ON COLUMN outbox.sinks.rate IS 'Recent deliveries per second.';
COMMENT ON COLUMN outbox.sinks.latency_p50 IS
  'Median time from the start of the enqueuing transaction to the acknowledgement, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.latency_p99 IS 'The 99th percentile of that time, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.last_error IS
  'The last error of an event or of the whole sink. A later success does not clear it.';
COMMENT ON COLUMN outbox.sinks.last_error_at IS 'The time of that error.';
COMMENT ON COLUMN outbox.sinks.paused_until IS
  'The end of a pause that the endpoint has asked for (Retry-After); outbox.resume() ends it.';
COMMENT ON COLUMN outbox.sinks.delivered IS 'Events delivered since stats_since.';
COMMENT ON COLUMN outbox.sinks.retried IS 'Failed deliveries since stats_since whose event is tried again.';
COMMENT ON COLUMN outbox.sinks.dead_total IS 'Events that became dead letters since stats_since.';
COMMENT ON COLUMN outbox.sinks.redriven_late IS
  'Dead letters redriven by force and delivered after later events of their keys, since stats_since.';
COMMENT ON COLUMN outbox.sinks.unanswered IS
  'Events sent again because no answer came, since stats_since: at most so many arrived twice.';
COMMENT ON COLUMN outbox.sinks.stats_since IS
  'Since when the totals count: the server''s start, a process''s crash, or outbox.reset_stats().';
COMMENT ON COLUMN outbox.workers.database IS 'The database that the worker serves.';
COMMENT ON COLUMN outbox.workers.pid IS 'Its process id.';
COMMENT ON COLUMN outbox.workers.worker IS 'The number of the worker within its database, from 0.';
COMMENT ON COLUMN outbox.workers.workers IS 'How many workers its database has.';
COMMENT ON COLUMN outbox.workers.shards IS 'How many of the 256 shards it serves.';
COMMENT ON COLUMN outbox.workers.state IS 'What the worker is doing.';
COMMENT ON COLUMN outbox.workers.started_at IS 'When the worker started.';
COMMENT ON COLUMN outbox.workers.last_loop_at IS 'When the last round of its loop began.';
COMMENT ON COLUMN outbox.workers.memory IS 'Its memory, in bytes.';
