-- The doctor checks each sink: is it stopped, out of reach, badly configured, or blocked by single events?

CREATE OR REPLACE FUNCTION outbox_internal.sink_advice(
  server oid, OUT topic text, OUT status text, OUT detail text, OUT hint text
) RETURNS SETOF record
LANGUAGE c STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_advice';
COMMENT ON FUNCTION outbox_internal.sink_advice(oid) IS
  'Part of outbox.doctor(): typical mistakes in the options of a sink, as its kind knows them. status is ok for '
  'those that can be meant.';

-- A sink that is slower than its producers is no error, and nothing else says how slow it is. The recent rate of a
-- few requests per minute says nothing, so a low rate limit counts by itself.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_pace(
  options text[], due bigint, rate double precision, OUT words text, OUT seconds double precision,
  OUT option text
) RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
  width text;
  given text;
  parts text[];
  allowed double precision; -- requests per second
  pace double precision := nullif(doctor_pace.rate, 0);
BEGIN
  SELECT max(o.option_value) FILTER (WHERE o.option_name = 'concurrency'),
         max(o.option_value) FILTER (WHERE o.option_name = 'rate_limit')
  INTO width, given FROM pg_options_to_table(doctor_pace.options) AS o;
  parts := regexp_match(given, '^ *([0-9]+) */ *([0-9]*) *(ms|s|min|m|h|d) *$');
  allowed := parts[1]::double precision
             / extract(epoch FROM (coalesce(nullif(parts[2], ''), '1') || parts[3])::interval);
  IF allowed < 0.2 OR allowed <= 1.25 * pace THEN
    option := 'rate_limit';
    pace := greatest(allowed, pace); -- a request may have several events
    words := 'Held by rate_limit ' || given;
  ELSIF pace < 0.01 OR pace IS NULL THEN
    RETURN;
  ELSE
    option := 'concurrency';
    words := concat(width || ' at a time, ',
                    CASE WHEN pace < 10 THEN round(pace::numeric, 1) ELSE round(pace::numeric) END, '/s');
  END IF;
  seconds := doctor_pace.due / pace;
  words := CASE WHEN seconds >= 10 THEN format(
    ' %s: about %s for the %s that can be sent now.', words,
    CASE WHEN seconds < 120 THEN round(seconds::numeric) || ' s'
         WHEN seconds < 7200 THEN round(seconds::numeric / 60) || ' min'
         ELSE round(seconds::numeric / 3600) || ' h' END,
    doctor_pace.due) END;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_pace(text[], bigint, double precision) IS
  'Part of outbox.doctor(): how fast a sink delivers, how long its due events take at that pace, in words and in '
  'seconds, and the option that bounds it.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_sinks(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
DECLARE
  s record;
  advice record;
  stuck boolean; -- events are due, and none moves
  pace record; -- how fast it delivers
  probe text; -- the statement that shows a failure; an endpoint answers only to a request
