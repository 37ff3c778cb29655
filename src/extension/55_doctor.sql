-- The doctor's checks of maintenance, and of who may read secrets and payloads. Then the doctor itself.

CREATE OR REPLACE FUNCTION outbox_internal.doctor_upkeep(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  today date := (now() AT TIME ZONE 'UTC')::date;
  keep interval := (SELECT l.longest_retention FROM outbox_internal.library() AS l);
  days record;
  s record;
  dependent text;
BEGIN
  -- The worker makes and drops days every ten minutes.
  "check" := 'retention'; status := 'ok';
  detail := format('Delivered events are kept for %s; the days are in place.', keep);
  SELECT min(d.day) AS oldest,
         array_agg(d.relid) FILTER (WHERE d.day + 2 < (now() - keep) AT TIME ZONE 'UTC') AS relids,
         count(*) FILTER (WHERE d.day + 2 < (now() - keep) AT TIME ZONE 'UTC') AS over,
         bool_or(d.day = today) AND bool_or(d.day = today + 1) AS ready
  INTO days
  FROM (SELECT c.oid AS relid, right(c.relname, 8)::date AS day
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]{8}$') AS d;
  -- What belongs to the day is dropped with it, though it may depend on the day's columns besides, as the day's
  -- copies of the extension's triggers do.
  SELECT pg_describe_object(d.classid, d.objid, d.objsubid) INTO dependent
  FROM pg_depend AS d
  WHERE d.deptype = 'n'
    AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = ANY (days.relids)
         OR d.refclassid = 'pg_type'::regclass
            AND d.refobjid IN (SELECT c.reltype FROM pg_class AS c WHERE c.oid = ANY (days.relids)))
    AND NOT EXISTS (SELECT FROM pg_depend AS own
                    WHERE own.classid = d.classid AND own.objid = d.objid AND own.deptype <> 'n'
                      AND own.refclassid = 'pg_class'::regclass AND own.refobjid = ANY (days.relids))
  LIMIT 1;
  SELECT 'events_sent_' || d.day AS name INTO s
  FROM generate_series(0, 3) AS n CROSS JOIN LATERAL to_char(today + n, 'YYYYMMDD') AS d (day)
  WHERE to_regclass('outbox.events_sent_' || d.day) IS NOT NULL
    AND NOT outbox_internal.has_day('events_sent_' || d.day)
  ORDER BY 1 LIMIT 1;
  IF FOUND THEN
    status := CASE WHEN keep > '0' THEN 'error' ELSE 'warning' END;
    detail := format('The table outbox.%s is no partition of outbox.events_sent, and has the name of one: '
                     'delivered events of that day are deleted and not kept.', s.name);
    hint := format('ALTER TABLE outbox.%I RENAME TO %I; SELECT outbox.run_maintenance();',
                   s.name, s.name || '_detached');
  ELSIF days.over > 0 THEN
    status := 'warning';
    detail := format('%s over and not dropped, the oldest is %s: ',
                     outbox_internal.counted(days.over, 'day of delivered events is', 'days of delivered events are'),
                     days.oldest);
    IF outbox_internal.restore_seen() THEN
      detail := detail || 'a restore is under way, or events wait that were enqueued in another cluster or database.';
      hint := '-- only where no other server delivers the events: SELECT outbox.adopt(); drops the days too. '
              'Elsewhere, when the restore has ended: SELECT outbox.run_maintenance();';
    ELSIF dependent IS NOT NULL THEN
      detail := detail || dependent || ' depends on one.';
      hint := 'SELECT outbox.run_maintenance(); -- when you have dropped that, or have it read outbox.events instead';
    ELSE
      detail := detail || 'a session has been reading them for long, or no worker runs.';
      hint := 'SELECT outbox.run_maintenance(); '
              '-- if it fails for a lock: SELECT pid, state, xact_start FROM pg_stat_activity ORDER BY xact_start';
    END IF;
  ELSIF days.ready IS NOT TRUE
        AND EXISTS (SELECT FROM outbox.workers AS w
                    WHERE w.started_at < clock_timestamp() - patience AND w.database = current_database()) THEN
    status := 'warning';
    detail := 'The days of delivered events that should be ready for today and tomorrow are not: '
              'with a retention, delivered events could not be recorded.';
    hint := 'SELECT outbox.run_maintenance();';
  END IF;
  RETURN NEXT;

  "check" := 'vacuum'; status := 'ok'; hint := NULL; detail := 'Autovacuum is on for the tables.';
  SELECT c.oid::regclass AS name INTO s
  FROM pg_class AS c
  WHERE c.oid IN ('outbox.events_pending'::regclass, 'outbox.events_failed'::regclass,
                  'outbox_internal.rescan_queue'::regclass)
    AND 'autovacuum_enabled=false' = ANY (
      replace(c.reloptions::text, 'autovacuum_enabled=off', 'autovacuum_enabled=false')::text[])
  ORDER BY 1 LIMIT 1;
  IF FOUND THEN
    status := 'warning';
    detail := format('Autovacuum is turned off for %s: deleted rows stay, and the worker becomes slower.', s.name);
    hint := format('ALTER TABLE %s RESET (autovacuum_enabled);', s.name);
  ELSIF NOT current_setting('autovacuum')::boolean OR NOT current_setting('track_counts')::boolean THEN
    status := 'warning'; detail := 'Autovacuum is turned off: deleted rows stay, and the worker becomes slower.';
    hint := 'ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();';
  ELSE
    SELECT t.n_dead_tup, l.vacuumed INTO s
    FROM pg_stat_all_tables AS t CROSS JOIN LATERAL greatest(t.last_autovacuum, t.last_vacuum) AS l (vacuumed)
    WHERE t.relid = 'outbox.events_pending'::regclass AND t.n_dead_tup > 5000000
      AND coalesce(l.vacuumed, pg_postmaster_start_time()) < now() - interval '30 minutes'
      AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.relid = 'outbox.events_pending'::regclass);
    IF FOUND THEN
      status := 'warning';
      detail := format('About %s deleted rows of outbox.events_pending wait for vacuum, which last ran at %s.',
                       s.n_dead_tup, coalesce(s.vacuumed::text, '(never)'));
      hint := 'VACUUM (VERBOSE) outbox.events_pending; '
              '-- if it removes few rows, look at the checks horizon, transactions and prepared';
    END IF;
  END IF;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_upkeep(interval) IS 'Part of outbox.doctor(): retention and vacuum.';

