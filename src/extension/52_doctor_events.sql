-- The doctor checks pending events and dead letters. It reads a bounded number of rows, by the indexes, and no
-- payload.

-- Sinks that filter by type are listed with the statement that adds this type. Sinks with the option match are only
-- named: they may belong to other customers. There is no such statement for a type that a list of globs would read as
-- a pattern.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_candidates(aggregate_type text, event_type text) RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  WITH sinks AS (
    SELECT s.srvname AS name, w.name AS wrapper,
           count(*) OVER (PARTITION BY n.match IS NULL) AS of_all,
           row_number() OVER (PARTITION BY n.match IS NULL ORDER BY s.srvname) AS number,
           n.*
    FROM pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw
    CROSS JOIN LATERAL (
      SELECT max(o.option_value) FILTER (WHERE o.option_name = 'match') AS match,
             bool_and(o.type !~ E'[,*?[:cntrl:]]|^\\s|\\s$') FILTER (WHERE o.type IS NOT NULL) AS plain,
             string_agg(format('SET %I %L', o.option_name, o.option_value || ', ' || o.type), ', '
                        ORDER BY o.option_name DESC) FILTER (WHERE o.type IS NOT NULL) AS change
      FROM (SELECT p.option_name, p.option_value,
                   CASE p.option_name WHEN 'events' THEN doctor_candidates.event_type
                                      WHEN 'aggregates' THEN doctor_candidates.aggregate_type END AS type
            FROM pg_options_to_table(s.srvoptions) AS p) AS o) AS n),
  by_type AS (
    SELECT string_agg(format('ALTER SERVER %I OPTIONS (%s);', k.name, k.change), ' '
                      ORDER BY k.name) FILTER (WHERE k.plain)
             || CASE WHEN max(k.of_all) > 10 THEN format(' and %s more', max(k.of_all) - 10) ELSE '' END AS list,
           count(*) AS n
    FROM sinks AS k WHERE k.match IS NULL AND k.number <= 10),
  by_header AS (
    SELECT string_agg(format('%s (%s)', k.name, k.match), ', ' ORDER BY k.name)
             || CASE WHEN max(k.of_all) > 10 THEN format(', and %s more', max(k.of_all) - 10) ELSE '' END AS list
    FROM sinks AS k WHERE k.match IS NOT NULL AND k.number <= 10)
  SELECT outbox_internal.doctor_comment(concat_ws(
    ' ',
    'choose who is to get these events.',
    'One of these statements adds their type to a sink, which then gets all events of it, of every tenant: '
      || t.list,
    CASE WHEN t.list IS NULL AND doctor_candidates.event_type LIKE 'outbox.%'
           THEN 'A type that begins with outbox. goes only to sinks whose option events names it.'
         WHEN t.n > 0 AND t.list IS NULL
           THEN 'No sink can name this type: a comma, * or ? has a meaning in the options events and aggregates.' END,
    'These sinks choose by header, and get only events whose headers fit: ' || h.list || '.',
    CASE WHEN doctor_candidates.event_type !~ E'[,*?[:cntrl:]]|^\\s|\\s$'
         THEN format('A new sink for them alone: CREATE SERVER new_sink FOREIGN DATA WRAPPER outbox_kafka '
                     'OPTIONS (bootstrap_servers ''localhost:9092'', events %L);', doctor_candidates.event_type) END,
    'Or DELETE the events'))
  FROM by_type AS t, by_header AS h
$$;
COMMENT ON FUNCTION outbox_internal.doctor_candidates(text, text) IS
  'Part of outbox.doctor(): how each sink could take this kind of event, for a user to choose from.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_events(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  n bigint;
  example record;
  newest timestamptz;
  year_ahead CONSTANT timestamptz := clock_timestamp() + interval '1 year'; -- a call is no condition of an index
  routing record;
  waiting record;
