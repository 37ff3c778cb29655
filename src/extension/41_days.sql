-- Partitions by time. They are made ahead and dropped whole, and no other session waits long for a lock of that.
-- The extension outbox_inbox has the same functions in its own schema: make_inbox of the Makefile changes the names.
-- Each day has a primary key of its own, and the parent has none: ATTACH in a restore would make a second one. While
-- a day lacks its key, a restore is under way.

CREATE OR REPLACE FUNCTION outbox_internal.add_partition(
  parent regclass, part text, key text, lower timestamptz, upper timestamptz
) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO' SET timezone = 'UTC' -- the bounds pass as text: India's IST would be read as Israel's
SET default_tablespace = '' SET default_table_access_method = 'heap' -- those of the calling role are not the owner's
AS $$
DECLARE
  place text := (SELECT format(' TABLESPACE %I', t.spcname)
                 FROM pg_class AS c JOIN pg_tablespace AS t ON t.oid = c.reltablespace WHERE c.oid = parent);
  method text := (SELECT format(' USING %I', m.amname)
                  FROM pg_class AS c JOIN pg_am AS m ON m.oid = c.relam WHERE c.oid = parent);
BEGIN
  EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', parent); -- concurrent calls take turns
  IF to_regclass(format('outbox.%I', part)) IS NOT NULL THEN
    RETURN false;
  END IF;
  -- CREATE and ATTACH: CREATE ... PARTITION OF would wait behind every reader of the parent. The key is the leaf's
  -- own: with one of the parent a dump could not be restored, because ATTACH would make it before the dump does.
  EXECUTE format('CREATE TABLE outbox.%I (LIKE %s INCLUDING DEFAULTS INCLUDING COMMENTS, PRIMARY KEY (%s)%s)%s%s',
                 part, parent, key, ' USING INDEX' || place, method, place);
  EXECUTE format('ALTER TABLE outbox.%I OWNER TO %I', part,
                 (SELECT r.rolname FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.oid = parent));
  EXECUTE format('ALTER TABLE %s ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                 parent, part, lower, upper);
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox_internal.add_partition(regclass, text, text, timestamptz, timestamptz) IS
  'Creates and attaches a partition for a span of time, with the columns of its primary key, in the tablespace of '
  'its parent. Returns false if a table of that name exists. outbox.run_maintenance() calls it.';

CREATE OR REPLACE FUNCTION outbox_internal.drop_partition(part text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  EXECUTE format('DROP TABLE IF EXISTS outbox.%I', part); -- another caller may be quicker
  RETURN true;
EXCEPTION
  WHEN lock_not_available THEN
    RAISE LOG 'outbox: partition % is in use and will be dropped later', part;
    RETURN false;
  WHEN OTHERS THEN -- a view of a user's reads it, for example; the rest of the maintenance goes on
    RAISE LOG 'outbox: partition % cannot be dropped: %', part, SQLERRM;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION outbox_internal.drop_partition(text) IS
  'Drops a partition, which needs its parent unused. Returns false if another session prevents that for longer than '
  'lock_timeout, and NULL if anything else does, such as a view on the partition. outbox.run_maintenance() calls it.';

CREATE OR REPLACE FUNCTION outbox_internal.expire_rows(
  rows_of regclass, stamp text, older_than timestamptz, first_block bigint, blocks bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  size bigint := pg_relation_size(rows_of) / current_setting('block_size')::bigint;
  upto bigint := least(first_block + coalesce(blocks, size), size);
BEGIN
  -- By place and not by an index on the time: every INSERT would pay for the index, and under an old snapshot its
  -- dead entries would be read again and again. A row that another session is just writing is left alone.
  IF first_block < upto THEN
    EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
                   'SELECT ctid FROM %1$s WHERE ctid >= %2$L AND ctid < %3$L AND %4$I < $1 FOR UPDATE SKIP LOCKED))',
                   rows_of, format('(%s,0)', first_block), format('(%s,0)', upto), stamp)
      USING older_than;
  END IF;
  RETURN size;
END
$$;
COMMENT ON FUNCTION outbox_internal.expire_rows(regclass, text, timestamptz, bigint, bigint) IS
  'Deletes rows that are older than a time from some blocks of a table (from first_block on; without blocks: from '
  'all). Returns the number of blocks of the table. outbox.run_maintenance() and the worker call it.';
