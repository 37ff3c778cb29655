-- The doctor's first checks: the library, its version, the worker. Only outbox.doctor() calls the functions of the
-- doctor. Every check is a row `check, status, detail, hint`. A hint is a statement to paste as it stands. It is a
-- comment if SQL cannot help, if a part is to be filled in, or if the statement would change where events go: a user
-- chooses that.
-- Names that users chose stand in a hint only as %L or %I, and before its comment, because a line feed in a name
-- would end the comment. doctor_comment() makes a comment that has names.

CREATE OR REPLACE FUNCTION outbox_internal.doctor_comment(prose text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT '-- ' || regexp_replace(doctor_comment.prose, E'[\x01-\x1f\x7f]+', ' ', 'g') $$;
COMMENT ON FUNCTION outbox_internal.doctor_comment(text) IS
  'Part of outbox.doctor(): a hint that SQL ignores when it is pasted, whatever names it has.';

CREATE OR REPLACE FUNCTION outbox_internal.process_state(
  pid integer, OUT state text, OUT tracer integer
) RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_process_state';
COMMENT ON FUNCTION outbox_internal.process_state(integer) IS
  'Part of outbox.doctor(): the state of a process as in /proc/PID/stat of Linux, such as T for stopped, and the pid '
  'of the debugger that traces it; NULL where that is not known.';

-- One sample: a process that works is in state D for moments, so callers ask only for one that stands still.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_halt(pid integer) RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE p.state
           WHEN 'T' THEN 'a signal has stopped it (SIGSTOP or SIGTSTP)'
           WHEN 't' THEN coalesce('the debugger with pid ' || p.tracer, 'a debugger') || ' has stopped it'
           WHEN 'D' THEN 'it waits in the kernel for a disk or a network file system (state D)' END
  FROM outbox_internal.process_state(doctor_halt.pid) AS p
$$;
COMMENT ON FUNCTION outbox_internal.doctor_halt(integer) IS
  'Part of outbox.doctor(): what keeps a process from running, or NULL.';

-- A stopped process takes no SIGTERM, and one in state D takes it when its I/O has ended.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_terminate(pid integer, effect text) RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE
           WHEN p.state IN ('T', 't') THEN outbox_internal.doctor_comment(format(
             'it takes no pg_terminate_backend() while it is stopped. %2$s; then it goes on. If that does not help, '
             'in a shell on the database server: kill -9 %1$s, after which PostgreSQL restarts the whole cluster, '
             'and all sessions end',
             doctor_terminate.pid,
             CASE p.state WHEN 'T' THEN 'In a shell on the database server, as its operating system user: kill -CONT '
                                        || doctor_terminate.pid
                          ELSE concat('Detach or end the debugger',
                                      ' (kill ' || p.tracer || ' in a shell on the database server)') END))
           ELSE format('SELECT pg_terminate_backend(%s); -- ', doctor_terminate.pid) || doctor_terminate.effect
                || CASE p.state WHEN 'D' THEN '. Until its I/O ends, it takes no signal, kill -9 neither: '
                                              'look at the disk and the kernel log' ELSE '' END END
  FROM outbox_internal.process_state(doctor_terminate.pid) AS p
$$;
COMMENT ON FUNCTION outbox_internal.doctor_terminate(integer, text) IS
  'Part of outbox.doctor(): the hint that ends a process of the server, with its effect; or, for a stopped one, what '
  'lets it go on.';

CREATE OR REPLACE FUNCTION outbox_internal.worker_health(
  OUT wanted_since timestamptz, OUT failures integer, OUT failed_at timestamptz, OUT next_start timestamptz,
  OUT failure text, OUT launcher_looked_at timestamptz, OUT databases_waiting int, OUT workers_everywhere int,
  OUT extension text, OUT blocked_by int
) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_worker_health';
COMMENT ON FUNCTION outbox_internal.worker_health() IS
  'Why this database has no worker: since when it needs one, how many in a row ended unexpectedly, when the last '
  'one did and with which message, when the next one starts, when the launcher last checked, what the last worker '
  'found of the extension (usable, other version, missing, or unknown; NULL if the launcher does not serve the '
  'database), and the session whose statement needs the database alone.';

CREATE OR REPLACE FUNCTION outbox_internal.needs_no_worker() RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT coalesce(bool_and(k.kind = 'manual'), false)
  FROM pg_foreign_server AS s JOIN outbox_internal.wrappers AS k ON k.oid = s.srvfdw
$$;
COMMENT ON FUNCTION outbox_internal.needs_no_worker() IS
  'Part of outbox.doctor(): whether all sinks are of kind outbox_manual.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_library(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lib record := outbox_internal.library();
  installed text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'outbox');