BEGIN
  "check" := 'routes'; status := 'ok'; detail := 'Every waiting event has a sink.';
  -- broken: events with an error could not be read or routed. Events of another origin belong to the check origin.
  SELECT count(*) FILTER (WHERE w.last_error IS NOT NULL) AS broken,
         (array_agg(left(w.last_error, 500) ORDER BY w.position) FILTER (WHERE w.last_error IS NOT NULL))[1] AS error,
         count(*) FILTER (WHERE w.taken) AS taken,
         min(w.created_at) FILTER (WHERE w.taken) AS oldest,
         count(*) FILTER (WHERE NOT w.taken) AS nobodys
  INTO waiting
  FROM (SELECT e.position, e.created_at, e.last_error,
               CASE WHEN e.last_error IS NULL
                    THEN outbox_internal.has_taker(e.aggregate_type, e.event_type, e.headers) END AS taken
        FROM (SELECT e.* FROM outbox.events_pending AS e WHERE e.sink IS NULL ORDER BY e.position LIMIT 1000) AS e
        WHERE e.origin = (SELECT l.origin FROM outbox_internal.library() AS l)) AS w;
  SELECT min(s.routing_since) AS since,
         (array_agg(s.routing_error ORDER BY s.routing_since) FILTER (WHERE s.routing_error IS NOT NULL))[1] AS error
  INTO routing
  FROM outbox_internal.worker_slots() AS s
  WHERE s.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
  IF (waiting.taken > 0 OR routing.since IS NOT NULL)
     AND coalesce(routing.since, waiting.oldest) < clock_timestamp() - patience THEN
    status := CASE WHEN routing.error IS NOT NULL THEN 'error' ELSE 'warning' END;
    detail := format(
      '%s, since %s%s.',
      CASE waiting.taken
        WHEN 0 THEN 'Events that a sink takes are not routed yet'
        ELSE outbox_internal.counted(waiting.taken, 'event that a sink takes is not routed yet',
                                     'events that a sink takes are not routed yet', 1000) END,
      date_trunc('second', coalesce(routing.since, waiting.oldest)),
      coalesce('; the last attempt failed with: ' || routing.error, ''));
    hint := '-- the sinks that take them wait; the worker tries again by itself. '
            'See checks worker, locks and row locks';
    RETURN NEXT;
  END IF;
  IF waiting.broken > 0 THEN
    status := 'error';
    detail := format('%s, and later events of the same keys go on; the oldest has the error: %s.',
                     outbox_internal.counted(waiting.broken, 'event that a sink takes cannot be routed',
                                             'events that a sink takes cannot be routed'),
                     waiting.error);
    hint := 'UPDATE outbox.events SET headers = headers, last_error = NULL '
            'WHERE status = ''PENDING'' AND sink IS NULL AND last_error IS NOT NULL; -- when the cause is gone';
    RETURN NEXT;
  END IF;
  IF waiting.nobodys > 0 THEN
    SELECT e.aggregate_type, e.event_type, e.created_at,
           (SELECT string_agg(h.key, ', ' ORDER BY h.key) FROM jsonb_object_keys(e.headers) AS h(key)) AS headers,
           (SELECT format('sink "%s", %s', d.name, outbox_internal.dropped_sink(d.name))
            FROM outbox_internal.dropped_sinks AS d
            WHERE outbox_internal.dropped_sink_takes(d.options, e.aggregate_type, e.event_type, e.headers)
            ORDER BY d.dropped_at DESC LIMIT 1) AS former
    INTO example
    FROM outbox.events_pending AS e
    WHERE e.sink IS NULL AND e.last_error IS NULL AND e.origin = (SELECT l.origin FROM outbox_internal.library() AS l)
      AND NOT outbox_internal.has_taker(e.aggregate_type, e.event_type, e.headers)
    ORDER BY e.position LIMIT 1;
    status := 'warning';
    detail := format(
      '%s; the oldest has aggregate_type "%s" and event_type "%s"%s, and waits since %s.%s',
      outbox_internal.counted(waiting.nobodys, 'event waits because no sink takes it',
                              'events wait because no sink takes them', 1000),
      example.aggregate_type, example.event_type,
      coalesce(' and the headers ' || example.headers, ''),
      date_trunc('second', example.created_at),
      coalesce(' Before, such events went to ' || example.former || '.', ''));
    hint := outbox_internal.doctor_candidates(example.aggregate_type, example.event_type);
    RETURN NEXT;
  ELSIF status = 'ok' THEN
    RETURN NEXT;
  END IF;

  "check" := 'lost sink'; status := 'ok'; hint := NULL; detail := 'Every sink of a waiting event exists.';
  SELECT b.dropped AS sink, b.pending, b.estimated,
         count(*) OVER () AS sinks,
         sum(b.pending) OVER () - b.pending AS others
  INTO example
  FROM outbox_internal.sink_backlog() AS b
  WHERE b.dropped IS NOT NULL AND b.pending > 0
  ORDER BY b.pending DESC LIMIT 1;
  IF FOUND THEN
    status := 'error';
    detail := format(
      'Pending events: %s%s of sink "%s", which does not exist any more%s%s.',
      CASE WHEN example.estimated THEN 'about ' ELSE '' END, example.pending, example.sink,
      coalesce(' (' || outbox_internal.dropped_sink(example.sink) || ')', ''),
      ', and ' || nullif(example.others, 0) || ' of '
        || outbox_internal.counted(example.sinks - 1, 'other', 'others'));
    hint := outbox_internal.doctor_comment(format(
      'create it again under this name by CREATE SERVER, which delivers its events there; '
      'or give them to another sink, which then gets all of them, whatever its options choose (the sinks are: %1$s): '
      'UPDATE outbox.events SET sink = ''...'' WHERE status = ''PENDING'' AND sink = %2$L '
      'AND id NOT IN (SELECT id FROM outbox.events WHERE status = ''PENDING'' AND sink = ''...''); '
      'which leaves those that wait in that sink too; or delete them: '
      'DELETE FROM outbox.events WHERE status = ''PENDING'' AND sink = %2$L;',
      coalesce(
        (SELECT string_agg(quote_literal(f.name), ', ' ORDER BY f.name)
                  || CASE WHEN max(f.of_all) > 10 THEN ', ...' ELSE '' END
         FROM (SELECT n.name, count(*) OVER () AS of_all FROM outbox_internal.sink_names AS n
               ORDER BY n.name LIMIT 10) AS f),
        'none'),
      example.sink));
  END IF;
  RETURN NEXT;

  SELECT a.not_adopted INTO n FROM outbox_internal.backlog_apart() AS a;
  "check" := 'origin'; status := 'ok'; hint := NULL; detail := 'The waiting events were enqueued here.';
  IF n > 0 THEN
    status := 'warning';
    detail := outbox_internal.counted(n, 'event waits that was', 'events wait that were')
              || ' enqueued in another cluster or database (a restore, a copy, or another outbox.cluster_name).';
    hint := '-- only where no other server delivers them, so not on a copy: SELECT outbox.adopt(); delivers them '
            'from here. On a copy: DELETE FROM outbox.events WHERE status = ''PENDING'' AND origin <> '
            || (SELECT l.origin FROM outbox_internal.library() AS l) || '; deletes them';
  ELSIF outbox_internal.restore_seen() THEN
    status := 'warning';
    detail := 'A restore is under way, or dead letters were enqueued in another cluster or database (a restore or a '
              'copy): until outbox.adopt(), no operator events are enqueued, and no day of delivered events is '
              'dropped.';
    hint := '-- when the restore has ended, and only where no other server delivers its events, so not on a copy: '
            'SELECT outbox.adopt();';
  END IF;
  RETURN NEXT;

  "check" := 'clock'; status := 'ok'; hint := NULL;
  detail := 'No event is scheduled more than a year ahead, and none that is first or last in the order of its sink '
            'was enqueued in the future.';
  -- Row comparisons and the order leave the planner one index for each step, with any statistics of the table.
  SELECT greatest(max(e.created_at),
                  (SELECT p.created_at FROM outbox.events_pending AS p ORDER BY p.position DESC LIMIT 1))
  INTO newest
  FROM outbox_internal.sink_names AS n LEFT JOIN outbox_internal.sink_statistics() AS b ON b.server = n.server
  CROSS JOIN LATERAL (
    (SELECT p.created_at FROM outbox.events_pending AS p
     WHERE p.available_at IS NULL AND (p.sink, p.position) >= (n.name, coalesce(b.low_watermark, 0))
       AND (p.sink, p.position) < (n.name, 9223372036854775807)
     ORDER BY p.sink, p.position LIMIT 1)
    UNION ALL
    (SELECT p.created_at FROM outbox.events_pending AS p
     WHERE p.available_at IS NULL AND (p.sink, p.position) >= (n.name, coalesce(b.low_watermark, 0))
       AND (p.sink, p.position) < (n.name, 9223372036854775807)
     ORDER BY p.sink DESC, p.position DESC LIMIT 1)
    UNION ALL
    (SELECT p.created_at FROM outbox.events_pending AS p
     WHERE p.available_at IS NOT NULL AND p.blocked_by IS NULL
       AND (p.sink, p.available_at) >= (n.name, '-infinity') AND (p.sink, p.available_at) <= (n.name, 'infinity')
     ORDER BY p.sink, p.available_at, p.position LIMIT 1)) AS e;
  SELECT f.* INTO example
  FROM outbox_internal.sink_names AS n CROSS JOIN LATERAL (
    SELECT p.id, p.sink, p.available_at FROM outbox.events_pending AS p
    WHERE p.available_at IS NOT NULL AND p.blocked_by IS NULL
      AND (p.sink, p.available_at) > (n.name, year_ahead) AND (p.sink, p.available_at) <= (n.name, 'infinity')
    ORDER BY p.sink DESC, p.available_at DESC, p.position DESC LIMIT 1) AS f
  ORDER BY f.available_at DESC LIMIT 1;
  IF FOUND THEN
    status := 'warning';
    detail := format('Events are scheduled for more than a year ahead: %s for sink "%s" is due at %s. '
                     'Was that a wrong clock, or milliseconds taken for seconds?',
                     example.id, example.sink, example.available_at);
    hint := 'UPDATE outbox.events SET available_at = now() '
            'WHERE status = ''PENDING'' AND available_at > now() + interval ''1 year''; '
            '-- if they are to be sent now';
  ELSIF newest > clock_timestamp() + interval '1 minute' THEN
    status := 'warning';
    detail := format('Events were enqueued in the future, the newest at %s: the server''s clock was ahead, '
                     'or created_at was given. Their schedules and ages are wrong.', newest);
    hint := 'UPDATE outbox.events SET created_at = now(), '
            'available_at = CASE WHEN available_at > now() THEN now() END '
            'WHERE status = ''PENDING'' AND created_at > now() + interval ''1 minute''; '
            '-- if they are to be sent now';
  END IF;
  RETURN NEXT;

  "check" := 'positions'; status := 'ok'; hint := NULL;
  detail := 'Events get their positions in the order in which they are enqueued.';
  SELECT q.last_value,
         q.increment_by = 10001 AND q.cache_size = 1 AND NOT q.cycle AND q.min_value = 1
           AND q.max_value = 9223372036854775807 AS sound,
         greatest((SELECT max(p.position) FROM outbox.events_pending AS p),
                  (SELECT max(f.position) FROM outbox.events_failed AS f)) AS highest
  INTO example
  FROM pg_sequences AS q WHERE q.schemaname = 'outbox' AND q.sequencename = 'events_position';
  IF example.sound IS NOT TRUE THEN
    status := 'error';
    detail := 'The sequence outbox.events_position was changed: with a CACHE, another INCREMENT, a bound or CYCLE, '
              'events change places or stay behind.';
    hint := 'ALTER SEQUENCE outbox.events_position AS bigint '
            'INCREMENT BY 10001 MINVALUE 1 NO MAXVALUE CACHE 1 NO CYCLE;';
  ELSIF example.last_value > 4611686018427387903 THEN
    status := 'error';
    detail := format('The sequence outbox.events_position was set to %s, beyond the last position: '
                     'nothing can be enqueued.', example.last_value);
    hint := format('SELECT setval(''outbox.events_position'', %s);',
                   least(coalesce(example.highest, 1), 4611686018427387903 - 1000000) + 1000000);
  ELSIF example.highest > coalesce(example.last_value::numeric + 10000, 0) THEN
    -- The 10000 positions after the last one belong to further rows of its event.
    status := 'error';
    detail := format('The sequence outbox.events_position was set back to %s, while an event has the position %s. '
                     'The next event that is enqueued repairs it.',
                     coalesce(example.last_value, 0), example.highest);
    hint := format('SELECT setval(''outbox.events_position'', %s);', example.highest + 1000000);
  END IF;
  RETURN NEXT;

  "check" := 'dead letters'; status := 'ok'; hint := NULL; detail := 'There is no dead letter.';
  SELECT count(*) AS n,
         min(f.at) AS oldest,
         count(*) FILTER (WHERE f.at > now() - interval '1 hour') AS lately
  INTO example
  FROM (SELECT coalesce(e.last_attempt_at, e.created_at) AS at FROM outbox.events_failed AS e LIMIT 100000) AS f;
  IF example.n > 0 THEN
    status := CASE WHEN example.n < 10000 THEN 'warning' ELSE 'error' END;
    detail := format(
      '%s (%s) %s for a user, the oldest since %s; %s came in the last hour.',
      outbox_internal.counted(example.n, 'dead letter', 'dead letters', 100000),
      pg_size_pretty(pg_total_relation_size('outbox.events_failed')),
      CASE example.n WHEN 1 THEN 'waits' ELSE 'wait' END,
      date_trunc('second', example.oldest), example.lately);
    hint := 'SELECT sink, event_type, left(last_error, 100) AS error, count(*), min(last_attempt_at) '
            'FROM outbox.events WHERE status = ''FAILED'' GROUP BY 1, 2, 3 ORDER BY 4 DESC; '
            '-- when the cause is gone: '
            'SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED''; '
            'to discard an event: DELETE';
  END IF;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_events(interval) IS
  'Part of outbox.doctor(): waiting events that no worker delivers, and dead letters.';

