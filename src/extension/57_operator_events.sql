-- Operator events report changes of a sink to the sinks that ask for them by name, so operators need no monitoring
-- system. Each change is reported once, and changes of operator events themselves are not reported: so a sink that
-- fails cannot make events about its events.

CREATE TABLE IF NOT EXISTS outbox_internal.conditions (
  sink text COLLATE "C" NOT NULL,
  what text COLLATE "C" NOT NULL,
  since timestamptz,
  told_at timestamptz,
  n bigint,
  event bigint,
  delivered bigint,
  PRIMARY KEY (sink, what)
);
COMMENT ON TABLE outbox_internal.conditions IS
  'The conditions of each sink, and whether an operator event was sent.';
COMMENT ON COLUMN outbox_internal.conditions.sink IS 'The sink.';
COMMENT ON COLUMN outbox_internal.conditions.what IS 'disabled, failing, lagging; or dead_letters, a row that stays.';
COMMENT ON COLUMN outbox_internal.conditions.since IS
  'When it was first seen. Of dead_letters: those with a later last_attempt_at are counted.';
COMMENT ON COLUMN outbox_internal.conditions.told_at IS
  'When an event told it. NULL: it is not yet old enough, or no sink asks for such an event.';
COMMENT ON COLUMN outbox_internal.conditions.n IS
  'Of dead_letters: how many of those that are counted there were at the last look.';
COMMENT ON COLUMN outbox_internal.conditions.event IS
  'Of failing, unless the sink itself is down: the position of the event that fails.';
COMMENT ON COLUMN outbox_internal.conditions.delivered IS
  'Of failing: delivered of outbox.sinks when it was told. It is over when the sink has delivered since.';