BEGIN
  FOR s IN
    -- Materialized: with statistics of pg_foreign_server the planner would compute the view for each sink.
    WITH shown AS MATERIALIZED (SELECT * FROM outbox.sinks)
    SELECT v.*, f.oid AS server, f.srvoptions,
           u.unrecorded, u.unrecorded_since, u.record_error, u.unrecorded_delivered,
           t.state AS stop_state, t.reason, t.error, t.since, t.stopped_by,
           h.failing AS failing_heads, h.id, h.attempts, h.available_at, h.last_error AS head_error,
           h.dead AS dead_head, h.adopted,
           outbox_internal.other_leases(f.oid, n.ordered) AS leased_until,
           outbox_internal.mapping_options(f.oid) AS mapping,
           outbox_internal.server_options(f.srvfdw, true) AS target_options,
           (SELECT '-- ' || c.hint FROM outbox_internal.client_library(f.srvfdw) AS c
            WHERE c.status = 'error' AND v.state = 'misconfigured') AS unfit,
           u.failures[array_position(u.reasons, 'duplicate')] AS duplicates
    FROM shown AS v
    JOIN pg_foreign_server AS f ON f.srvname = v.name
    JOIN outbox_internal.sink_names AS n ON n.server = f.oid
    LEFT JOIN outbox.stopped_sinks AS t ON t.sink = v.name
    LEFT JOIN outbox_internal.sink_statistics() AS u ON u.server = f.oid
    LEFT JOIN outbox_internal.doctor_heads() AS h ON h.sink = v.name
    ORDER BY v.name
  LOOP
    "check" := format('sink %s', s.name); status := 'ok'; hint := NULL;
    probe := format('SELECT * FROM outbox.probe(%L%s);', s.name,
                    CASE WHEN 'url' = ANY (s.target_options) THEN ', send => true' END);
    detail := format('%s: %s, %s%s pending, %s.', s.kind, s.state,
                     CASE WHEN s.estimated THEN 'about ' ELSE '' END, s.pending,
                     outbox_internal.counted(s.dead, 'dead letter', 'dead letters'));
    pace := outbox_internal.doctor_pace(
      s.srvoptions, CASE WHEN s.state IN ('delivering', 'waiting') THEN s.due END, s.rate);
    detail := detail || coalesce(pace.words, '');
    -- Failing events and dead letters do not explain it: they delay their own keys only.
    stuck := s.state IN ('idle', 'waiting', 'failing') AND s.in_flight = 0 AND s.rate < 0.01
             AND coalesce(s.oldest_due_age,
                          CASE WHEN s.dead_head IS NULL AND (s.blocked = 0 OR s.dead = 0)
                               THEN s.oldest_pending_age END)
                 > greatest(patience, interval '5 minutes');
    -- It comes before all other states, because such events are sent again after a restart.
    IF s.unrecorded_since < clock_timestamp() - interval '2 seconds' THEN
      status := 'error';
      detail := format('%s, since %s: %s',
                       concat_ws('; ',
                                 'Delivered and not recorded: ' || nullif(s.unrecorded_delivered, 0),
                                 'Failed and not recorded: ' || nullif(s.unrecorded - s.unrecorded_delivered, 0)),
                       date_trunc('second', s.unrecorded_since), s.record_error);
      hint := 'SELECT tgrelid::regclass AS "table", tgname AS name, pg_get_triggerdef(oid) AS definition '
              'FROM pg_trigger WHERE NOT tgisinternal '
              'AND tgrelid IN (SELECT relid FROM pg_partition_tree(''outbox.events'')) AND tgname !~ ''^events_'' '
              'UNION ALL SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint '
              'WHERE contype IN (''c'', ''f'', ''u'', ''x'') AND conname <> ''events_pending_id_sink_key'' '
              'AND (conrelid IN (SELECT relid FROM pg_partition_tree(''outbox.events'')) '
              'OR confrelid IN (SELECT relid FROM pg_partition_tree(''outbox.events''))); '
              '-- a trigger or constraint of your own on outbox.events and its partitions refuses what the worker '
              'writes, unless the error says otherwise. They are recorded by themselves when the cause is gone; '
              'a restart before that sends them again';
      IF EXISTS (SELECT FROM outbox_internal.unwritable_tables()) THEN
        hint := '-- see check publications. They are recorded by themselves when the cause is gone; a restart before '
                'that sends them again';
      END IF;
    ELSIF s.stop_state = 'paused' THEN
      status := 'warning';
      detail := format('%s has been paused since %s by %s: %s.', s.name, s.since, s.stopped_by,
                       outbox_internal.counted(s.pending, 'event waits', 'events wait'));
      hint := format('SELECT outbox.resume(%L);', s.name);
    ELSIF s.stop_state = 'disabled' THEN
      status := 'error';
      detail := format('%s has been disabled since %s, %s: %s. %s.', s.target, s.since,
                       CASE s.reason WHEN '410' THEN 'because its endpoint wants no more events (410)'
                                     ELSE 'because it had failed for ' || s.reason || ' without a success' END,
                       coalesce(s.error, 'no error is known'),
                       outbox_internal.counted(s.pending, 'event waits', 'events wait'));
      hint := format('SELECT outbox.resume(%L); -- when the cause is gone', s.name);
    ELSIF s.state = 'paused by endpoint' AND s.pending > 0 AND s.paused_until > clock_timestamp() + patience THEN
      status := 'warning';
      detail := format('%s has asked for a pause until %s (Retry-After or RateLimit-Reset): %s.',
                       s.target, date_trunc('second', s.paused_until),
                       outbox_internal.counted(s.pending, 'event waits', 'events wait'));
      hint := format('SELECT outbox.resume(%L); -- ends the pause, and tries the events that wait for its end; '
                     'option max_pause limits such pauses', s.name);
    ELSIF s.state IN ('circuit open', 'disabled', 'misconfigured') THEN
      status := 'error';
      detail := format('%s is %s: %s', s.target, s.state, coalesce(s.last_error, 'no error is known'));
      hint := CASE
        WHEN s.unfit IS NOT NULL THEN s.unfit
        WHEN s.last_error LIKE '%SASL authentication failed%' AND 'sasl_password' = ANY (s.mapping) THEN
          outbox_internal.doctor_comment(format(
            'give it the correct password, and its events are sent: '
            'ALTER USER MAPPING FOR PUBLIC SERVER %I OPTIONS (SET sasl_password ''...''); '
            'this shows each step: SELECT * FROM outbox.probe(%L);', s.name, s.name))
        WHEN s.last_error LIKE 'crashed twice %' THEN
          format('SELECT outbox.resume(%L); -- when the cause is gone; after the installation of another build '
                 'it is opened by itself. No event is lost, and no attempt is spent', s.name)
        WHEN s.last_error LIKE 'the library of sink kind %' THEN
          'SELECT pg_terminate_backend(pid) FROM outbox.workers; -- after the installation of the library '
          'that was built for this outbox and PostgreSQL. No event is lost, and no attempt is spent'
        WHEN s.state = 'disabled' THEN probe || ' -- the worker is about to record it: run the doctor again'
        ELSE
          probe || ' -- shows the failing step; with send => true also a test event, and explains the answer. '
                   'Correct it by ALTER SERVER or ALTER USER MAPPING. Its events wait in order, and none is lost' END;
    ELSIF s.state = 'degraded' THEN
      status := 'warning';
      detail := format('%s is degraded: %s', s.target, coalesce(s.last_error, 'no error is known'));
      hint := CASE
        WHEN s.last_error LIKE 'topic % does not exist%'
             AND 'allow_auto_create_topics=false' = ANY (s.srvoptions) THEN
          format('ALTER SERVER %I OPTIONS (SET allow_auto_create_topics ''true''); '
                 '-- or create the topic; its events are then sent by themselves', s.name)
        ELSE
          probe || ' -- shows the failing step. The events are sent by themselves when the cause is gone; '
                   'no event is lost, and no attempt is spent' END;
    ELSIF s.leased_until > clock_timestamp() + patience AND s.pending > 0 THEN
      status := 'warning';
      detail := format('%s It gives out nothing before %s: until then, events are leased that were claimed before '
                       'its option ordered was changed.', detail, date_trunc('second', s.leased_until));
      hint := format('SELECT token, lease_until, ids FROM outbox.leases WHERE server = %s; '
                     '-- outbox.ack() and outbox.nack() end them. If the program that has claimed them is gone, '
                     'DELETE FROM outbox.leases with the same WHERE gives these events out again', s.server);
    ELSIF stuck THEN
      status := 'warning';
      detail := format('%s Its oldest event has been due for %s, and nothing is %s.',
                       detail, date_trunc('second', coalesce(s.oldest_due_age, s.oldest_pending_age)),
                       CASE WHEN s.kind = 'manual' THEN 'claimed' ELSE 'delivered' END);
      hint := CASE
        WHEN s.kind = 'manual' THEN
          'SELECT pid, usename, application_name, state, query_start FROM pg_stat_activity '
          'WHERE query ~ ''outbox[.](claim|n?ack)''; -- does its dispatcher run?'
        ELSE probe || ' -- unless another check says why' END;
    ELSIF s.dead_head THEN
      status := 'warning';
      detail := format('%s %s, the first behind %s: %s', detail,
                       outbox_internal.counted(s.blocked,
                                               'waits behind a dead letter or a failing event of its key',
                                               'wait behind dead letters or failing events of their keys'),
                       s.id, coalesce(s.head_error, 'no error is known'));
      hint := format('SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED'' AND sink = %L; '
                     '-- when the cause is gone; to give one up, '
                     'DELETE FROM outbox.events the one whose id is in the detail', s.name);
    ELSIF s.failing_heads > 0 THEN
      status := 'warning';
      detail := format('%s %s and %s behind them; the oldest is %s, after %s, %s: %s', detail,
                       outbox_internal.counted(s.failing_heads, 'is failing', 'are failing'),
                       outbox_internal.counted(s.blocked, 'waits', 'wait'),
                       s.id,
                       outbox_internal.counted(s.attempts, 'attempt', 'attempts'),
                       CASE WHEN s.adopted THEN 'tried again at ' || date_trunc('second', s.available_at)
                            ELSE 'not tried before outbox.adopt()' END,
                       coalesce(s.head_error, 'no error is known'));
      hint := CASE
        WHEN s.adopted THEN
          format('UPDATE outbox.events SET available_at = now() '
                 'WHERE status = ''PENDING'' AND sink = %L AND id = %L; '
                 '-- to try it now; DELETE FROM outbox.events with the same WHERE gives it up', s.name, s.id)
        ELSE '-- see check origin' END;
    ELSIF s.dead > 0 THEN
      status := 'warning';
      detail := detail
                || CASE WHEN s.blocked > 0
                        THEN format(' %s behind them.', outbox_internal.counted(s.blocked, 'waits', 'wait'))
                        ELSE '' END;
      hint := format('SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED'' AND sink = %L; '
                     '-- when the cause is gone, which last_error of the same rows tells', s.name);
    END IF;
    IF s.duplicates > 0 THEN
      detail := format('%s Since %s, %s dropped by the destination as stored before, though this sink had not '
                       'sent them before.', detail, date_trunc('second', s.stats_since),
                       outbox_internal.counted(s.duplicates, 'event was', 'events were'));
      IF status = 'ok' THEN
        status := 'warning';
        hint := format('SELECT outbox.reset_stats(%L); -- when the other publisher with the same Nats-Msg-Id is '
                       'stopped: a copy of this database whose worker runs, for example. outbox.replay() sends '
                       'kept events again', s.name);
      END IF;
    END IF;
    IF status = 'ok' AND pace.seconds >= 300 AND s.oldest_due_age > patience THEN
      status := 'warning';
      hint := CASE pace.option
        WHEN 'rate_limit' THEN
          outbox_internal.doctor_comment(format(
            'if the endpoint takes more: ALTER SERVER %I OPTIONS (SET rate_limit ''...'');', s.name))
        WHEN 'concurrency' THEN
          outbox_internal.doctor_comment(format(
            'SELECT latency_p50, latency_p99 FROM outbox.sinks WHERE name = %L; shows how long events take. If the '
            'destination takes more at a time, raise its options, such as concurrency', s.name)) END;
    END IF;
    RETURN NEXT;

    FOR advice IN SELECT * FROM outbox_internal.sink_advice(s.server) LOOP
      "check" := format('advice %s %s', s.name, advice.topic);
      status := advice.status; detail := advice.detail;
      hint := CASE WHEN starts_with(advice.hint, '-- ') THEN outbox_internal.doctor_comment(substr(advice.hint, 4))
                   ELSE advice.hint END;
      RETURN NEXT;
    END LOOP;
  END LOOP;
  IF NOT FOUND THEN
    "check" := 'sinks'; status := 'warning'; detail := 'There is no sink.';
    hint := '-- CREATE SERVER makes one, which takes all events that the options events, aggregates and match '
            'choose, and every event without them: CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka '
            'OPTIONS (bootstrap_servers ''localhost:9092'', events ''order.*'');';
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_sinks(interval) IS
  'Part of outbox.doctor(): one row per sink, and one for each typical mistake in its options.';
