-- A view with the columns and words of an application's own outbox table, for programs whose statements cannot
-- change. The view is a plain SELECT from outbox.events, so FOR UPDATE SKIP LOCKED locks the events' rows. If each
-- column is one of outbox.events as it is, PostgreSQL passes INSERT, UPDATE and DELETE on. Otherwise a trigger
-- function in the view's schema does, and finds the row by its position. The view is security_invoker, and the
-- function is not SECURITY DEFINER: a user of the view needs the rights on outbox.events.
-- This is one function, because a role that was granted EXECUTE has no USAGE on outbox_internal, and the view must
-- belong to that role.

CREATE OR REPLACE FUNCTION outbox.create_view(
  view text, columns json, statuses text[] DEFAULT '{PENDING,SENT,FAILED}', aggregate_type text DEFAULT NULL
) RETURNS regclass LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
  plain text[] := '{id,aggregate_type,aggregate_id,event_type,payload,payload_bytes,content_type,headers,'
                  'partition_key,dedup_key,seq,created_at,attempts,last_error,sent_at,last_attempt_at,sink,status}';
  path text[] := parse_ident(view);
  part record;                              -- a column of the view
  has_trigger boolean := aggregate_type IS NOT NULL;
  readings text[] := '{}';
  fields text[] := '{}';
  inserts text[] := '{}';
  updates text[] := '{}';
  twice text;
  checks text := '';
  fillings text := '';
  id_name text;                             -- the column with the id, which an INSERT returns like the position
  payload text;
  number text;                              -- the column with the position
  made regclass;
  writer text;
