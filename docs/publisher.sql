-- The tables and functions of a publisher that cannot install the extension: psql -v ON_ERROR_STOP=1 -1 -f publisher.sql. docs/logical-replication.md explains it.

CREATE SCHEMA outbox;

CREATE FUNCTION outbox.flat(headers jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT jsonb_typeof(headers) = 'object' AND NOT EXISTS (
    SELECT FROM jsonb_each(CASE jsonb_typeof(headers) WHEN 'object' THEN headers ELSE '{}' END) AS h
    WHERE h.key = '' OR h.key ~ '[\r\n]' OR jsonb_typeof(h.value) NOT IN ('string', 'number', 'boolean') OR h.value #>> '{}' ~ '[\r\n]')
$$;

CREATE TABLE outbox.events (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  aggregate_type text NOT NULL CHECK (aggregate_type ~ '^[A-Za-z0-9._-]{1,200}$'),
  aggregate_id text CHECK (aggregate_id !~ '[\r\n]'),
  event_type text NOT NULL CHECK (event_type <> '' AND length(event_type) <= 200 AND event_type !~ '[\r\n]'),
  payload jsonb DEFAULT '{}' CHECK (octet_length(payload::text) <= 900000),
  headers jsonb CHECK (outbox.flat(headers) AND octet_length(headers::text) <= 10000),
  partition_key text CHECK (partition_key !~ '[\r\n]'),
  created_at timestamptz NOT NULL DEFAULT now(),
  available_at timestamptz,
  seq bigint GENERATED ALWAYS AS IDENTITY  -- orders a repair
);
CREATE INDEX events_created_at ON outbox.events (created_at);
COMMENT ON TABLE outbox.events IS 'The transactional outbox: replicated to where it is delivered from.';

CREATE TABLE outbox.dedup (
  dedup_key text COLLATE "C" PRIMARY KEY,
  event_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE outbox.dedup IS 'Dedup keys and the event that each names, until outbox.clean() forgets them.';

CREATE FUNCTION outbox.enqueue(
  aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL,
  dedup_key text DEFAULT NULL, available_at timestamptz DEFAULT NULL, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  event_id uuid := coalesce(enqueue.id, gen_random_uuid());
BEGIN
  IF enqueue.dedup_key IS NOT NULL THEN
    INSERT INTO outbox.dedup VALUES (enqueue.dedup_key, event_id) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN (SELECT d.event_id FROM outbox.dedup AS d WHERE d.dedup_key = enqueue.dedup_key);
    END IF;
  END IF;
  INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, partition_key, available_at)
  VALUES (event_id, enqueue.aggregate_type, enqueue.aggregate_id, enqueue.event_type, enqueue.payload, enqueue.headers,
          enqueue.partition_key, enqueue.available_at);
  RETURN event_id;
END
$$;
COMMENT ON FUNCTION outbox.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, uuid) IS
  'Enqueues an event in this transaction. Its id; that of the first one when the dedup key is known.';
REVOKE EXECUTE ON FUNCTION outbox.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, uuid) FROM PUBLIC;

-- What a run of outbox.clean() saw: whatever was written by transactions before before_xact had ended in the WAL before lsn.
CREATE TABLE outbox.clean_runs (
  at timestamptz PRIMARY KEY DEFAULT clock_timestamp(),
  before_xact xid8 NOT NULL,
  lsn pg_lsn NOT NULL
);
COMMENT ON TABLE outbox.clean_runs IS 'How far the WAL and the transactions were at each run of outbox.clean(): what the slot has confirmed since may go.';

CREATE FUNCTION outbox.clean(keep interval DEFAULT '1 day', batch integer DEFAULT 10000, slot name DEFAULT 'outbox') RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  state record;
  run record;
  cleaned bigint;
BEGIN
  SELECT s.confirmed_flush_lsn, s.wal_status = 'lost' AS is_lost INTO state
  FROM pg_replication_slots AS s WHERE s.slot_name = clean.slot AND s.database = current_database();
  IF state.confirmed_flush_lsn IS NULL OR state.is_lost THEN
    DELETE FROM outbox.clean_runs;  -- another slot of that name has confirmed nothing of them
    RAISE WARNING USING
      MESSAGE = format('nothing is cleaned: replication slot "%s" %s', slot, CASE WHEN state.is_lost THEN 'is lost' ELSE 'does not exist' END),
      DETAIL = 'Events that the subscriber has not confirmed are in this table alone.',
      HINT = 'Make the subscription, or repair it.';
    RETURN 0;
  END IF;
  INSERT INTO outbox.clean_runs (before_xact, lsn) VALUES (pg_snapshot_xmin(pg_current_snapshot()), pg_current_wal_insert_lsn());
  SELECT r.at, r.before_xact INTO run FROM outbox.clean_runs AS r
  WHERE r.lsn < state.confirmed_flush_lsn AND r.at <= clock_timestamp() - keep ORDER BY r.at DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  DELETE FROM outbox.clean_runs AS r WHERE r.at < run.at;
  DELETE FROM outbox.dedup AS d WHERE d.dedup_key = ANY (ARRAY(
    SELECT o.dedup_key FROM outbox.dedup AS o WHERE o.created_at < run.at LIMIT batch FOR UPDATE SKIP LOCKED));
  DELETE FROM outbox.events AS e WHERE e.id = ANY (ARRAY(
    SELECT o.id FROM outbox.events AS o
    WHERE o.created_at < run.at AND age(o.xmin) > age(run.before_xact::xid) ORDER BY o.created_at LIMIT batch));
  GET DIAGNOSTICS cleaned = ROW_COUNT;
  RETURN cleaned;
END
$$;
COMMENT ON FUNCTION outbox.clean(interval, integer, name) IS
  'Deletes events, and dedup keys, that the slot confirmed and that are older than keep, at most batch of each. How many events. Without the slot it deletes nothing, and warns.';
REVOKE EXECUTE ON FUNCTION outbox.clean(interval, integer, name) FROM PUBLIC;

CREATE PUBLICATION outbox FOR TABLE outbox.events WITH (publish = 'insert');