-- An event that one sink refuses, for example by a template that needs another header, is enqueued for each of the
-- others by name, and the refusal becomes a line of the log.
CREATE OR REPLACE FUNCTION outbox_internal.tell_operators(sink text, what text, said text, facts jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  type text := 'outbox.sink.' || tell_operators.what;
  line text := regexp_replace(said, '[[:cntrl:]]+', ' ', 'g'); -- a header has one line
  marks jsonb := jsonb_build_object('text', line);
  payload jsonb := jsonb_build_object('sink', tell_operators.sink, 'database', current_database(), 'text', line)
                   || facts;
  taker text; -- NULL: all that take it
BEGIN
  IF NOT outbox_internal.has_taker('outbox.sink', type, marks) THEN
    RETURN false;
  END IF;
  FOR taker IN
    SELECT NULL UNION ALL
    SELECT n.name FROM outbox_internal.sink_names AS n
    WHERE outbox_internal.route_refusal(n.name, 'outbox.sink', type, marks) IS NULL
  LOOP
    BEGIN
      PERFORM outbox.enqueue('outbox.sink', tell_operators.sink, type, payload, headers => marks, sink => taker);
      EXIT WHEN taker IS NULL;
    EXCEPTION WHEN OTHERS THEN
      IF SQLSTATE ~ '^(40|53|57|58|55P03)' THEN -- not the event's
        RAISE;
      ELSIF taker IS NOT NULL THEN
        RAISE WARNING 'outbox cannot enqueue an operator event for sink "%": %', taker, SQLERRM USING DETAIL = line;
      END IF;
    END;
  END LOOP;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox_internal.tell_operators(text, text, text, jsonb) IS
  'Enqueues one operator event. Returns false if no sink asks for it.';

-- The functions that look for a few rows of each sink are apart, because they are to use indexes, and outbox.sinks
-- chooses its own plans.
CREATE OR REPLACE FUNCTION outbox_internal.oldest_failures()
RETURNS TABLE (server oid, "position" bigint, created_at timestamptz)
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT n.server, f.position, f.created_at
  FROM outbox_internal.sink_names AS n CROSS JOIN LATERAL (
    SELECT r.position, r.created_at
    FROM (SELECT p.* FROM outbox.events_pending AS p
          WHERE (p.last_attempt_at IS NOT NULL OR p.redrive_late IS NOT NULL) AND p.sink = n.name
          ORDER BY hashtextextended(p.partition_key, 0), p.position LIMIT 1000) AS r
    WHERE r.last_attempt_at IS NOT NULL AND r.blocked_by IS NULL
    ORDER BY r.position LIMIT 1) AS f
$$;
COMMENT ON FUNCTION outbox_internal.oldest_failures() IS
  'Part of operator events: the first event of each sink that has failed and is tried again (among 1,000 that '
  'have failed or were redriven).';

CREATE OR REPLACE FUNCTION outbox_internal.has_late_event(sink text, due_before timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT greatest(count(*) FILTER (WHERE e.timed), count(*) FILTER (WHERE NOT e.timed)) = 10000
         OR coalesce(bool_or(e.blocked_by IS NULL AND e.event_type NOT LIKE 'outbox.%'
                             AND e.since < has_late_event.due_before), false)
  FROM ((SELECT false AS timed, p.blocked_by, p.event_type, p.created_at AS since
         FROM outbox.events_pending AS p
         WHERE p.available_at IS NULL AND (p.sink, p.position) >= (has_late_event.sink, 0)
           AND (p.sink, p.position) < (has_late_event.sink, 9223372036854775807)
         ORDER BY p.sink, p.position LIMIT 10000)
        UNION ALL
        (SELECT true, NULL, p.event_type, p.available_at
         FROM outbox.events_pending AS p
         WHERE p.available_at < has_late_event.due_before AND p.sink = has_late_event.sink AND p.blocked_by IS NULL
         ORDER BY p.available_at, p.position LIMIT 10000)) AS e
$$;
COMMENT ON FUNCTION outbox_internal.has_late_event(text, timestamptz) IS
  'Part of operator events: whether an event of the sink that is no operator event has been due since before then. '
  'Only the first 10,000 events are read; if there are more, one of those is taken for late.';

-- A look was at since + margin. Dead letters of up to MARGIN before may have been committed after it (by another
-- worker, or when a user no longer locked the row). So they are counted again, and those of that look are subtracted.
CREATE OR REPLACE FUNCTION outbox_internal.new_dead_letters(at timestamptz, margin interval, bound interval)
RETURNS TABLE (sink text, fresh bigint, recent bigint, error text)
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT s.name, f.later + greatest(f.n - f.later - s.counted, 0), f.recent,
         (SELECT left(l.last_error, 500)
          FROM (SELECT l.last_error, l.event_type FROM outbox.events_failed AS l
                WHERE l.sink = s.name AND l.last_attempt_at > s.since
                ORDER BY l.last_attempt_at DESC LIMIT 100000) AS l
          WHERE l.event_type NOT LIKE 'outbox.%' LIMIT 1)
  FROM (SELECT n.name, coalesce(k.n, 0) AS counted,
               least(k.since, new_dead_letters.at - new_dead_letters.margin) AS since
        FROM outbox_internal.sink_names AS n
        LEFT JOIN outbox_internal.conditions AS k ON k.sink = n.name AND k.what = 'dead_letters'
        WHERE k.told_at IS NULL OR k.told_at <= new_dead_letters.at - new_dead_letters.bound) AS s
  CROSS JOIN LATERAL (
    SELECT count(*) AS n,
           count(*) FILTER (WHERE f.last_attempt_at > s.since + new_dead_letters.margin) AS later,
           count(*) FILTER (WHERE f.last_attempt_at > new_dead_letters.at - new_dead_letters.margin) AS recent
    FROM (SELECT l.last_attempt_at, l.event_type FROM outbox.events_failed AS l
          WHERE l.sink = s.name AND l.last_attempt_at > s.since
          ORDER BY l.last_attempt_at DESC LIMIT 100000) AS f
    WHERE f.event_type NOT LIKE 'outbox.%') AS f
$$;
COMMENT ON FUNCTION outbox_internal.new_dead_letters(timestamptz, interval, interval) IS
  'Part of operator events: for each sink with none announced within notice_after, how many dead letters are new '
  'since the last look, how many there are within the margin, and the last error. Those that are operator events do '
  'not count. It reads the last 100,000 of a sink.';

-- A sink fails while it is down, or while one event goes on failing: one that has failed once in a while is not told.
-- It has recovered only when it has delivered again, and not when its failing events have become dead letters:
-- otherwise a channel that refuses everything would be told of its own recovery, refuse that, and so on.
CREATE OR REPLACE FUNCTION outbox_internal.look_at_sinks() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
#variable_conflict use_column
DECLARE
  here CONSTANT integer := 'outbox_internal.conditions'::regclass::oid::integer;
  bound interval := current_setting('outbox.notice_after')::interval;
  margin CONSTANT interval := '10 minutes';
  at CONSTANT timestamptz := clock_timestamp();
  c record;
  place text;
BEGIN
  -- As a RENAME of a sink does: the events first, then the conditions.
  BEGIN
    LOCK TABLE outbox.events_pending IN ROW EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 1; -- the next look comes soon
  END;
  PERFORM pg_advisory_xact_lock(here, 0); -- a former first worker may still be looking
  IF NOT EXISTS (SELECT FROM unnest('{disabled,failing,lagging,dead_letters,recovered}'::text[]) AS w (what)
                 WHERE outbox_internal.has_taker('outbox.sink', 'outbox.sink.' || w.what, NULL)) THEN
    DELETE FROM outbox_internal.conditions;
    RETURN 0;
  ELSIF outbox_internal.restore_seen() THEN
    RETURN 1; -- a copy must not report in the name of its original
  END IF;
  FOR c IN
    WITH seen AS MATERIALIZED (
      SELECT s.name::text AS sink, s.state, s.last_error, s.pending, s.delivered, s.stats_since,
             f.position AS event,
             s.state IN ('circuit open', 'misconfigured', 'recording fails', 'degraded') AS is_down,
             s.state LIKE 'disabled%' OR s.state IN ('paused', 'dropped') AS is_stopped,
             s.oldest_due_age > bound AS lags,
             s.state IN ('idle', 'delivering') AND coalesce(s.oldest_due_age < bound / 2, true)
               AND coalesce(f.created_at > at - bound, true) AS is_well
      FROM outbox.sinks AS s
      LEFT JOIN pg_foreign_server AS v ON v.srvname = s.name
      LEFT JOIN outbox_internal.oldest_failures() AS f ON f.server = v.oid),
    -- Of a sink that takes operator events, one of these that waits does not count: it would be followed by others.
    wrong AS (
      SELECT s.sink, w.what FROM seen AS s CROSS JOIN LATERAL (VALUES
        ('disabled', s.state LIKE 'disabled%'),
        ('failing', s.is_down OR (s.event IS NOT NULL AND NOT s.is_stopped AND s.state <> 'paused by endpoint')),
        ('lagging', s.lags AND NOT s.is_stopped
           AND (outbox_internal.route_refusal(s.sink, 'outbox.sink', 'outbox.sink.lagging', NULL) IS NOT NULL
                OR outbox_internal.has_late_event(s.sink, at - bound))),
        ('dead_letters', true)) AS w (what, holds)
      WHERE w.holds
      UNION
      SELECT k.sink, k.what
      FROM outbox_internal.conditions AS k JOIN seen AS s ON s.sink = k.sink
      WHERE k.told_at IS NOT NULL AND s.state <> 'dropped'
        AND NOT (s.is_well AND (k.what <> 'failing' OR s.stats_since IS NULL -- it has no counters
                                OR s.delivered > CASE WHEN s.stats_since > k.told_at THEN 0 ELSE k.delivered END))),
    gone AS (
      DELETE FROM outbox_internal.conditions AS k
      WHERE (k.sink, k.what) NOT IN (SELECT w.sink, w.what FROM wrong AS w)
      RETURNING k.*),
    begun AS (
      INSERT INTO outbox_internal.conditions AS k (sink, what, since, n, event)
      SELECT w.sink, w.what,
             at - CASE w.what WHEN 'dead_letters' THEN margin ELSE '0' END,
             CASE w.what WHEN 'dead_letters' THEN 0 END,
             CASE w.what WHEN 'failing' THEN s.event END
      FROM wrong AS w JOIN seen AS s ON s.sink = w.sink
      ON CONFLICT DO NOTHING
      RETURNING k.*)
    SELECT k.*, s.state, s.last_error, s.pending, s.delivered AS delivered_now, s.event AS event_now, s.is_down,
           l.fresh, l.recent, l.error AS letter_error, false AS is_over
    FROM (SELECT * FROM outbox_internal.conditions UNION ALL SELECT * FROM begun) AS k
    JOIN seen AS s ON s.sink = k.sink
    LEFT JOIN outbox_internal.new_dead_letters(at, margin, bound) AS l ON l.sink = k.sink AND k.what = 'dead_letters'
    WHERE (k.sink, k.what) IN (SELECT w.sink, w.what FROM wrong AS w)
    UNION ALL
    SELECT g.*, coalesce(s.state, 'dropped'), s.last_error, s.pending, NULL, NULL, NULL, NULL, NULL, NULL, true
    FROM gone AS g LEFT JOIN seen AS s ON s.sink = g.sink
    WHERE g.told_at IS NOT NULL AND g.what <> 'dead_letters'
  LOOP
    place := format('outbox sink "%s" of database "%s"', c.sink, current_database());
    IF c.is_over THEN
      PERFORM outbox_internal.tell_operators(c.sink, 'recovered', format('%s is no longer %s', place, c.what),
        jsonb_build_object('was', c.what, 'since', c.since, 'state', c.state));
    ELSIF c.what = 'dead_letters' THEN
      CONTINUE WHEN c.fresh IS NULL; -- some were told within the bound
      IF c.fresh > 0 THEN
        PERFORM outbox_internal.tell_operators(c.sink, c.what,
          format('%s: %s', place,
                 outbox_internal.counted(least(c.fresh, 100000), 'new dead letter', 'new dead letters', 100000))
            || coalesce(': ' || c.letter_error, ''),
          jsonb_build_object('count', c.fresh, 'last_error', c.letter_error));
      END IF;
      UPDATE outbox_internal.conditions AS k
      SET since = at - margin, n = c.recent,
          told_at = CASE WHEN c.fresh > 0 THEN at END
      WHERE k.sink = c.sink AND k.what = c.what AND (c.recent > 0 OR k.n > 0 OR k.told_at IS NOT NULL);
    ELSIF c.told_at IS NOT NULL THEN
      CONTINUE;
    ELSIF c.what = 'failing' AND NOT c.is_down AND c.event IS DISTINCT FROM c.event_now THEN
      UPDATE outbox_internal.conditions AS k SET since = at, event = c.event_now
      WHERE k.sink = c.sink AND k.what = c.what;
    ELSIF c.since <= at - (CASE c.what WHEN 'failing' THEN bound WHEN 'lagging' THEN bound / 2 ELSE '0' END) THEN
      IF outbox_internal.tell_operators(
        c.sink, c.what,
        format('%s is %s: state "%s", %s', place, c.what, c.state,
               outbox_internal.counted(c.pending, 'pending event', 'pending events'))
          || coalesce(': ' || left(c.last_error, 500), ''),
        jsonb_build_object('since', c.since, 'state', c.state, 'pending', c.pending,
                           'last_error', left(c.last_error, 500))) THEN
        UPDATE outbox_internal.conditions AS k SET told_at = at, delivered = c.delivered_now
        WHERE k.sink = c.sink AND k.what = c.what;
      END IF;
    END IF;
  END LOOP;
  RETURN 1;
END
$$;
COMMENT ON FUNCTION outbox_internal.look_at_sinks() IS
  'Enqueues operator events (outbox.sink.disabled, failing, lagging, dead_letters, recovered) for what has changed '
  'since the last look. The first worker calls it. Returns 0 if no sink asks for such events.';
