-- What an operator looks at and calls.

CREATE OR REPLACE FUNCTION outbox.sink_statistics(
  OUT server oid, OUT state text, OUT in_flight integer, OUT delivered bigint, OUT retried bigint, OUT failed bigint,
  OUT redriven_late bigint,
  OUT rate double precision, OUT latency_p50 double precision, OUT latency_p99 double precision,
  OUT last_error text, OUT last_error_at timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_statistics';
COMMENT ON FUNCTION outbox.sink_statistics() IS
  'Counters of this database''s sinks from shared memory, since the server started: the raw material of the view outbox.sinks. Latencies in milliseconds from the start of the enqueuing transaction to the acknowledgement; rate in events per second.';

CREATE OR REPLACE FUNCTION outbox.worker_slots(
  OUT database oid, OUT pid integer, OUT worker integer, OUT workers integer, OUT lanes integer, OUT state text,
  OUT started_at timestamptz, OUT last_loop_at timestamptz, OUT memory bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_worker_slots';
COMMENT ON FUNCTION outbox.worker_slots() IS
  'The running workers of the whole cluster, from shared memory: the raw material of the view outbox.workers.';

CREATE OR REPLACE FUNCTION outbox.library(
  OUT version text, OUT preloaded boolean, OUT launcher_pid integer, OUT out_of_slots boolean, OUT origin bigint,
  OUT longest_retention interval, OUT libraries text, OUT at_rest boolean) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_library';
COMMENT ON FUNCTION outbox.library() IS
  'What the loaded library says of itself: its version, whether it was preloaded, the launcher, this database''s origin, the longest retention of any sink, the versions of librdkafka, libcurl and OpenSSL, and whether this database needs no worker until something is committed or due (outbox.worker_idle_timeout).';

CREATE OR REPLACE FUNCTION outbox.kafka_library(OUT status text, OUT detail text, OUT hint text) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_kafka_library';
COMMENT ON FUNCTION outbox.kafka_library() IS
  'Whether the librdkafka that the server has loaded will do, as a row of outbox.doctor(): ok, warning for a version with a defect, error for one that is too old.';

CREATE OR REPLACE VIEW outbox.workers AS
  SELECT d.datname AS database, w.pid, w.worker, w.workers, w.lanes, w.state, w.started_at, w.last_loop_at, w.memory
  FROM outbox.worker_slots() AS w LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.database;
COMMENT ON VIEW outbox.workers IS 'A row per running worker of the cluster; memory in bytes. A database with nothing due has none: outbox.worker_idle_timeout.';

CREATE OR REPLACE VIEW outbox.wrappers AS
  SELECT w.oid, w.fdwname AS name, pg_catalog.substr(w.fdwname, 8) AS kind
  FROM pg_catalog.pg_foreign_data_wrapper AS w
  JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_foreign_data_wrapper'::pg_catalog.regclass
    AND d.objid = w.oid AND d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
  JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'outbox';
COMMENT ON VIEW outbox.wrappers IS 'The kinds of sink: a row per foreign-data wrapper of this extension.';
COMMENT ON COLUMN outbox.wrappers.oid IS 'The wrapper.';
COMMENT ON COLUMN outbox.wrappers.name IS 'What CREATE SERVER names: outbox_kafka.';
COMMENT ON COLUMN outbox.wrappers.kind IS 'The kind of sink: the name without outbox_.';

-- Counting is bounded: beyond 200,000 rows the counts are scaled from a sample and marked as estimates, and the oldest
-- event of a sink is sought among the 20,000 that are first in the order, and in the sample. One pass counts for all
-- sinks, since there may be thousands.
CREATE OR REPLACE VIEW outbox.sinks AS
  WITH sample AS MATERIALIZED (
    SELECT e.sink, pg_catalog.count(*) AS pending,
           pg_catalog.count(*) FILTER (WHERE e.available_at > pg_catalog.now() AND e.attempts = 0) AS scheduled,
           pg_catalog.count(*) FILTER (WHERE e.held_by IS NOT NULL) AS held,
           pg_catalog.min(e.created_at) FILTER (WHERE e.available_at IS NULL OR e.attempts > 0 OR e.available_at <= pg_catalog.now()) AS oldest
    FROM (SELECT sink, held_by, available_at, attempts, created_at FROM outbox.events_pending LIMIT 200000) AS e GROUP BY e.sink),
  scale AS MATERIALIZED (
    SELECT CASE WHEN coalesce(pg_catalog.sum(s.pending), 0) < 200000 THEN 1
           ELSE greatest(1, (SELECT c.reltuples FROM pg_catalog.pg_class AS c
                             WHERE c.oid = 'outbox.events_pending'::pg_catalog.regclass) / 200000) END AS factor,
           coalesce(pg_catalog.sum(s.pending), 0) >= 200000 AS estimated
    FROM sample AS s),
  first AS (
    SELECT e.sink, 0 AS pending, 0 AS scheduled, 0 AS held, pg_catalog.min(e.created_at) AS oldest
    FROM (SELECT sink, available_at, attempts, created_at FROM outbox.events_pending
          WHERE (SELECT scale.estimated FROM scale) ORDER BY position LIMIT 20000) AS e
    WHERE e.available_at IS NULL OR e.attempts > 0 OR e.available_at <= pg_catalog.now() GROUP BY e.sink),
  pending AS (
    SELECT coalesce(r.new_name, e.sink) AS sink, pg_catalog.sum(e.pending) AS pending, pg_catalog.sum(e.scheduled) AS scheduled,
           pg_catalog.sum(e.held) AS held, pg_catalog.min(e.oldest) AS oldest
    FROM (SELECT * FROM sample UNION ALL SELECT * FROM first) AS e LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink
    GROUP BY coalesce(r.new_name, e.sink)),
  failed AS (
    SELECT sink, pg_catalog.count(*) AS failed
    FROM (SELECT coalesce(r.new_name, e.sink) AS sink FROM outbox.events_failed AS e
          LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink LIMIT 200000) AS f GROUP BY sink)
  SELECT s.srvname AS name, w.kind,
         coalesce((SELECT pg_catalog.regexp_replace(o.option_value, '//[^/@]*@', '//')
                   FROM pg_catalog.pg_options_to_table(s.srvoptions) AS o
                   WHERE o.option_name IN ('bootstrap_servers', 'url')), '(in the user mapping)') AS target,
         coalesce(CASE WHEN stop.state = 'disabled' THEN 'disabled: ' || stop.reason ELSE stop.state END, st.state,
                  CASE WHEN lib.preloaded THEN 'no worker' ELSE 'not preloaded' END) AS state,
         (coalesce(p.pending, 0) * scale.factor)::bigint AS pending,
         (coalesce(p.scheduled, 0) * scale.factor)::bigint AS scheduled,
         (coalesce(p.held, 0) * scale.factor)::bigint AS held,
         scale.estimated,
         coalesce(st.in_flight, 0) AS in_flight,
         coalesce(f.failed, 0) AS failed,
         pg_catalog.clock_timestamp() - p.oldest AS oldest_pending_age,
         coalesce(st.delivered, 0) AS delivered, coalesce(st.retried, 0) AS retried,
         coalesce(st.failed, 0) AS failed_total, coalesce(st.redriven_late, 0) AS redriven_late,
         coalesce(st.rate, 0) AS rate, st.latency_p50, st.latency_p99, st.last_error, st.last_error_at
  FROM pg_catalog.pg_foreign_server AS s
  JOIN outbox.wrappers AS w ON w.oid = s.srvfdw
  CROSS JOIN scale CROSS JOIN outbox.library() AS lib
  LEFT JOIN outbox.sink_statistics() AS st ON st.server = s.oid
  LEFT JOIN outbox.stopped_sinks AS stop ON stop.sink = s.srvname
  LEFT JOIN pending AS p ON p.sink = s.srvname
  LEFT JOIN failed AS f ON f.sink = s.srvname;
COMMENT ON VIEW outbox.sinks IS
  'A row per sink: state (delivering, idle, degraded, circuit open, paused, disabled: 410, disabled: disable_after, misconfigured, waiting for a synchronous standby, no worker), counts of waiting and failed events (estimates beyond 200,000), the age of the oldest due one (exact up to 200,000, and beyond where it is among the first 20,000; else it may be older), totals since the server started, events per second, latencies in milliseconds, and the last error.';

CREATE OR REPLACE FUNCTION outbox.maintain() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  today date := (now() AT TIME ZONE 'UTC')::date;
  day date;
  part text;
  done bigint := 0;
  owner name := (SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
                 WHERE c.oid = 'outbox.events'::regclass);
  keep interval := (SELECT l.longest_retention FROM outbox.library() AS l);
BEGIN
  FOR day IN SELECT today + n FROM generate_series(-1, 3) AS n LOOP
    part := 'events_sent_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass('outbox.' || part) IS NOT NULL;
    -- CREATE and ATTACH: CREATE ... PARTITION OF would wait behind every reader of the parent.
    EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.events INCLUDING DEFAULTS INCLUDING COMMENTS, PRIMARY KEY (position))', part);
    EXECUTE format('ALTER TABLE outbox.%I OWNER TO %I', part, owner);
    EXECUTE format('ALTER TABLE outbox.events_sent ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                   part, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    done := done + 1;
  END LOOP;

  -- Whole days leave when the longest retention of any sink is over. A reader in the way: the next run tries again.
  FOR part, day IN
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]{8}$'
  LOOP
    CONTINUE WHEN (day + 1)::timestamp AT TIME ZONE 'UTC' + keep >= now() OR day >= today - 1;
    BEGIN
      PERFORM set_config('lock_timeout', '100ms', true); -- until the end of the transaction
      EXECUTE format('DROP TABLE outbox.%I', part);
      done := done + 1;
    EXCEPTION WHEN lock_not_available THEN
      RAISE LOG 'outbox: day % of delivered events is in use and will be dropped later', day;
    END;
  END LOOP;

  -- A key that a producer is just taking over is its own.
  DELETE FROM outbox.dedup WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM outbox.dedup AS d
    WHERE d.created_at < now() - current_setting('outbox.dedup_window')::interval
    LIMIT 10000 FOR UPDATE SKIP LOCKED));
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox.maintain() IS
  'Makes the coming days of outbox.events_sent, drops those whose retention is over, and forgets expired dedup keys. The worker calls it every ten minutes; call it yourself where no worker runs. Returns how many days it made or dropped.';