BEGIN
  "check" := 'preload'; status := 'ok'; detail := 'The library was loaded at server start.';
  IF NOT lib.preloaded AND outbox_internal.needs_no_worker() THEN
    detail := 'The library was not loaded at server start, and need not be: '
              'a dispatcher claims the events of all sinks.';
  ELSIF NOT lib.preloaded THEN
    status := 'error';
    detail := 'The library is not in shared_preload_libraries: events are enqueued, and no worker delivers them.';
    hint := format('ALTER SYSTEM SET shared_preload_libraries = %s; -- then restart the server',
                   (SELECT string_agg(quote_ident(l.name), ', ' ORDER BY u.n)
                    FROM unnest(string_to_array(current_setting('shared_preload_libraries'), ',') || 'outbox'::text)
                           WITH ORDINALITY AS u(given, n), btrim(u.given, ' "') AS l (name)
                    WHERE l.name <> ''));
  END IF;
  RETURN NEXT;

  "check" := 'version'; status := 'ok'; hint := NULL;
  detail := format('Extension %s, library %s%s.', installed, lib.version,
                   (SELECT '; ' || string_agg(c.versions, ', ' ORDER BY w.kind)
                    FROM outbox_internal.wrappers AS w, LATERAL outbox_internal.client_library(w.oid) AS c
                    WHERE c.versions IS NOT NULL));
  IF installed <> lib.version THEN
    status := 'error';
    detail := format('The extension is %s and the library that the server has loaded is %s: events wait.',
                     installed, lib.version);
    hint := CASE
      WHEN string_to_array(installed, '.')::int[] < string_to_array(lib.version, '.')::int[]
        THEN 'ALTER EXTENSION outbox UPDATE;'
      ELSE '-- restart the server, so that it loads the library of the installed package; '
           'if the package is the older one, upgrade it first' END;
  END IF;
  RETURN NEXT;

  RETURN QUERY
  SELECT split_part(c.versions, ' ', 1), c.status, c.detail, '-- ' || c.hint
  FROM outbox_internal.wrappers AS w, LATERAL outbox_internal.client_library(w.oid) AS c
  WHERE c.status IS NOT NULL ORDER BY w.kind;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_library(interval) IS 'Part of outbox.doctor(): preload and versions.';

CREATE OR REPLACE FUNCTION outbox_internal.timeline(OUT timeline bigint, OUT later bigint, OUT left_at pg_lsn)
RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_timeline';
COMMENT ON FUNCTION outbox_internal.timeline() IS
  'Part of outbox.doctor(): the timeline of the WAL that this server writes or replays. If a history file in pg_wal '
  'says that a later timeline left it at an earlier place: that timeline, and the place.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_worker(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lib record := outbox_internal.library();
  health record := outbox_internal.worker_health();
  w record;
  wanted int := current_setting('outbox.workers')::int;
  wal record;
  disk_wait text := outbox_internal.worker_waits_for_disk();
  running text;
  read_log CONSTANT text := 'SELECT pg_current_logfile(), setting FROM pg_settings WHERE name = ''log_directory''; '
                            '-- read the server log';