-- Failing events and dead letters that block their keys, the oldest of each sink. Both are found by partial indexes,
-- also if the table has never been analysed.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_heads(
  OUT sink text, OUT failing bigint, OUT id uuid, OUT attempts integer, OUT available_at timestamptz,
  OUT last_error text, OUT dead boolean, OUT adopted boolean)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@ SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
  WITH RECURSIVE holding (position) AS (
    (SELECT p.blocked_by FROM outbox.events_pending AS p
     WHERE p.blocked_by IS NOT NULL
     ORDER BY p.blocked_by, p.position LIMIT 1)
    UNION ALL
    SELECT n.blocked_by FROM holding AS h CROSS JOIN LATERAL (
      SELECT p.blocked_by FROM outbox.events_pending AS p
      WHERE p.blocked_by IS NOT NULL AND p.blocked_by > h.position
      ORDER BY p.blocked_by, p.position LIMIT 1) AS n)
  SELECT DISTINCT ON (h.sink)
         h.sink, h.failing, h.id, h.attempts, h.available_at, left(h.last_error, 500), h.dead,
         h.origin = (SELECT l.origin FROM outbox_internal.library() AS l)
  FROM (SELECT e.sink, count(*) OVER (PARTITION BY e.sink) AS failing, e.id, e.attempts, e.available_at, e.last_error,
               false AS dead, e.position, e.origin
        FROM outbox_internal.sink_names AS n CROSS JOIN LATERAL (
          SELECT p.sink, p.id, p.attempts, p.available_at, p.last_error, p.position, p.origin
          FROM outbox.events_pending AS p
          WHERE p.last_attempt_at IS NOT NULL AND p.sink = n.name
          ORDER BY hashtextextended(p.partition_key, 0), p.position LIMIT 1000) AS e
        UNION ALL
        SELECT f.sink, NULL, f.id, f.attempts, NULL, f.last_error, true, f.position, f.origin
        FROM (SELECT h.position FROM holding AS h LIMIT 10000) AS k
        JOIN outbox.events_failed AS f ON f.position = k.position) AS h
  ORDER BY h.sink, h.dead DESC, h.position
$$;
COMMENT ON FUNCTION outbox_internal.doctor_heads() IS
  'Part of outbox.doctor(): for each sink the number of failing events (counted up to 1,000), and the oldest of '
  'them or the dead letter that blocks its key.';