-- It reports only grants and addresses that no installation has for a reason. The hint must not show a secret either.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_secrets(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s record;
BEGIN
  "check" := 'secrets'; status := 'ok'; detail := 'PUBLIC cannot read secrets or payloads.';
  FOR s IN
    SELECT c.oid::regclass AS name, c.relnamespace = 'pg_catalog'::regnamespace AS of_secrets
    FROM pg_class AS c
    WHERE (c.oid = 'pg_user_mapping'::regclass
           OR c.relnamespace = 'outbox'::regnamespace AND c.relname ~ '^events' AND c.relkind IN ('r', 'p'))
      AND EXISTS (SELECT FROM aclexplode(c.relacl) AS a WHERE a.grantee = 0 AND a.privilege_type = 'SELECT')
    ORDER BY 2 DESC, 1
  LOOP
    status := 'error';
    detail := format('PUBLIC may read %s, and with it %s.', s.name,
                     CASE WHEN s.of_secrets THEN 'the secrets of all user mappings'
                          ELSE 'the payloads of events' END);
    hint := format('REVOKE SELECT ON %s FROM PUBLIC;', s.name);
    RETURN NEXT;
  END LOOP;
  FOR s IN
    SELECT f.srvname AS name, outbox_internal.mapping_options(f.oid) IS NOT NULL AS mapped
    FROM pg_foreign_server AS f
    JOIN outbox_internal.wrappers AS w ON w.oid = f.srvfdw
    CROSS JOIN LATERAL pg_options_to_table(f.srvoptions) AS o
    WHERE o.option_name = 'url'
      AND o.option_value ~*
        '://[^/@]*:[^/@]*@'
        '|[?&](access_?token|token|api_?key|key|secret|sig|signature|code|auth)='
        '|//(hooks[.]slack[.]com|discord(app)?[.]com/api/webhooks|[^/]*webhook[.]office[.]com)/'
    ORDER BY 1
  LOOP
    status := 'warning';
    detail := format('The url of sink %s seems to contain a secret, and PUBLIC may read the options of a server.',
                     s.name);
    hint := format(
      'DO %L; -- moves it into the user mapping; then replace the token, because it was readable',
      format(
        'DECLARE url text := (SELECT option_value FROM pg_foreign_server, pg_options_to_table(srvoptions) '
        'WHERE srvname = %L AND option_name = ''url''); '
        'BEGIN EXECUTE %L; EXECUTE %L || quote_literal(url) || '')''; END',
        s.name,
        format('ALTER SERVER %I OPTIONS (DROP url)', s.name),
        format('%s USER MAPPING FOR PUBLIC SERVER %I OPTIONS (%surl ',
               CASE WHEN s.mapped THEN 'ALTER' ELSE 'CREATE' END, s.name,
               CASE WHEN s.mapped THEN 'ADD ' ELSE '' END)));
    RETURN NEXT;
  END LOOP;
  IF status = 'ok' THEN
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_secrets(interval) IS
  'Part of outbox.doctor(): a row for each table and each url by which PUBLIC can read secrets or payloads.';

CREATE OR REPLACE FUNCTION outbox_internal.time_limit(ms integer) RETURNS boolean
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_time_limit';
COMMENT ON FUNCTION outbox_internal.time_limit(integer) IS
  'Part of outbox.doctor(): cancels the query after this number of milliseconds; 0: does not. Returns whether the '
  'former limit was reached.';

-- It runs as the extension's owner, so that an operator sees the cause without the right to read events or secrets,
-- which no row contains. It also answers when one of its parts fails, meets a lock or takes longer than 5 seconds:
-- that is a row too.
CREATE OR REPLACE FUNCTION outbox.doctor(
  patience interval DEFAULT NULL, OUT "check" text, OUT status text, OUT detail text, OUT hint text
) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms' SET jit = off
AS $$
DECLARE
  part text;
  checks text[];
  on_standbys boolean;
  reads_tables boolean;
  locked boolean := false;
BEGIN
  -- The checks of each part, in their order: one that is left out has a row under its own name too, because users ask
  -- for checks by name.
  FOR part, checks, on_standbys, reads_tables IN
    VALUES ('library', '{preload, version, librdkafka}'::text[], true, false),
           ('worker', '{worker, standby, timeline}', true, false),
           ('locks', '{sessions, locks}', false, false),
           ('row_locks', '{row locks}', false, true),
           ('transactions', '{transactions, prepared, horizon}', false, false),
           ('events', '{routes, lost sink, origin, clock, positions, dead letters}', true, true),
           ('sinks', '{sinks}', true, true),
           ('tables', '{tables, collation}', true, false),
           ('upkeep', '{retention, vacuum}', false, false),
           ('secrets', '{secrets}', true, false),
           ('publications', '{publications}', false, true)
  LOOP
    CONTINUE WHEN pg_is_in_recovery() AND NOT on_standbys;
    -- Parts that read the tables are left out while a session has an exclusive lock on one, or waits for it.
    IF reads_tables AND NOT locked THEN
      locked := EXISTS (SELECT FROM pg_locks AS l
                        JOIN pg_class AS c ON c.oid = l.relation
                          AND c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
                        WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
                          AND l.pid IS DISTINCT FROM pg_backend_pid()
                          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                          AND c.relname !~ '^events_sent_');
    END IF;
    BEGIN
      IF reads_tables AND locked THEN
        RAISE lock_not_available;
      END IF;
      PERFORM outbox_internal.time_limit(5000);
      RETURN QUERY EXECUTE format(
        'SELECT outbox_internal.for_client(d."check"), d.status, outbox_internal.for_client(d.detail), '
        'outbox_internal.for_client(d.hint) FROM outbox_internal.doctor_%s($1) AS d', part)
        USING coalesce(doctor.patience, '30 seconds');
      PERFORM outbox_internal.time_limit(0);
      CONTINUE;
    EXCEPTION
      WHEN query_canceled THEN
        IF NOT outbox_internal.time_limit(0) THEN
          RAISE; -- by a user, or for statement_timeout
        END IF;
        status := 'warning'; detail := 'Not looked at: it took longer than 5 seconds.';
        hint := format('SELECT * FROM outbox_internal.doctor_%s(''30 seconds''); '
                       '-- as a superuser, without this limit', part);
      WHEN lock_not_available THEN
        PERFORM outbox_internal.time_limit(0);
        locked := true;
        status := 'warning';
        detail := 'Not looked at: another session has a lock on the tables of outbox. The check locks names it.';
        hint := 'SELECT * FROM outbox.doctor(); -- again, without the lock';
      WHEN OTHERS THEN
        PERFORM outbox_internal.time_limit(0);
        status := 'error'; detail := format('The doctor could not look: %s', SQLERRM);
        hint := format('SELECT * FROM outbox_internal.doctor_%s(''30 seconds''); '
                       '-- as a superuser, shows the whole error', part);
    END;
    FOREACH "check" IN ARRAY checks LOOP
      RETURN NEXT;
    END LOOP;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox.doctor(interval) IS
  'Finds the causes of late or missing events: one row per check and per sink, with status ok, warning or error, '
  'the facts, and a hint to paste. It names transactions and locks older than patience, by default 30 seconds. It '
  'waits for no lock, and reads no payload.';
