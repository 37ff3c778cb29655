-- The doctor checks other sessions: locks, open transactions, snapshots. It reads pg_locks and pg_stat_activity, and
-- waits for no session.

CREATE OR REPLACE FUNCTION outbox_internal.doctor_session(pid integer) RETURNS text
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT format('Session %s (%s)', a.pid, concat_ws(
    ', ',
    'user ' || a.usename,
    'application ' || nullif(a.application_name, ''),
    'from ' || a.client_addr,
    a.state || ' since ' || date_trunc('second', a.state_change),
    (SELECT outbox_internal.doctor_halt(a.pid) WHERE (outbox_internal.process_state(a.pid)).state IN ('T', 't'))))
  FROM pg_stat_activity AS a WHERE a.pid = doctor_session.pid
$$;
COMMENT ON FUNCTION outbox_internal.doctor_session(integer) IS
  'Part of outbox.doctor(): the description of a session, without its statement, which may contain secrets.';

-- Control characters become escapes: a global transaction identifier may have any, and with them it could not be
-- copied from a table on a screen.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_prepared(gid text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT format(
    'ROLLBACK PREPARED %s; -- its writes are lost, with its events; '
    'ask its transaction manager whether COMMIT PREPARED is right instead',
    CASE WHEN gid !~ E'[\x01-\x1f\x7f]' THEN quote_literal(gid)
         ELSE (SELECT format('E''%s''', string_agg(
                 CASE WHEN c.c ~ E'[\x01-\x1f\x7f]' THEN E'\\x' || lpad(to_hex(ascii(c.c)), 2, '0')
                      WHEN c.c IN ('''', E'\\') THEN c.c || c.c
                      ELSE c.c END, '' ORDER BY c.n))
               FROM regexp_split_to_table(gid, '') WITH ORDINALITY AS c(c, n)) END)
$$;
COMMENT ON FUNCTION outbox_internal.doctor_prepared(text) IS
  'Part of outbox.doctor(): the hint that ends a prepared transaction.';

-- Locks that conflict with the ROW EXCLUSIVE of the worker and of every producer. An autovacuum worker is left out:
-- it releases its lock as soon as another session waits.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_locks(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s record;
BEGIN
  -- Of other roles' sessions, an owner of the extension who is no superuser sees only that they exist.
  "check" := 'sessions'; status := 'ok';
  IF NOT pg_has_role('pg_read_all_stats', 'USAGE') THEN
    detail := format('Not seen: since when sessions of other roles have had a transaction open. The doctor runs as '
                     '%s, which lacks that right; so the checks locks, row locks, transactions and horizon overlook '
                     'some.', current_user);
    hint := format('GRANT pg_read_all_stats TO %I;', current_user);
    RETURN NEXT;
  END IF;

  "check" := 'locks'; hint := NULL; detail := 'No lock on the tables of outbox stops the worker or producers.';
  FOR s IN
    SELECT l.pid, l.granted, l.virtualtransaction, (array_agg(l.mode ORDER BY l.mode))[1] AS mode,
           (array_agg(c.oid::regclass ORDER BY c.relname <> 'events_pending', c.relname))[1] AS relation,
           count(DISTINCT c.oid) - 1 AS more,
           coalesce(min(l.waitstart), min(a.xact_start), min(p.prepared)) AS since,
           min(p.gid) AS gid
    FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation
      AND c.relnamespace IN ('outbox'::regnamespace, 'outbox_internal'::regnamespace)
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
      AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
    WHERE l.locktype = 'relation'
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock')
      AND coalesce(a.backend_type, '') NOT IN ('outbox worker', 'autovacuum worker')
      AND l.pid IS DISTINCT FROM pg_backend_pid()
    GROUP BY l.pid, l.granted, l.virtualtransaction
    ORDER BY l.granted DESC, since LIMIT 10
  LOOP
    status := CASE WHEN s.since < clock_timestamp() - patience THEN 'error' ELSE 'warning' END;
    IF s.pid IS NULL THEN
      detail := format('The prepared transaction %L holds %s on %s since %s: the worker and all producers wait.',
                       s.gid, s.mode, s.relation, date_trunc('second', s.since));
      hint := outbox_internal.doctor_prepared(s.gid);
    ELSIF s.granted THEN
      detail := format('%s holds %s on %s%s in a transaction that began at %s: the worker and all producers wait.',
                       outbox_internal.doctor_session(s.pid), s.mode, s.relation,
                       CASE WHEN s.more > 0 THEN format(' and %s more', s.more) ELSE '' END,
                       date_trunc('second', s.since));
      hint := outbox_internal.doctor_terminate(s.pid, 'its transaction is rolled back');
    ELSE
      detail := format('%s waits since %s for %s on %s, held up by %s; the worker and all producers wait behind it.',
                       outbox_internal.doctor_session(s.pid), date_trunc('second', s.since), s.mode, s.relation,
                       array_to_string(pg_blocking_pids(s.pid), ', '));
      hint := format('SELECT pg_cancel_backend(%s); -- its statement fails; or end the session for which it waits, '
                     'by pg_terminate_backend() with the pid in the detail', s.pid);
    END IF;
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_locks(interval) IS
  'Part of outbox.doctor(): whether it may see the sessions of other roles, and locks on the tables of outbox that '
  'stop the worker or producers.';

CREATE OR REPLACE FUNCTION outbox_internal.row_holders(place tid) RETURNS xid[]
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_row_holders';
COMMENT ON FUNCTION outbox_internal.row_holders(tid) IS
  'Part of outbox.doctor(): the running transactions that have locked or changed this row of outbox.events_pending.';

-- It checks the first events of each sink, and those that are to be routed: a locked event becomes one of the first,
-- because those before it are delivered. Blocked ones stay in front of it, up to 10,000 of which are passed over.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_row_locks(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  most CONSTANT int := 20;
  at CONSTANT timestamptz := clock_timestamp(); -- the call itself would be no condition of an index
  s record;
BEGIN
  "check" := 'row locks'; status := 'ok';
  detail := format('No due event has been locked by a transaction older than %s.', patience);
  FOR s IN
    WITH first AS (
      SELECT f.place FROM outbox_internal.sink_names AS n CROSS JOIN LATERAL (
        SELECT e.place
        FROM (SELECT p.ctid AS place, p.blocked_by FROM outbox.events_pending AS p
              WHERE p.available_at IS NULL AND (p.sink, p.position) >= (n.name, 0)
                AND (p.sink, p.position) < (n.name, 9223372036854775807)
              ORDER BY p.sink, p.position LIMIT 10000) AS e
        WHERE e.blocked_by IS NULL LIMIT most) AS f
      UNION ALL
      SELECT f.place FROM outbox_internal.sink_names AS n CROSS JOIN LATERAL (
        SELECT e.ctid AS place FROM outbox.events_pending AS e
        WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.sink = n.name
          AND e.available_at <= at
        ORDER BY e.sink, e.available_at, e.position LIMIT most) AS f
      UNION ALL
      (SELECT w.place
       FROM (SELECT e.ctid AS place, e.aggregate_type, e.event_type, e.headers FROM outbox.events_pending AS e
             WHERE e.sink IS NULL ORDER BY e.position LIMIT 1000) AS w
       WHERE outbox_internal.has_taker(w.aggregate_type, w.event_type, w.headers) LIMIT most)),
    held AS MATERIALIZED (
      SELECT DISTINCT f.place, h.xid
      FROM first AS f CROSS JOIN LATERAL unnest(outbox_internal.row_holders(f.place)) AS h (xid))
    SELECT l.pid, p.gid, coalesce(a.xact_start, p.prepared) AS since, count(DISTINCT h.place) AS n
    FROM held AS h
    JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = h.xid
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
      AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
    WHERE coalesce(a.backend_type, '') <> 'outbox worker' AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND coalesce(a.xact_start, p.prepared) < clock_timestamp() - patience
    GROUP BY 1, 2, 3
    ORDER BY since LIMIT 10
  LOOP
    status := 'warning';
    detail := format('%s has locked %s in a transaction that began at %s: %s not sent before it ends.',
                     CASE WHEN s.pid IS NULL THEN format('The prepared transaction %L', s.gid)
                          ELSE outbox_internal.doctor_session(s.pid) END,
                     outbox_internal.counted(s.n, 'waiting event', 'waiting events', greatest(s.n, most)),
                     date_trunc('second', s.since),
                     CASE WHEN s.n = 1 THEN 'it is' ELSE 'they are' END);
    hint := CASE WHEN s.pid IS NULL THEN outbox_internal.doctor_prepared(s.gid)
                 ELSE outbox_internal.doctor_terminate(s.pid, 'its transaction is rolled back') END;
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_row_locks(interval) IS
  'Part of outbox.doctor(): sessions that have locked due events.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_transactions(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here oid := (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
  -- A session that has written events in any way holds this lock until the end of its transaction.
  writers int[] := ARRAY(
    SELECT DISTINCT l.pid FROM pg_locks AS l
    WHERE l.locktype = 'relation' AND l.database = here AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.relation IN ('outbox.events'::regclass, 'outbox.events_pending'::regclass) AND l.pid IS NOT NULL);
  s record;
BEGIN
  "check" := 'transactions'; status := 'ok';
  detail := format('No transaction that has written events has been open for %s.', patience);
  FOR s IN
    SELECT a.pid, a.xact_start FROM pg_stat_activity AS a
    WHERE a.pid = ANY (writers) AND a.backend_type <> 'outbox worker' AND a.pid <> pg_backend_pid()
      AND a.xact_start < clock_timestamp() - patience
    ORDER BY a.xact_start LIMIT 10
  LOOP
    status := 'warning';
    detail := format('%s has had a transaction open since %s that has written events or is about to: '
                     'they are not visible before it commits.',
                     outbox_internal.doctor_session(s.pid), date_trunc('second', s.xact_start));
    hint := outbox_internal.doctor_terminate(s.pid, 'its transaction is rolled back, with its events');
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;

  "check" := 'prepared'; status := 'ok'; hint := NULL;
  detail := format('No prepared transaction is older than %s.', patience);
  FOR s IN
    SELECT p.gid, p.prepared, p.owner,
           EXISTS (
             SELECT FROM pg_locks AS x
             JOIN pg_locks AS l ON l.pid IS NULL AND l.virtualtransaction = x.virtualtransaction
             WHERE x.pid IS NULL AND x.locktype = 'transactionid' AND x.transactionid = p.transaction
               AND l.relation IN ('outbox.events'::regclass, 'outbox.events_pending'::regclass)) AS wrote
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database() AND p.prepared < clock_timestamp() - patience
    ORDER BY p.prepared LIMIT 10
  LOOP
    status := 'warning';
    detail := format('The prepared transaction %L of %s has been open since %s%s. '
                     'Vacuum cannot remove rows deleted after it began, and the worker becomes slower.',
                     s.gid, s.owner, date_trunc('second', s.prepared),
                     CASE WHEN s.wrote THEN ', with events that are not delivered before it is ended' ELSE '' END);
    hint := outbox_internal.doctor_prepared(s.gid);
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;

  "check" := 'horizon'; status := 'ok'; hint := NULL;
  detail := format('No snapshot in this database is older than %s.', patience);
  FOR s IN
    SELECT a.pid, a.xact_start FROM pg_stat_activity AS a
    WHERE a.datid = here
      AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
      AND a.xact_start < clock_timestamp() - patience
      AND a.backend_type NOT IN ('outbox worker', 'autovacuum worker', 'parallel worker')
      AND a.pid <> pg_backend_pid() AND a.pid <> ALL (writers)
      AND a.pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum AS v) -- vacuum's own snapshot does not hold it up
    ORDER BY a.xact_start LIMIT 10
  LOOP
    status := 'warning';
    detail := format('%s has held a snapshot or a transaction id since %s: '
                     'vacuum cannot remove rows deleted since then, and the worker becomes slower.',
                     outbox_internal.doctor_session(s.pid), date_trunc('second', s.xact_start));
    hint := outbox_internal.doctor_terminate(s.pid, 'its query ends, and its transaction is rolled back');
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_transactions(interval) IS
  'Part of outbox.doctor(): open and prepared transactions whose events are not visible yet, or that prevent vacuum.';
