-- outbox.probe(): the worker tries a sink without sending events.

-- Topics that the options alone do not name. Events of a paused topic have an available_at, and are read first. An
-- event that cannot be read or sent has no topic. A lock on the table must not keep a probe from its other steps.
-- A topic's name shows what it is made of, so the caller must have the right to read those columns. Topics that were
-- not looked at are named, and do not count as well.
CREATE OR REPLACE FUNCTION outbox_internal.probe_topics(
  server oid, reader oid, OUT topics text, OUT unseen text, OUT hint text
) RETURNS record
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
@READS_BY_INDEX@
AS $$
DECLARE
  name text;
  template text;
  hidden text; -- columns of the topic's name that the reader may not read
  by_type boolean; -- events of one type go to one topic
  most int;
  event uuid;
  found text[] := '{}';
BEGIN
  topics := '';
  SELECT s.srvname,
         coalesce((SELECT o.option_value FROM pg_options_to_table(s.srvoptions) AS o WHERE o.option_name = 'topic'),
                  '${aggregate_type}')
  INTO name, template
  FROM pg_foreign_server AS s
  WHERE s.oid = probe_topics.server AND 'topic' = ANY (outbox_internal.server_options(s.srvfdw, false));
  IF template IS NULL OR template !~ '[$][{]' THEN
    RETURN;
  END IF;
  SELECT string_agg(DISTINCT quote_ident(c.name), ', ' ORDER BY quote_ident(c.name)) INTO hidden
  FROM regexp_matches(template, '[$][{]([^}]*)', 'g') AS v (name)
  CROSS JOIN LATERAL (
    SELECT CASE WHEN v.name[1] LIKE 'header.%' THEN 'headers'
                WHEN v.name[1] = 'aggregatetype' THEN 'aggregate_type'
                WHEN v.name[1] = 'aggregateid' THEN 'aggregate_id'
                WHEN v.name[1] = 'type' THEN 'event_type'
                ELSE v.name[1] END AS name) AS c
  WHERE c.name <> 'database'
    AND has_column_privilege(probe_topics.reader, 'outbox.events'::regclass, c.name, 'SELECT') IS NOT TRUE;
  IF hidden IS NOT NULL THEN
    IF EXISTS (SELECT FROM outbox.events_pending AS e
               WHERE e.sink = name AND e.available_at IS NULL)
       OR EXISTS (SELECT FROM outbox.events_pending AS e
                  WHERE e.sink = name AND e.available_at IS NOT NULL AND e.blocked_by IS NULL) THEN
      unseen := format('topics of pending events were not looked for: %I may not read %s of outbox.events',
                       pg_get_userbyid(probe_topics.reader), hidden);
      hint := format('GRANT SELECT (%s) ON outbox.events TO %I;', hidden, pg_get_userbyid(probe_topics.reader));
    END IF;
    RETURN;
  END IF;
  by_type := regexp_replace(template, '[$][{](aggregate_type|event_type)[}]', '', 'g') !~ '[$][{]';
  most := CASE WHEN by_type THEN 10000 ELSE 100 END;
  FOR event IN
    SELECT DISTINCT ON (f.aggregate_type, f.event_type, f.other) f.id
    FROM ((SELECT e.id, e.aggregate_type, e.event_type, CASE WHEN NOT by_type THEN e.id END AS other
           FROM outbox.events_pending AS e
           WHERE e.available_at IS NOT NULL AND e.blocked_by IS NULL AND e.sink = name
           ORDER BY e.sink, e.available_at, e.position LIMIT most)
          UNION ALL
          (SELECT e.id, e.aggregate_type, e.event_type, CASE WHEN NOT by_type THEN e.id END
           FROM outbox.events_pending AS e
           WHERE e.available_at IS NULL AND (e.sink, e.position) >= (name, 0)
             AND (e.sink, e.position) < (name, 9223372036854775807)
           ORDER BY e.sink, e.position LIMIT most)) AS f
    LIMIT 200
  LOOP
    BEGIN
      found := found || ARRAY(SELECT p.value FROM outbox.preview(event, name) AS p
                              WHERE p.part = 'topic' AND p.value <> ALL (found));
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
  topics := array_to_string(found, ',');
EXCEPTION WHEN OTHERS THEN
  topics := '';
  unseen := format('topics of pending events were not looked for: %s', SQLERRM);
  hint := '-- see SELECT * FROM outbox.doctor();';
END
$$;
COMMENT ON FUNCTION outbox_internal.probe_topics(oid, oid) IS
  'Part of outbox.probe(): the topics of pending events of a Kafka sink whose option topic has variables, separated '
  'by commas; or why they were not looked for, and a hint.';

-- A probe that gives up earlier than the sink shows nothing about the sink. The options are those of the kit's HTTP
-- and TCP peers, whose defaults are 15 s and 10 s.
CREATE OR REPLACE FUNCTION outbox_internal.probe_patience(server oid) RETURNS bigint
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  SELECT least(300000, greatest(
    20000,
    (SELECT extract(epoch FROM max(o.option_value::interval))::bigint * 1000 + 5000
     FROM pg_options_to_table(s.srvoptions) AS o
     WHERE o.option_name IN ('timeout', 'connect_timeout')
       AND o.option_value ~ '^[0-9]+ *(ms|s|m|min|h)$')))
  FROM pg_foreign_server AS s WHERE s.oid = probe_patience.server
$$;
COMMENT ON FUNCTION outbox_internal.probe_patience(oid) IS
  'Part of outbox.probe(): how long a probe of this sink takes at most unless the caller says it, in '
  'milliseconds.';

CREATE OR REPLACE FUNCTION outbox.probe(
  sink text, timeout interval DEFAULT NULL, send boolean DEFAULT false,
  OUT step text, OUT ok boolean, OUT milliseconds double precision, OUT message text, OUT hint text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_probe';
COMMENT ON FUNCTION outbox.probe(text, interval, boolean) IS
  'Lets the worker try a sink with its committed options, whatever the state of the sink: it connects, '
  'authenticates, and asks for metadata and rights, also of the topics of pending events. It sends no event and '
  'creates no topic. With send => true a sink of its own then delivers a test event of type outbox.probe, whose '
  'message has the header outbox-probe: true. Returns one row per step; a failed step says why and what to do, and '
  'ok is NULL for what could not be looked at. Without timeout it waits as long as the sink would: 20 seconds, or 5 '
  'seconds more than its options timeout and connect_timeout, at most 5 minutes. Needs USAGE on the server. To '
  'check that all is well: SELECT bool_and(ok IS TRUE) FROM outbox.probe(''name'').';
