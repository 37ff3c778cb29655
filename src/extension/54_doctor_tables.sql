-- The doctor checks that the tables of outbox are as the extension made them. The library refuses changes of them in
-- sessions that have loaded it, which are all sessions of a server that preloads it.

CREATE OR REPLACE FUNCTION outbox_internal.defined_tables() RETURNS text[]
LANGUAGE c IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_defined_tables';
COMMENT ON FUNCTION outbox_internal.defined_tables() IS
  'The tables and sequences of the extension, as schema.name: columns, with the type of each. No columns: a '
  'sequence, or a partition that has those of its parent.';

CREATE OR REPLACE FUNCTION outbox_internal.defined_indexes() RETURNS text[]
LANGUAGE c IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_defined_indexes';
COMMENT ON FUNCTION outbox_internal.defined_indexes() IS 'The names of the indexes of the extension.';

-- A partition of the day has no name in the list, and may be unlogged too.
CREATE OR REPLACE FUNCTION outbox_internal.definition_faults()
RETURNS TABLE (relation text, fault text, cure text)
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
  WITH defined AS (
    SELECT split_part(t.t, ': ', 1) AS name, split_part(t.t, ': ', 2) AS columns
    FROM unnest(outbox_internal.defined_tables()) AS t (t)),
  wanted AS (
    SELECT d.name, split_part(c.c, ' ', 1) AS attribute, substr(c.c, strpos(c.c, ' ') + 1) AS type
    FROM defined AS d CROSS JOIN LATERAL string_to_table(d.columns, ', ') AS c (c) WHERE d.columns <> ''),
  present AS (
    SELECT d.name, a.attname::text AS attribute,
           format_type(a.atttypid, a.atttypmod)
             || CASE WHEN a.attcollation = 'pg_catalog."C"'::regcollation THEN ' "C"' ELSE '' END AS type
    FROM defined AS d JOIN pg_attribute AS a ON a.attrelid = to_regclass(d.name)
    WHERE d.columns <> '' AND a.attnum > 0 AND NOT a.attisdropped)
  SELECT d.name, 'is missing',
         '-- it was renamed, moved to another schema or dropped; put it back under this name, or restore a backup'
  FROM defined AS d WHERE to_regclass(d.name) IS NULL
  UNION ALL
  SELECT name,
         CASE WHEN p.type IS NULL THEN format('has no column %s of type %s', attribute, w.type)
              WHEN w.type IS NULL THEN format('has the column %I, which the extension does not know', attribute)
              ELSE format('has the column %s of type %s instead of %s', attribute, p.type, w.type) END,
         CASE WHEN p.type IS NULL THEN '-- if the column has another name now: ALTER TABLE with RENAME COLUMN'
              WHEN w.type IS NULL THEN '-- if it is a column of outbox with another name, rename it back; otherwise '
                                       'ALTER TABLE with DROP COLUMN'
              ELSE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s USING %2$I::%s;', name, attribute,
                          replace(w.type, ' "C"', ' COLLATE "C"'), replace(w.type, ' "C"', '')) END
  FROM wanted AS w FULL JOIN present AS p USING (name, attribute)
  WHERE p.type IS DISTINCT FROM w.type AND to_regclass(name) IS NOT NULL
  UNION ALL
  SELECT c.oid::regclass::text, 'is unlogged: a crash of the server empties it',
         format('ALTER %s %s SET LOGGED;', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass)
  FROM pg_class AS c
  WHERE c.relkind IN ('r', 'p', 'S') AND c.relpersistence <> 'p'
    AND (c.oid IN (SELECT to_regclass(d.name) FROM defined AS d)
         OR c.oid IN (SELECT t.relid FROM pg_partition_tree(to_regclass('outbox.events')) AS t))
  UNION ALL
  SELECT i.name, 'is missing: statements fail or read whole tables',
         '-- create it as in a new database with the extension: SELECT pg_get_indexdef() there'
  FROM unnest(outbox_internal.defined_indexes()) AS i (name)
  WHERE to_regclass('outbox.' || quote_ident(i.name)) IS NULL
    AND to_regclass('outbox_internal.' || quote_ident(i.name)) IS NULL
  UNION ALL
  SELECT t.name, format('has the trigger %s in state %s', t.trigger, coalesce(g.tgenabled::text, 'dropped')),
         CASE WHEN g.oid IS NULL THEN '-- create it as in a new database: SELECT pg_get_triggerdef() there'
              ELSE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', t.name, t.trigger) END
  FROM (VALUES ('outbox.events', 'events_before_insert'), ('outbox.events', 'events_before_update'),
               ('outbox.events', 'events_after_update'), ('outbox.events', 'events_after_update_of_waiting'),
               ('outbox.events', 'events_after_delete'), ('outbox.stopped_sinks', 'tell_workers')
       ) AS t (name, trigger)
  LEFT JOIN pg_trigger AS g ON g.tgrelid = to_regclass(t.name) AND g.tgname = t.trigger
  WHERE g.tgenabled IS DISTINCT FROM 'A' AND to_regclass(t.name) IS NOT NULL
$$;
COMMENT ON FUNCTION outbox_internal.definition_faults() IS
  'Part of outbox.doctor(): what of the tables is not as the extension made it, each with a statement that puts it '
  'back, or a comment.';

