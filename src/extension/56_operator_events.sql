-- Operator events report changes of a sink to the sinks that ask for them by name, so operators need no monitoring
-- system. Each change is reported once, and changes of operator events themselves are not reported: so a sink that
-- fails cannot make events about its events.

CREATE TABLE IF NOT EXISTS outbox_internal.conditions (
  sink text NOT NULL,
  what text NOT NULL,
  since timestamptz,
  told_at timestamptz,
  n bigint,
  PRIMARY KEY (sink, what)
);
COMMENT ON TABLE outbox_internal.conditions IS
  'What is wrong with which sink, and whether operator events have told it.';
COMMENT ON COLUMN outbox_internal.conditions.sink IS 'The sink.';
COMMENT ON COLUMN outbox_internal.conditions.what IS 'disabled, failing, lagging; or dead_letters, a row that stays.';
COMMENT ON COLUMN outbox_internal.conditions.since IS 'When it was first seen; NULL for dead_letters.';
COMMENT ON COLUMN outbox_internal.conditions.told_at IS
  'When an event told it. NULL: it is not yet old enough, or no sink asks for such an event.';
COMMENT ON COLUMN outbox_internal.conditions.n IS 'Of dead_letters: failed_total of outbox.sinks at the last look.';

-- An event that is refused, for example by a template that needs another header, becomes a line of the log. Further
-- events are still enqueued.
CREATE OR REPLACE FUNCTION outbox_internal.tell_operators(sink text, what text, said text, facts jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  type text := 'outbox.sink.' || tell_operators.what;
  line text := regexp_replace(said, '[[:cntrl:]]+', ' ', 'g'); -- a header has one line
  marks jsonb := jsonb_build_object('text', line);
BEGIN
  IF NOT outbox_internal.has_taker('outbox.sink', type, marks) THEN
    RETURN false;
  END IF;
  BEGIN
    PERFORM outbox.enqueue('outbox.sink', tell_operators.sink, type,
      jsonb_build_object('sink', tell_operators.sink, 'database', current_database(), 'text', line) || facts,
      headers => marks);
  EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE ~ '^(40|53|57|58|55P03)' THEN -- not the event's
      RAISE;
    END IF;
    RAISE WARNING 'outbox cannot enqueue an operator event: %', SQLERRM USING DETAIL = line;
  END;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox_internal.tell_operators(text, text, text, jsonb) IS
  'Enqueues one operator event. Returns false if no sink asks for it.';

CREATE OR REPLACE FUNCTION outbox_internal.look_at_sinks() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  bound interval := current_setting('outbox.notice_after')::interval;
  c record;
  dead record;
  place text;
BEGIN
  IF NOT EXISTS (SELECT FROM unnest('{disabled,failing,lagging,dead_letters,recovered}'::text[]) AS w (what)
                 WHERE outbox_internal.has_taker('outbox.sink', 'outbox.sink.' || w.what, NULL)) THEN
    DELETE FROM outbox_internal.conditions;
    RETURN 0;
  ELSIF outbox_internal.restore_seen() THEN
    RETURN 1; -- a copy must not report in the name of its original
  END IF;
  FOR c IN
    WITH seen AS MATERIALIZED (
      SELECT s.name::text AS sink, s.state, s.last_error, s.pending, s.oldest_due_age, s.failed_total,
             s.state IN ('idle', 'delivering') AND coalesce(s.oldest_due_age < bound / 2, true) AS is_well
      FROM outbox.sinks AS s),
    wrong AS (
      SELECT s.sink, w.what FROM seen AS s CROSS JOIN LATERAL (VALUES
        ('disabled', s.state LIKE 'disabled%'),
        ('failing', s.state IN ('circuit open', 'misconfigured', 'recording fails', 'degraded', 'failing')),
        ('lagging', s.oldest_due_age > bound AND s.state NOT LIKE 'disabled%'
                    AND s.state NOT IN ('paused', 'dropped'))) AS w (what, holds)
      WHERE w.holds
      UNION SELECT s.sink, 'dead_letters' FROM seen AS s
      UNION
      SELECT k.sink, k.what
      FROM outbox_internal.conditions AS k JOIN seen AS s ON s.sink = k.sink
      WHERE k.told_at IS NOT NULL AND NOT s.is_well),
    gone AS (
      DELETE FROM outbox_internal.conditions AS k
      WHERE (k.sink, k.what) NOT IN (SELECT w.sink, w.what FROM wrong AS w)
      RETURNING k.*),
    begun AS (
      INSERT INTO outbox_internal.conditions AS k (sink, what, since, n)
      SELECT w.sink, w.what,
             CASE WHEN w.what <> 'dead_letters' THEN clock_timestamp() END,
             CASE w.what WHEN 'dead_letters' THEN s.failed_total END
      FROM wrong AS w JOIN seen AS s ON s.sink = w.sink
      ON CONFLICT DO NOTHING
      RETURNING k.*)
    SELECT k.sink, k.what, k.since, k.told_at, k.n, s.state, s.last_error, s.pending, s.failed_total, false AS is_over
    FROM (SELECT * FROM outbox_internal.conditions UNION ALL SELECT * FROM begun) AS k
    JOIN seen AS s ON s.sink = k.sink
    WHERE (k.sink, k.what) IN (SELECT w.sink, w.what FROM wrong AS w)
    UNION ALL
    SELECT g.sink, g.what, g.since, g.told_at, g.n, s.state, s.last_error, s.pending, s.failed_total, true
    FROM gone AS g JOIN seen AS s ON s.sink = g.sink WHERE g.told_at IS NOT NULL
  LOOP
    place := format('outbox sink "%s" of database "%s"', c.sink, current_database());
    IF c.is_over THEN
      PERFORM outbox_internal.tell_operators(c.sink, 'recovered', format('%s is no longer %s', place, c.what),
        jsonb_build_object('was', c.what, 'since', c.since, 'state', c.state));
    ELSIF c.what = 'dead_letters' THEN
      CONTINUE WHEN c.failed_total = c.n;
      -- The newest one, by events_failed_at. Dead letters of operator events are not reported, and a sink may have no
      -- others.
      SELECT left(f.last_error, 500) AS error, f.event_type LIKE 'outbox.%' AS is_ours INTO dead
      FROM outbox.events_failed AS f
      WHERE f.sink = c.sink AND f.last_attempt_at IS NOT NULL
      ORDER BY f.last_attempt_at DESC LIMIT 1;
      UPDATE outbox_internal.conditions AS k SET n = c.failed_total WHERE k.sink = c.sink AND k.what = c.what;
      IF c.failed_total > c.n AND dead.is_ours IS NOT TRUE THEN
        PERFORM outbox_internal.tell_operators(c.sink, c.what,
          format('%s: %s', place,
                 outbox_internal.counted(c.failed_total - c.n, 'new dead letter', 'new dead letters'))
            || coalesce(': ' || dead.error, ''),
          jsonb_build_object('count', c.failed_total - c.n, 'last_error', dead.error));
      END IF;
    ELSIF c.told_at IS NULL AND (c.what <> 'failing' OR c.since <= clock_timestamp() - bound) THEN
      IF outbox_internal.tell_operators(
        c.sink, c.what,
        format('%s is %s: state "%s", %s', place, c.what, c.state,
               outbox_internal.counted(c.pending, 'pending event', 'pending events'))
          || coalesce(': ' || left(c.last_error, 500), ''),
        jsonb_build_object('since', c.since, 'state', c.state, 'pending', c.pending,
                           'last_error', left(c.last_error, 500))) THEN
        UPDATE outbox_internal.conditions AS k SET told_at = clock_timestamp()
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