CREATE OR REPLACE FUNCTION outbox.adopt() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here bigint := (SELECT l.origin FROM outbox.library() AS l);
  adopted bigint;
BEGIN
  UPDATE outbox.events SET origin = here WHERE status = 'PENDING' AND origin <> here;
  GET DIAGNOSTICS adopted = ROW_COUNT;
  UPDATE outbox.events SET origin = here WHERE status = 'FAILED' AND origin <> here;
  RETURN adopted;
END
$$;
COMMENT ON FUNCTION outbox.adopt() IS
  'Lets this database deliver events that were enqueued elsewhere: after it was restored, copied or upgraded into another cluster. Until then they wait. Returns how many pending events it took over.';
-- What the columns of the operator's views mean.
COMMENT ON COLUMN outbox.sinks.name IS 'The foreign server.';
COMMENT ON COLUMN outbox.sinks.kind IS 'The kind of sink: the wrapper''s name without outbox_.';
COMMENT ON COLUMN outbox.sinks.target IS 'Where it delivers to, without credentials.';
COMMENT ON COLUMN outbox.sinks.state IS 'What the worker is doing with it.';
COMMENT ON COLUMN outbox.sinks.pending IS 'Events that wait for it, scheduled and held ones included.';
COMMENT ON COLUMN outbox.sinks.scheduled IS 'Pending events whose available_at lies ahead and that have not failed.';
COMMENT ON COLUMN outbox.sinks.held IS 'Pending events that wait for a failing one of the same key, or for a dead letter where on_failure is hold.';
COMMENT ON COLUMN outbox.sinks.estimated IS 'Whether pending, scheduled and held are estimates.';
COMMENT ON COLUMN outbox.sinks.in_flight IS 'Events handed over and not yet acknowledged.';
COMMENT ON COLUMN outbox.sinks.failed IS 'Dead letters that stand in the table, counted up to 200,000.';
COMMENT ON COLUMN outbox.sinks.oldest_pending_age IS 'How long the oldest due event has been waiting.';
COMMENT ON COLUMN outbox.sinks.delivered IS 'Events delivered since the server started.';
COMMENT ON COLUMN outbox.sinks.retried IS 'Failed deliveries that were tried again since the server started.';
COMMENT ON COLUMN outbox.sinks.failed_total IS 'Events that became dead letters since the server started.';
COMMENT ON COLUMN outbox.sinks.redriven_late IS 'Dead letters that were redriven by force and delivered after later events of their keys, since the server started.';
COMMENT ON COLUMN outbox.sinks.rate IS 'Deliveries per second, lately.';
COMMENT ON COLUMN outbox.sinks.latency_p50 IS 'Median time from the start of the enqueuing transaction to the acknowledgement, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.latency_p99 IS 'Its 99th percentile, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.last_error IS 'What last went wrong, of an event or of the sink as a whole.';
COMMENT ON COLUMN outbox.sinks.last_error_at IS 'When it went wrong.';
COMMENT ON COLUMN outbox.workers.database IS 'The database that the worker serves.';
COMMENT ON COLUMN outbox.workers.pid IS 'Its process id.';
COMMENT ON COLUMN outbox.workers.worker IS 'Which worker of its database it is, from 0.';
COMMENT ON COLUMN outbox.workers.workers IS 'How many workers its database has.';
COMMENT ON COLUMN outbox.workers.lanes IS 'How many of the 256 lanes it serves.';
COMMENT ON COLUMN outbox.workers.state IS 'What it is doing.';
COMMENT ON COLUMN outbox.workers.started_at IS 'When it started.';
COMMENT ON COLUMN outbox.workers.last_loop_at IS 'When it last went round its loop.';
COMMENT ON COLUMN outbox.workers.memory IS 'Its memory, in bytes.';

CREATE OR REPLACE FUNCTION outbox.probe(
  sink text, timeout interval DEFAULT '10 seconds',
  OUT step text, OUT ok boolean, OUT milliseconds double precision, OUT message text, OUT hint text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_probe';
COMMENT ON FUNCTION outbox.probe(text, interval) IS
  'Has the worker try a sink with its options as they are committed, whatever state the sink is in: connect (a webhook: resolve, network guard, TLS), authenticate, ask for metadata and rights, without sending an event or request or making a topic. A row per step, with how long it took; a step that failed says why and what to do. Needs USAGE on the server. All well: SELECT bool_and(ok) FROM outbox.probe(''name'').';