BEGIN
  IF cardinality(path) IS DISTINCT FROM 2 THEN
    RAISE EXCEPTION 'the name of the view must have a schema' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Write it as public.outbox_events.';
  ELSIF cardinality(statuses) IS DISTINCT FROM 3 OR (SELECT count(DISTINCT w) FROM unnest(statuses) AS w) <> 3 THEN
    RAISE EXCEPTION 'statuses must be three different words' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Give the application''s words for pending, sent and failed, in this order, '
             'such as ''{NEW,SENT,ERROR}''.';
  END IF;

  -- field: the column of outbox.events that it writes; NULL: it is only read. filling: its value after an INSERT
  -- without it.
  FOR part IN
    SELECT c.key AS name, s[1] AS given, s[2] AS type, format('NEW.%I', c.key) AS writing, m.*
    FROM json_each_text(columns) WITH ORDINALITY AS c
    CROSS JOIN regexp_match(c.value, E'^\\s*(\\S+)(?:\\s+(\\S.*))?$') AS s
    LEFT JOIN (
      SELECT p, p, 'e.' || p, CASE p WHEN 'created_at' THEN 'now()' WHEN 'attempts' THEN '0'
                                     WHEN 'status' THEN quote_literal(statuses[1]) END, false
      FROM unnest(plain) AS p
      UNION ALL
      VALUES ('available_at', 'available_at', 'coalesce(e.available_at, e.created_at)', 'now()', true),
             ('retry_at', 'available_at', 'e.available_at', NULL, false),
             ('sent', 'sent_at', '(e.sent_at IS NOT NULL)', 'false', true),
             ('updated_at', NULL, 'greatest(e.created_at, e.last_attempt_at, e.sent_at)', 'now()', true),
             ('position', NULL, 'e.position', NULL, true)
    ) AS m (meaning, field, reading, filling, by_trigger) ON m.meaning = s[1]
    ORDER BY c.ordinality
  LOOP
    has_trigger := has_trigger OR part.by_trigger OR part.type IS NOT NULL;
    CASE part.meaning
      WHEN 'id' THEN id_name := part.name;
      WHEN 'payload' THEN payload := part.name;
      WHEN 'position' THEN number := part.name;
      WHEN 'sent' THEN part.writing := format('CASE WHEN %s::boolean THEN now() END', part.writing);
      WHEN 'status' THEN
        IF statuses <> '{PENDING,SENT,FAILED}' THEN
          has_trigger := true;
          part.reading := format(
            'CASE e.status WHEN ''PENDING'' THEN %L WHEN ''SENT'' THEN %L WHEN ''FAILED'' THEN %L END',
            VARIADIC statuses);
          part.writing := format(
            'CASE NEW.%I::text WHEN %L THEN ''PENDING'' WHEN %L THEN ''SENT'' WHEN %L THEN ''FAILED'' END',
            VARIADIC part.name || statuses);
        END IF;
        checks := format($$
  IF NEW.%1$I::text <> ALL (%2$L::text[]) THEN
    RAISE EXCEPTION 'the view %% has no status "%%"', TG_RELID::regclass, NEW.%1$I
      USING ERRCODE = 'check_violation', DETAIL = %3$L,
      HINT = 'To lease events, use SELECT ... FOR UPDATE SKIP LOCKED, '
             'or outbox.claim() of a sink of kind outbox_manual.';
  END IF;$$, part.name, statuses, format('Its statuses are %s.', array_to_string(statuses, ', ')));
      ELSE
        IF part.meaning IS NULL THEN
          RAISE EXCEPTION 'column "%" has no known meaning', part.name USING ERRCODE = 'invalid_parameter_value',
            DETAIL = format('The meaning is "%s".', part.given),
            HINT = format('Give one of %s, available_at, retry_at, sent, updated_at, position.',
                          array_to_string(plain, ', '));
        END IF;
    END CASE;
    readings := readings || format('%s%s AS %I', part.reading, '::' || part.type::regtype, part.name);
    fillings := concat(fillings, format(E'\n    NEW.%1$I := coalesce(NEW.%1$I, ', part.name) || part.filling || ');');
    CONTINUE WHEN part.field IS NULL;
    twice := CASE WHEN part.field = ANY (fields) THEN part.field ELSE twice END;
    IF part.type IS NOT NULL THEN
      part.writing := format('%s::%s', part.writing, (
        SELECT a.atttypid::regtype FROM pg_attribute AS a
        WHERE a.attrelid = 'outbox.events'::regclass AND a.attname = part.field));
    END IF;
    fields := fields || part.field;
    inserts := inserts || part.writing;
    updates := updates || format(
      '%1$I = CASE WHEN NEW.%2$I%3$s IS DISTINCT FROM OLD.%2$I%3$s THEN %4$s ELSE e.%1$I END',
      part.field, part.name,
      CASE WHEN part.type::regtype = 'json'::regtype THEN '::text' END, -- json has no operator for equality
      part.writing);
  END LOOP;

  IF NOT 'event_type' = ANY (fields) THEN
    RAISE EXCEPTION 'no column of the view has the meaning event_type' USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Sinks route and name events by their type.';
  ELSIF NOT 'aggregate_type' = ANY (fields) THEN
    IF aggregate_type IS NULL THEN
      RAISE EXCEPTION 'no column of the view has the meaning aggregate_type'
        USING ERRCODE = 'invalid_parameter_value',
        HINT = 'Give the aggregate type of all events of the view: aggregate_type => ''Order''.';
    END IF;
    fields := fields || 'aggregate_type'::text;
    inserts := inserts || quote_literal(aggregate_type);
  END IF;
  IF has_trigger AND twice IS NOT NULL THEN
    RAISE EXCEPTION 'two columns of the view have the meaning %', twice USING ERRCODE = 'invalid_parameter_value',
      HINT = 'Name one of them, or leave out available_at, sent, updated_at, position, other statuses and types: '
             'then both may stay.';
  END IF;
  IF has_trigger AND number IS NULL THEN
    number := 'position';
    readings := readings || 'e.position'::text;
  END IF;
  EXECUTE format('CREATE VIEW %I.%I WITH (security_invoker = true) AS SELECT %s FROM outbox.events AS e',
                 path[1], path[2], array_to_string(readings, ', '));
  made := format('%I.%I', path[1], path[2])::regclass;
  EXECUTE format('COMMENT ON VIEW %s IS %L', made,
                 'The events of outbox.events in the form of an earlier outbox table. Made by outbox.create_view().');
  IF has_trigger THEN
    writer := format('%I.%I', path[1], left(path[2], 57) || '_write');
    EXECUTE format(
      'CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L',
      writer, format($$
DECLARE
  present record;
BEGIN%1$s
  IF TG_OP = 'INSERT' THEN
    IF NEW.%2$I IS NOT NULL THEN
      RAISE EXCEPTION 'cannot insert a value into column "%%"', %10$L USING ERRCODE = 'generated_always',
        DETAIL = 'The server draws it: it is the place of the event in the order of delivery.',
        HINT = 'Leave the column out.';
    END IF;%3$s
    INSERT INTO outbox.events AS e (%4$s)
    VALUES (%5$s)
    RETURNING %6$s INTO %7$s;
    RETURN NEW;
  END IF;
  SELECT %8$s INTO present FROM outbox.events AS e WHERE e.position = OLD.%2$I FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF present *<> OLD THEN
    RAISE EXCEPTION 'could not serialize access due to concurrent update' USING ERRCODE = 'serialization_failure',
      HINT = 'Try the transaction again. SELECT ... FOR UPDATE before the UPDATE avoids this.';
  END IF;
  UPDATE outbox.events AS e SET
    %9$s
  WHERE e.position = OLD.%2$I
  RETURNING %8$s INTO NEW;
  RETURN NEW;
END $$,
      checks, number, fillings, array_to_string(fields, ', '), array_to_string(inserts, ', '),
      concat_ws(', ', CASE WHEN id_name IS NOT NULL THEN 'e.id' END, 'e.position'),
      concat_ws(', ', 'NEW.' || quote_ident(id_name), format('NEW.%I', number)),
      array_to_string(readings, ', '), array_to_string(updates, E',\n    '), number));
    EXECUTE format('CREATE TRIGGER outbox_write INSTEAD OF INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION %s()',
                   made, writer);
    IF payload IS NOT NULL THEN -- an explicit NULL is a tombstone
      EXECUTE format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT ''{}''', made, payload);
    END IF;
  END IF;
  RETURN made;
END
$body$;
COMMENT ON FUNCTION outbox.create_view(text, json, text[], text) IS
  'Creates a view of outbox.events in place of an application''s own outbox table. columns has the view''s columns '
  'in order, each with its meaning: a column of outbox.events, available_at (never NULL), retry_at (NULL means at '
  'once), sent (a boolean), or updated_at; a type may follow, such as "payload text". statuses: the words for '
  'PENDING, SENT and FAILED. aggregate_type: of every event, if the view has no such column. The view''s users need '
  'their rights on outbox.events too.';
