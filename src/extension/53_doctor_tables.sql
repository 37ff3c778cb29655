-- The doctor checks what the tables of outbox depend on.

CREATE OR REPLACE FUNCTION outbox_internal.doctor_tables(
  patience interval, OUT "check" text, OUT status text, OUT detail text, OUT hint text
) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s record;
BEGIN
  -- The columns of outbox have the collation "C", whose order never changes. Indexes of users need not.
  "check" := 'collation'; status := 'ok'; detail := 'The order of texts is the one in which indexes were made.';
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
  'Part of outbox.doctor(): what the tables depend on.';