-- PostgreSQL refuses every UPDATE and DELETE of a table when a publication with them has a row filter or a list of
-- columns that goes beyond the table's replica identity, or when the table has none. It checks this when it starts
-- such a statement, so EXPLAIN tells what it thinks, and no trigger runs.
CREATE OR REPLACE FUNCTION outbox_internal.unwritable_tables()
RETURNS TABLE (relation regclass, error text, publications text, no_identity boolean)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  reason text;
BEGIN
  FOR relation IN
    SELECT c.oid FROM unnest(outbox_internal.defined_tables()) AS t (t)
    JOIN pg_class AS c ON c.oid = to_regclass(split_part(t.t, ': ', 1)) AND c.relkind = 'r'
      AND c.relname NOT LIKE 'failed_attempts%' -- rows are only added there, and it is truncated
    ORDER BY c.oid::regclass::text
  LOOP
    BEGIN
      EXECUTE format('EXPLAIN DELETE FROM %s', relation);
      EXECUTE format('EXPLAIN UPDATE %s SET %I = NULL', relation,
                     (SELECT a.attname FROM pg_attribute AS a
                      WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped LIMIT 1));
      RAISE SQLSTATE 'OB000'; -- gives the locks back
    EXCEPTION
      WHEN SQLSTATE 'OB000' THEN
        NULL;
      WHEN invalid_column_reference OR object_not_in_prerequisite_state THEN
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        no_identity := SQLSTATE = '55000';
        error := SQLERRM || coalesce(': ' || nullif(reason, ''), '');
        SELECT string_agg(quote_ident(p.pubname), ', ' ORDER BY p.pubname) INTO publications
        FROM pg_publication AS p
        CROSS JOIN LATERAL (
          SELECT (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL) AS narrow
          FROM pg_publication_rel AS r
          WHERE r.prpubid = p.oid
            AND (r.prrelid = relation OR r.prrelid IN (SELECT a FROM pg_partition_ancestors(relation) AS a))
          UNION ALL
          SELECT false WHERE p.puballtables
          UNION ALL
          SELECT false FROM pg_publication_namespace AS n
          WHERE n.pnpubid = p.oid
            AND n.pnnspid = (SELECT c.relnamespace FROM pg_class AS c WHERE c.oid = relation)) AS of
        WHERE (p.pubupdate OR p.pubdelete) AND (of.narrow OR no_identity);
        RETURN NEXT;
    END;
  END LOOP;
END
$$;
COMMENT ON FUNCTION outbox_internal.unwritable_tables() IS
  'Part of outbox.doctor(): tables in which a publication keeps the worker from deleting and updating rows, with '
  'PostgreSQL''s error and the publications that may be the cause.';

CREATE OR REPLACE FUNCTION outbox_internal.doctor_tables(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s record;
BEGIN
  "check" := 'tables'; status := 'ok'; detail := 'The tables are as the extension made them.';
  FOR s IN SELECT * FROM outbox_internal.definition_faults() AS f ORDER BY f.relation, f.fault LIMIT 20 LOOP
    status := 'error'; detail := format('%s %s.', s.relation, s.fault); hint := s.cure;
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;

  -- The columns of outbox have the collation "C", whose order never changes. Indexes of users need not.
  "check" := 'collation'; status := 'ok'; hint := NULL;
  detail := 'The order of texts is the one in which indexes were made.';
  SELECT count(*) AS n,
         string_agg(format('%I (%s, now %s)', d.datname, coalesce(d.datcollversion, 'not recorded'),
                           coalesce(d.now, 'none')), ', ' ORDER BY d.rank) FILTER (WHERE d.rank <= 10) AS named,
         min(d.datname) FILTER (WHERE d.rank = 1) AS first
  INTO s
  FROM (SELECT a.*, row_number() OVER (ORDER BY a.datname <> current_database(), a.datname) AS rank
        FROM (SELECT d.datname, d.datcollversion, pg_database_collation_actual_version(d.oid) AS now
              FROM pg_database AS d WHERE d.datallowconn) AS a
        WHERE a.datcollversion IS DISTINCT FROM a.now) AS d;
  IF s.n > 0 THEN
    status := 'warning';
    detail := format('The collation version has changed for %s: %s. The tables of outbox do not depend on it. '
                     'Indexes of text in other tables may not find rows, and accept duplicates.',
                     outbox_internal.counted(s.n, 'database', 'databases'), s.named);
    hint := format('REINDEX DATABASE %I; -- connected to that database; when it has succeeded: ALTER DATABASE with '
                   'REFRESH COLLATION VERSION', s.first);
  END IF;
  RETURN NEXT;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_tables(interval) IS
  'Part of outbox.doctor(): whether the tables are as the extension made them, and the order of texts.';

-- Apart from the other checks of the tables, because it needs a lock on them.
CREATE OR REPLACE FUNCTION outbox_internal.doctor_publications(patience interval)
RETURNS TABLE ("check" text, status text, detail text, hint text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s record;
BEGIN
  "check" := 'publications'; status := 'ok'; detail := 'No publication keeps the worker from deleting rows.';
  FOR s IN SELECT * FROM outbox_internal.unwritable_tables() LOOP
    status := 'error';
    detail := format('Deliveries cannot be recorded, because of the publication %s: %s',
                     coalesce(s.publications, '(unknown)'), s.error);
    hint := CASE
      WHEN s.no_identity
        THEN format('ALTER TABLE %s REPLICA IDENTITY %s; -- or let the publication publish inserts alone: '
                    'ALTER PUBLICATION with SET (publish = ''insert'')', s.relation,
                    CASE s.relation WHEN 'outbox_internal.rescan_queue'::regclass THEN 'FULL' ELSE 'DEFAULT' END)
      ELSE '-- let it publish inserts alone: ALTER PUBLICATION with SET (publish = ''insert''), or leave out its '
           'WHERE and its list of columns' END;
    RETURN NEXT;
  END LOOP;
  IF NOT FOUND THEN
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox_internal.doctor_publications(interval) IS
  'Part of outbox.doctor(): a row for each table whose rows the worker cannot delete because of a publication.';
