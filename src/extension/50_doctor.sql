-- The first thing to call when something does not move.

CREATE OR REPLACE FUNCTION outbox.doctor(OUT "check" text, OUT status text, OUT detail text, OUT hint text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lib record;
  kafka record;
  installed text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'outbox');
  n bigint;
  s record;
  example record;
  stop record;
BEGIN
  SELECT * INTO lib FROM outbox.library();
  SELECT * INTO kafka FROM outbox.kafka_library();

  "check" := 'preload'; status := 'ok'; detail := 'The library was loaded at server start.'; hint := NULL;
  IF NOT lib.preloaded THEN
    status := 'error';
    detail := 'The library is not in shared_preload_libraries: events are enqueued, and nobody delivers them.';
    hint := format('ALTER SYSTEM SET shared_preload_libraries = %s; then restart the server.',
                   array_to_string(array_remove(string_to_array(replace(current_setting('shared_preload_libraries'), ' ', ''), ','), '')
                                   || ARRAY['outbox'], ', '));
  END IF;
  RETURN NEXT;

  "check" := 'version'; status := 'ok'; hint := NULL;
  detail := format('Extension %s, library %s; %s.', installed, lib.version, lib.libraries);
  IF installed <> lib.version THEN
    status := 'error';
    hint := 'ALTER EXTENSION outbox UPDATE; if the library is the older one, restart the server first.';
  END IF;
  RETURN NEXT;

  "check" := 'librdkafka'; status := kafka.status; detail := kafka.detail; hint := kafka.hint;
  RETURN NEXT;

  "check" := 'worker'; status := 'ok'; hint := NULL;
  SELECT count(*), min(w.last_loop_at) AS last_loop_at INTO s
  FROM outbox.worker_slots() AS w
  WHERE w.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
  detail := format('%s of %s workers run for this database.', s.count, current_setting('outbox.workers'));
  IF pg_is_in_recovery() THEN
    detail := 'This server is a standby: delivery begins by itself when it is promoted.';
  ELSIF NOT current_setting('outbox.enabled')::boolean THEN
    status := 'warning'; detail := 'outbox.enabled is off: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.enabled = on; SELECT pg_reload_conf();';
  ELSIF current_setting('outbox.workers')::int = 0 THEN
    status := 'warning'; detail := 'outbox.workers is 0: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.workers = 1; SELECT pg_reload_conf();';
  ELSIF s.count = 0 AND lib.at_rest THEN
    detail := 'Nothing is due: no worker runs, and one starts when an event is committed or due.';
  ELSIF lib.out_of_slots THEN
    status := 'error';
    detail := 'The server has no free background worker slot: ' || detail;
    hint := format('ALTER SYSTEM SET max_worker_processes = %s; then restart the server.',
                   current_setting('max_worker_processes')::int + 8);
  ELSIF s.count = 0 THEN
    status := 'error';
    IF lib.preloaded AND lib.launcher_pid IS NULL THEN
      detail := 'Neither the launcher nor a worker runs.';
    END IF;
    hint := CASE WHEN lib.preloaded THEN 'Read the server log: a worker that fails is started again with growing pauses, a minute at most.'
                 ELSE 'Preload the library first.' END;
  ELSIF s.last_loop_at < clock_timestamp() - interval '1 minute' - make_interval(secs => extract(epoch FROM current_setting('outbox.poll_interval')::interval)) THEN
    status := 'warning';
    detail := format('The worker''s last round was at %s.', s.last_loop_at);
    hint := 'Look for a lock that it waits for: SELECT * FROM pg_stat_activity WHERE backend_type = ''outbox worker'';';
  END IF;
  RETURN NEXT;

  IF EXISTS (SELECT FROM outbox.workers AS w WHERE w.database = current_database()
             AND w.state = 'waiting for a synchronous standby') THEN
    "check" := 'standby'; status := 'warning';
    detail := format('Events wait until the synchronous standbys (%s) have confirmed their transactions.',
                     current_setting('synchronous_standby_names'));
    hint := 'Start a standby: SELECT application_name, state, sync_state FROM pg_stat_replication; or deliver without its word: ALTER SYSTEM SET outbox.wait_for_standbys = off; SELECT pg_reload_conf();';
    RETURN NEXT;
  END IF;

  "check" := 'routes'; status := 'ok'; detail := 'Every waiting event has a sink.'; hint := NULL;
  SELECT count(*) INTO n FROM (SELECT FROM outbox.events_pending AS e WHERE e.sink IS NULL LIMIT 1000) AS waiting;
  IF n > 0 THEN
    SELECT e.aggregate_type, e.event_type, e.headers INTO example FROM outbox.events_pending AS e WHERE e.sink IS NULL
    ORDER BY e.position LIMIT 1;
    status := 'warning';
    detail := format('%s events wait because no sink takes them; the oldest has aggregate_type "%s" and event_type "%s"%s.',
                     CASE WHEN n = 1000 THEN '1000 or more' ELSE n::text END, example.aggregate_type, example.event_type,
                     ', and the headers ' || left(example.headers::text, 200));
    hint := 'CREATE SERVER for a sink that takes them, or widen one: ALTER SERVER name OPTIONS (SET events ''*'', SET aggregates ''*''), or another match.';
  END IF;
  RETURN NEXT;

  SELECT e.sink INTO example FROM (SELECT DISTINCT p.sink FROM outbox.events_pending AS p WHERE p.sink IS NOT NULL) AS e
  LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink
  WHERE coalesce(r.new_name, e.sink) NOT IN (SELECT f.srvname FROM pg_foreign_server AS f JOIN outbox.wrappers AS w ON w.oid = f.srvfdw)
  ORDER BY e.sink LIMIT 1;
  IF FOUND THEN
    "check" := 'lost sink'; status := 'error';
    detail := format('Events wait for the sink "%s", which does not exist any more.', example.sink);
    hint := format('Make it again, or route its events anew: UPDATE outbox.events SET sink = ''other'' WHERE status = ''PENDING'' AND sink = %L;', example.sink);
    RETURN NEXT;
  END IF;

  SELECT e.origin INTO example FROM outbox.events_pending AS e WHERE e.origin <> lib.origin LIMIT 1;
  IF FOUND THEN
    "check" := 'origin'; status := 'warning';
    detail := 'Events wait that were enqueued in another cluster or database (a restore, a copy, or another outbox.identity).';
    hint := 'If this database is to deliver them: SELECT outbox.adopt();';
    RETURN NEXT;
  END IF;

  FOR s IN SELECT * FROM outbox.sinks ORDER BY name LOOP
    "check" := format('sink %s', s.name); status := 'ok'; hint := NULL;
    detail := format('%s: %s, %s pending, %s failed.', s.kind, s.state, s.pending, s.failed);
    SELECT * INTO stop FROM outbox.stopped_sinks AS t WHERE t.sink = s.name;
    IF stop.state = 'paused' THEN
      status := 'warning';
      detail := format('%s has been paused since %s by %s: %s events wait.', s.name, stop.since, stop.stopped_by, s.pending);
      hint := format('SELECT outbox.resume(%L);', s.name);
    ELSIF stop.state = 'disabled' THEN
      status := 'error';
      detail := format('%s has been disabled since %s, %s: %s. %s events wait.', s.target, stop.since,
                       CASE stop.reason WHEN '410' THEN 'because its endpoint wants no more events (410)'
                       ELSE 'because it had failed for ' || stop.reason || ' without a success' END,
                       coalesce(stop.error, 'no error is known'), s.pending);
      hint := format('Correct the cause; then: SELECT outbox.resume(%L);', s.name);
    ELSIF s.state IN ('circuit open', 'disabled', 'misconfigured') THEN
      status := 'error';
      detail := format('%s is %s: %s', s.target, s.state, coalesce(s.last_error, 'no error is known'));
      hint := CASE
        WHEN s.state = 'misconfigured' AND s.kind = 'kafka' AND kafka.status = 'error' THEN kafka.hint
        WHEN s.state = 'circuit open' THEN format('It is probed until it answers; nothing is lost, and no attempt is spent. What is wrong, step by step: SELECT * FROM outbox.probe(%L);', s.name)
        WHEN s.state = 'disabled' THEN 'It is about to be written down: look again.'
        ELSE format('Correct it: ALTER SERVER %I OPTIONS (…), or CREATE USER MAPPING FOR PUBLIC SERVER %I OPTIONS (…).', s.name, s.name) END;
    ELSIF s.state = 'degraded' THEN
      status := 'warning';
      detail := format('%s is degraded: %s', s.target, coalesce(s.last_error, 'no error is known'));
      hint := 'The events concerned wait and go by themselves when the cause is gone; nothing is lost, and no attempt is spent.';
    ELSIF s.failed > 0 THEN
      status := 'warning';
      IF s.held > 0 THEN
        detail := detail || format(' %s wait behind them or behind failing events of their keys.', s.held);
      END IF;
      hint := format('SELECT id, attempts, last_error FROM outbox.events WHERE status = ''FAILED'' AND sink = %1$L; when the cause is gone: '
                     'SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED'' AND sink = %1$L;', s.name);
    ELSIF s.held > 0 THEN
      status := 'warning';
      detail := detail || format(' %s wait behind failing events of their keys; last error: %s', s.held, s.last_error);
      hint := format('SELECT position, partition_key, attempts, available_at, last_error FROM outbox.events WHERE status = ''PENDING'' AND sink = %L AND attempts > 0;', s.name);
    END IF;
    RETURN NEXT;
    IF s.kind = 'webhook' AND NOT EXISTS (
         SELECT FROM pg_user_mapping AS m JOIN pg_foreign_server AS f ON f.oid = m.umserver,
                pg_options_to_table(m.umoptions) AS o
         WHERE f.srvname = s.name AND m.umuser = 0 AND o.option_name = 'secret') THEN
      "check" := format('sink %s signature', s.name); status := 'warning';
      detail := 'It has no secret: its requests are not signed, and a receiver cannot tell them from forged ones.';
      hint := format('CREATE USER MAPPING FOR PUBLIC SERVER %I OPTIONS (secret ''whsec_…'');', s.name);
      RETURN NEXT;
    END IF;
  END LOOP;
  IF NOT FOUND THEN
    "check" := 'sinks'; status := 'warning'; detail := 'There is no sink.';
    hint := 'CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''localhost:9092'');';
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox.doctor() IS
  'Looks for whatever keeps events from being delivered: a row per check, with status ok, warning or error, the fact, and the next step to paste.';