BEGIN
  "check" := 'worker'; status := 'ok';
  SELECT count(*) AS n,
         min(s.last_loop_at) AS last_loop_at,
         max(s.started_at) AS started_at,
         (array_agg(s.pid ORDER BY s.last_loop_at))[1] AS pid,
         bool_or(s.state = 'waiting for a synchronous standby') AS no_standby
  INTO w
  FROM outbox.workers AS s WHERE s.database = current_database();
  running := format('%s of %s for this database', w.n, outbox_internal.counted(wanted, 'worker runs', 'workers run'));

  IF pg_is_in_recovery() THEN
    detail := 'This server is a standby: delivery begins by itself when it is promoted.';
  ELSIF w.n = 0 AND outbox_internal.needs_no_worker() THEN
    detail := 'No worker runs, and none is needed: a dispatcher claims the events of all sinks.';
  ELSIF NOT lib.preloaded THEN
    status := 'error'; detail := 'No worker runs: the library is not preloaded.';
    hint := '-- see check preload';
  ELSIF NOT current_setting('outbox.enabled')::boolean THEN
    status := 'warning'; detail := 'outbox.enabled is off: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.enabled = on; SELECT pg_reload_conf();';
  ELSIF wanted = 0 THEN
    status := 'warning'; detail := 'outbox.workers is 0: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.workers = 1; SELECT pg_reload_conf();';
  ELSIF lib.version <> (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'outbox') THEN
    status := 'error';
    detail := 'No worker delivers in this database: the library and the extension are not of the same version.';
    hint := '-- see check version';
  ELSIF (SELECT d.datistemplate FROM pg_database AS d WHERE d.datname = current_database()) THEN
    status := 'warning'; detail := 'This database is a template: no worker connects to it.';
    hint := format('ALTER DATABASE %I IS_TEMPLATE false;', current_database());
  ELSIF w.n = 0 AND (lib.launcher_pid IS NULL OR health.launcher_looked_at < clock_timestamp() - interval '3 minutes')
        AND pg_postmaster_start_time() < clock_timestamp() - interval '10 seconds' THEN
    status := 'error';
    detail := CASE
      WHEN lib.launcher_pid IS NULL THEN 'Neither the launcher nor a worker runs.'
      ELSE format('No worker runs, and the launcher (pid %s) has not looked since %s%s.',
                  lib.launcher_pid, health.launcher_looked_at,
                  coalesce(': ' || outbox_internal.doctor_halt(lib.launcher_pid), '')) END;
    hint := coalesce(
      outbox_internal.doctor_terminate(
        lib.launcher_pid, 'it starts again by itself; if it does not, read the server log'),
      '-- it starts again after a second; if it does not, read the server log');
  ELSIF w.n = 0 AND lib.idle THEN
    detail := 'Nothing is due: no worker runs, and one starts when an event is committed or due.';
  ELSIF w.n < wanted AND health.failures > 0 THEN
    status := 'error';
    detail := format('%s; the last one has ended unexpectedly, %s in a row, at %s%s. The next one starts at %s.',
                     running,
                     CASE WHEN health.failures = 1 THEN 'once' ELSE health.failures || ' times' END,
                     date_trunc('second', health.failed_at),
                     coalesce(', with: ' || health.failure, ' without a message'),
                     date_trunc('second', health.next_start));
    hint := read_log || ' at that time; a worker that fails is started again with growing pauses, a minute at most';
  ELSIF w.n < wanted AND lib.out_of_slots THEN
    -- More databases than slots are normal: they take turns of two seconds, and each is served before any has its
    -- second turn.
    status := CASE
      WHEN w.n > 0 THEN 'warning'
      WHEN health.wanted_since < clock_timestamp()
             - CASE WHEN health.workers_everywhere > 0 THEN greatest(patience, interval '1 minute')
                    ELSE interval '5 seconds' END THEN 'error'
      WHEN health.workers_everywhere > 0 THEN 'ok'
      ELSE 'warning' END;
    detail := CASE
      WHEN w.n > 0 THEN format('The server has no free background worker slot: %s.', running)
      WHEN health.workers_everywhere = 0
        THEN format('The server has no free background worker slot for any database: %s, and one is wanted since %s.',
                    running, date_trunc('second', health.wanted_since))
      ELSE format('It waits for a worker slot since %s: %s with work share %s by turns.',
                  date_trunc('second', health.wanted_since),
                  health.workers_everywhere + health.databases_waiting || ' databases',
                  outbox_internal.counted(health.workers_everywhere, 'slot', 'slots')) END;
    hint := format('ALTER SYSTEM SET max_worker_processes = %s; -- then restart the server',
                   current_setting('max_worker_processes')::int + 8);
  ELSIF health.wanted_since < clock_timestamp() - least(patience, interval '10 seconds') THEN
    status := 'error';
    detail := format(CASE w.n WHEN 0 THEN 'No worker runs, and one is wanted since %s.'
                              ELSE running || ', and not the first, which is wanted since %s: its keys wait.' END,
                     date_trunc('second', health.wanted_since));
    hint := read_log;
  ELSIF w.n = 0 AND EXISTS (SELECT FROM pg_extension AS e
                            WHERE e.extname = 'outbox' AND e.xmin = pg_current_xact_id_if_assigned()::xid) THEN
    detail := 'A worker starts when this transaction has committed.';
  ELSIF w.n = 0 AND health.blocked_by IS NOT NULL THEN
    status := 'warning';
    detail := format('No worker runs while the session with pid %s needs the database alone (DROP, RENAME, '
                     'or CREATE DATABASE with it as TEMPLATE).', health.blocked_by);
    hint := format('SELECT * FROM pg_stat_activity WHERE pid = %s;', health.blocked_by);
  ELSIF w.n = 0 AND health.extension IN ('missing', 'other version') THEN
    status := 'error';
    detail := format('No worker runs: the last one found %s in this database. The launcher looks again once a '
                     'minute in a database that enqueues events.',
                     CASE health.extension WHEN 'missing' THEN 'no extension outbox with its schema'
                                           ELSE 'another version of the extension outbox' END);
    hint := 'SELECT pg_reload_conf(); -- the launcher looks again at once';
  ELSIF w.n = 0 AND health.extension IS NULL
        AND pg_postmaster_start_time() < clock_timestamp() - interval '10 seconds' THEN
    status := 'error';
    detail := 'No worker runs: the launcher does not serve this database. It serves databases that allow '
              'connections, 4096 at most.';
    hint := 'SELECT datname, datallowconn FROM pg_database;';
  ELSIF w.n = 0 THEN
    detail := 'A worker is starting.';
  ELSIF outbox_internal.worker_stands_still(patience) THEN
    status := 'error';
    detail := format('%s, but the last round of the one with pid %s was at %s%s.', running, w.pid, w.last_loop_at,
                     coalesce(': ' || outbox_internal.doctor_halt(w.pid), ''));
    hint := outbox_internal.doctor_terminate(
      w.pid,
      'another one takes over, and events in flight may be sent twice. '
      'Before: SELECT wait_event_type, wait_event, pg_blocking_pids(pid) FROM pg_stat_activity '
      'WHERE backend_type = ''outbox worker''. One that stays takes no signal: in a shell on the database server, '
      'kill -CONT with its pid, or detach its debugger. Last, kill -9 ends it, and then PostgreSQL restarts the '
      'whole cluster, and all sessions end');
  ELSIF disk_wait IS NOT NULL THEN
    status := 'warning';
    detail := format('%s. A round has waited for the disk for more than a second (%s): each commit and each delivery '
                     'waits for it.', running, disk_wait);
    hint := 'SELECT wait_event, count(*) FROM pg_stat_activity WHERE wait_event_type IN (''IO'', ''LWLock'') '
            'GROUP BY 1; -- who else waits. pg_test_fsync measures the disk';
  ELSIF health.failures > 1 AND w.started_at > clock_timestamp() - interval '1 minute' THEN
    status := 'warning';
    detail := format('%s, the last one since %s: '
                     'earlier ones ended unexpectedly, %s times in a row, the last at %s%s.',
                     running, date_trunc('second', w.started_at), health.failures,
                     date_trunc('second', health.failed_at),
                     coalesce(', with: ' || health.failure, ' without a message'));
    hint := read_log;
  ELSE
    detail := running || '.';
  END IF;
  RETURN NEXT;

  "check" := 'standby'; status := 'ok'; hint := NULL; detail := 'No event waits for a synchronous standby.';
  IF w.no_standby THEN
    status := 'warning';
    detail := format('Events wait until the synchronous standbys (%s) have confirmed their transactions.',
                     current_setting('synchronous_standby_names'));
    hint := 'SELECT application_name, state, sync_state FROM pg_stat_replication; '
            '-- is another server the primary now? Then stop this one, otherwise it delivers again what that one '
            'has delivered. If not, start a standby. Last: ALTER SYSTEM SET outbox.wait_for_standbys = off delivers '
            'without one, and a failover may undo a transaction whose events were delivered';
  END IF;
  RETURN NEXT;

  "check" := 'timeline'; status := 'ok'; hint := NULL;
  SELECT * INTO wal FROM outbox_internal.timeline();
  detail := format('The WAL of this server is on timeline %s.', wal.timeline);
  IF wal.later IS NOT NULL THEN
    status := 'error';
    detail := format('The WAL of this server is on timeline %s, beyond %s, where timeline %s began: another server '
                     'has been the primary since. %s', wal.timeline, wal.left_at, wal.later,
                     CASE WHEN pg_is_in_recovery() THEN 'This standby cannot follow it.'
                     ELSE 'What this one delivers, that one may deliver too, or may not have at all.' END);
    hint := '-- stop this server, and make it a standby of the other one: pg_rewind, or a new base backup';
  END IF;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_worker(interval) IS
  'Part of outbox.doctor(): whether there is a worker, and whether its loop runs; whether the server is the primary.';
