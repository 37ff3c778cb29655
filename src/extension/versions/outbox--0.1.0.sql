\echo Use "CREATE EXTENSION outbox" to load this file. \quit
-- The one table that people see. Its columns and partitions are explained in src/README.md, "The table".

CREATE SEQUENCE outbox.events_position AS bigint CACHE 1;
COMMENT ON SEQUENCE outbox.events_position IS
  'Dispatch order of events. CACHE must stay 1: a transaction draws its positions after it has its transaction id, and the worker relies on that.';

CREATE TABLE outbox.events (
  id uuid NOT NULL,
  aggregate_type text NOT NULL,
  aggregate_id text,
  event_type text NOT NULL,
  payload jsonb DEFAULT '{}',
  payload_bytes bytea,
  content_type text,
  headers jsonb,
  partition_key text,
  dedup_key text,
  seq bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  available_at timestamptz,
  attempts integer NOT NULL DEFAULT 0,
  status text DEFAULT 'PENDING',
  last_error text,
  sent_at timestamptz,
  last_attempt_at timestamptz,
  position bigint NOT NULL,
  sink text,
  held_by bigint,
  xact xid8 NOT NULL,
  origin bigint NOT NULL,
  overtaken_by bigint,
  redrive_late boolean
) PARTITION BY LIST (status);

COMMENT ON TABLE outbox.events IS 'The transactional outbox: one row per event and sink. INSERT here, or call outbox.enqueue(), in the transaction that changes your data.';
COMMENT ON COLUMN outbox.events.id IS 'Identifies the event in every delivery, so that consumers can drop duplicates. UUIDv7 unless given. The same for every sink of one event.';
COMMENT ON COLUMN outbox.events.aggregate_type IS 'What kind of thing the event is about, such as Order. Names the Kafka topic by default.';
COMMENT ON COLUMN outbox.events.aggregate_id IS 'Which thing the event is about.';
COMMENT ON COLUMN outbox.events.event_type IS 'What happened, such as order.created.';
COMMENT ON COLUMN outbox.events.payload IS 'The event''s body. NULL, said explicitly, is a tombstone; left out it is {}.';
COMMENT ON COLUMN outbox.events.payload_bytes IS 'The body as raw bytes (Avro, Protobuf), sent exactly as given; then payload is NULL.';
COMMENT ON COLUMN outbox.events.content_type IS 'The media type of payload_bytes.';
COMMENT ON COLUMN outbox.events.headers IS 'A flat JSON object: sent as headers beside the body.';
COMMENT ON COLUMN outbox.events.partition_key IS 'Events with the same key reach a sink in the order in which they were enqueued. aggregate_id unless given.';
COMMENT ON COLUMN outbox.events.dedup_key IS 'Within outbox.dedup_window, a second event with the same key is not enqueued.';
COMMENT ON COLUMN outbox.events.seq IS 'The application''s own sequence number; NULL unless given.';
COMMENT ON COLUMN outbox.events.created_at IS 'When the event was enqueued: start of its transaction unless given.';
COMMENT ON COLUMN outbox.events.available_at IS 'Not delivered before this time: a schedule, or the next attempt after a failure. NULL = at once.';
COMMENT ON COLUMN outbox.events.attempts IS 'Failed deliveries so far.';
COMMENT ON COLUMN outbox.events.status IS 'PENDING, SENT or FAILED (a dead letter). Made PENDING by hand, a dead letter is sent as by outbox.redrive() with force: in its place where it still can be, else late.';
COMMENT ON COLUMN outbox.events.last_error IS 'What the last failed delivery said.';
COMMENT ON COLUMN outbox.events.sent_at IS 'When the sink acknowledged the event.';
COMMENT ON COLUMN outbox.events.last_attempt_at IS 'When delivery last failed.';
COMMENT ON COLUMN outbox.events.position IS 'Dispatch order, drawn from outbox.events_position by the server.';
COMMENT ON COLUMN outbox.events.sink IS 'The foreign server that this row goes to. NULL = no sink takes it yet: it waits.';
COMMENT ON COLUMN outbox.events.held_by IS 'Filled by the worker: position of the event of the same key that this row waits for: a failing one, or a dead letter where on_failure is hold.';
COMMENT ON COLUMN outbox.events.xact IS 'Filled by the server: the transaction that wrote the row.';
COMMENT ON COLUMN outbox.events.origin IS 'Filled by the server: the cluster and database that enqueued the row. Rows of another origin wait for outbox.adopt().';
COMMENT ON COLUMN outbox.events.overtaken_by IS 'Filled by the worker while the event is failing or a dead letter: position of the first later event of its key that was delivered to this sink.';
COMMENT ON COLUMN outbox.events.redrive_late IS 'Filled by outbox.redrive(): true = send it even after later events of its key (force), false = only before them. NULL = not redriven.';

-- ORMs send explicit NULLs, and partition routing comes before triggers: so PENDING takes NULL too.
CREATE TABLE outbox.events_pending PARTITION OF outbox.events (
  CONSTRAINT events_pending_pkey PRIMARY KEY (position),
  CONSTRAINT events_pending_id_sink_key UNIQUE NULLS NOT DISTINCT (id, sink)
) FOR VALUES IN ('PENDING', NULL)
WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX events_pending_xact ON outbox.events_pending (xact, position);
CREATE INDEX events_pending_due ON outbox.events_pending (sink, available_at, position)
  WHERE available_at IS NOT NULL AND held_by IS NULL;
CREATE INDEX events_pending_held ON outbox.events_pending (held_by, position) WHERE held_by IS NOT NULL;
CREATE INDEX events_pending_unrouted ON outbox.events_pending (position) WHERE sink IS NULL;
-- With a key's failing and redriven rows the worker finds out what a delivered event has overtaken.
CREATE INDEX events_pending_troubled ON outbox.events_pending (sink, pg_catalog.hashtextextended(partition_key, 0), position)
  WHERE attempts > 0 OR redrive_late IS NOT NULL;
COMMENT ON TABLE outbox.events_pending IS 'Events on their way: small and hot.';

CREATE TABLE outbox.events_failed PARTITION OF outbox.events (
  CONSTRAINT events_failed_pkey PRIMARY KEY (position)
) FOR VALUES IN ('FAILED');
CREATE INDEX events_failed_key ON outbox.events_failed (sink, pg_catalog.hashtextextended(partition_key, 0), position);
CREATE INDEX events_failed_id ON outbox.events_failed (id);
COMMENT ON TABLE outbox.events_failed IS 'Dead letters: events whose attempts are used up, or that can never be sent. They stay until a person acts.';

CREATE TABLE outbox.events_sent PARTITION OF outbox.events FOR VALUES IN ('SENT') PARTITION BY RANGE (sent_at);
COMMENT ON TABLE outbox.events_sent IS 'Delivered events, kept for outbox.retention; one partition per day (UTC), dropped whole.';

CREATE TABLE outbox.dedup (
  dedup_key text PRIMARY KEY,
  event_id uuid NOT NULL,
  created_at timestamptz NOT NULL
);
COMMENT ON TABLE outbox.dedup IS 'Dedup keys seen within outbox.dedup_window and the event that each names.';

CREATE TABLE outbox.recalled (position bigint NOT NULL, xact xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id());
-- Under an old snapshot emptied rows stay: the worker reads on from the oldest transaction that may still write one.
CREATE INDEX recalled_xact ON outbox.recalled (xact, position);
-- It has no key: without this a publication FOR ALL TABLES would make the worker's DELETEs fail.
ALTER TABLE outbox.recalled REPLICA IDENTITY FULL;
COMMENT ON TABLE outbox.recalled IS 'Positions of pending rows that came back behind the worker''s cursor (a changed, routed or redriven event). The worker reads and empties it.';

CREATE TABLE outbox.renamed_sinks (
  old_name text PRIMARY KEY,
  new_name text NOT NULL
);
COMMENT ON TABLE outbox.renamed_sinks IS 'Former names of sinks: events that were enqueued for one go to the sink that bore it. ALTER SERVER ... RENAME writes it.';
COMMENT ON COLUMN outbox.renamed_sinks.old_name IS 'What the foreign server was called.';
COMMENT ON COLUMN outbox.renamed_sinks.new_name IS 'What it is called now.';

-- A partitioned parent dumps nothing: every leaf, the dedup table and the sequence are registered one by one.
SELECT pg_catalog.pg_extension_config_dump('outbox.events_pending', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.events_failed', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.dedup', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.renamed_sinks', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.events_position', '');
-- The ways in: outbox.enqueue() and the triggers that every INSERT, UPDATE and DELETE of events passes.

CREATE FUNCTION outbox.enqueue(
  aggregate_type text, aggregate_id text, event_type text, payload jsonb,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_text';
COMMENT ON FUNCTION outbox.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, text, uuid) IS
  'Enqueues an event in the current transaction and returns its id. Needs USAGE on schema outbox, and no right on its tables; naming a sink needs USAGE on that foreign server. With a known dedup_key it adds nothing and returns the first event''s id.';

CREATE FUNCTION outbox.enqueue(
  aggregate_type text, aggregate_id bigint, event_type text, payload jsonb,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_bigint';
COMMENT ON FUNCTION outbox.enqueue(text, bigint, text, jsonb, jsonb, text, text, timestamptz, text, uuid) IS
  'Enqueues an event in the current transaction and returns its id. Needs USAGE on schema outbox, and no right on its tables; naming a sink needs USAGE on that foreign server. With a known dedup_key it adds nothing and returns the first event''s id.';

CREATE FUNCTION outbox.enqueue(
  aggregate_type text, aggregate_id uuid, event_type text, payload jsonb,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_uuid';
COMMENT ON FUNCTION outbox.enqueue(text, uuid, text, jsonb, jsonb, text, text, timestamptz, text, uuid) IS
  'Enqueues an event in the current transaction and returns its id. Needs USAGE on schema outbox, and no right on its tables; naming a sink needs USAGE on that foreign server. With a known dedup_key it adds nothing and returns the first event''s id.';

CREATE FUNCTION outbox.enqueue_bytes(
  aggregate_type text, aggregate_id text, event_type text, payload bytea, content_type text,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytes_text';
COMMENT ON FUNCTION outbox.enqueue_bytes(text, text, text, bytea, text, jsonb, text, text, timestamptz, text, uuid) IS
  'Like outbox.enqueue(), with a body of raw bytes (Avro, Protobuf) and its media type: sent exactly as given.';

CREATE FUNCTION outbox.enqueue_bytes(
  aggregate_type text, aggregate_id bigint, event_type text, payload bytea, content_type text,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytes_bigint';
COMMENT ON FUNCTION outbox.enqueue_bytes(text, bigint, text, bytea, text, jsonb, text, text, timestamptz, text, uuid) IS
  'Like outbox.enqueue(), with a body of raw bytes (Avro, Protobuf) and its media type: sent exactly as given.';

CREATE FUNCTION outbox.enqueue_bytes(
  aggregate_type text, aggregate_id uuid, event_type text, payload bytea, content_type text,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue_bytes_uuid';
COMMENT ON FUNCTION outbox.enqueue_bytes(text, uuid, text, bytea, text, jsonb, text, text, timestamptz, text, uuid) IS
  'Like outbox.enqueue(), with a body of raw bytes (Avro, Protobuf) and its media type: sent exactly as given.';

CREATE FUNCTION outbox.events_before_insert() RETURNS trigger LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_events_before_insert';
COMMENT ON FUNCTION outbox.events_before_insert() IS
  'Trigger of outbox.events: fills what is missing, refuses what can never be sent, routes to the sinks and draws the position.';

CREATE FUNCTION outbox.events_before_update() RETURNS trigger LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_events_before_update';
COMMENT ON FUNCTION outbox.events_before_update() IS
  'Trigger of outbox.events: checks what a person changes as if it were enqueued.';

CREATE FUNCTION outbox.events_after_update() RETURNS trigger LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_events_after_update';
COMMENT ON FUNCTION outbox.events_after_update() IS
  'Trigger of outbox.events: makes the worker look again at a pending event that a person changed.';

CREATE FUNCTION outbox.events_after_delete() RETURNS trigger LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_events_after_delete';
COMMENT ON FUNCTION outbox.events_after_delete() IS
  'Trigger of outbox.events: a cancelled event frees its dedup key and what waited behind it.';

-- The WHEN clauses keep the worker's bulk DELETEs, and changes that do not matter, out of the triggers.
CREATE TRIGGER events_before_insert BEFORE INSERT ON outbox.events
  FOR EACH ROW EXECUTE FUNCTION outbox.events_before_insert();
CREATE TRIGGER events_before_update BEFORE UPDATE ON outbox.events
  FOR EACH ROW WHEN (
    OLD.status IS DISTINCT FROM NEW.status OR OLD.sink IS DISTINCT FROM NEW.sink
    OR OLD.aggregate_type IS DISTINCT FROM NEW.aggregate_type OR OLD.event_type IS DISTINCT FROM NEW.event_type
    OR OLD.headers IS DISTINCT FROM NEW.headers OR OLD.content_type IS DISTINCT FROM NEW.content_type
    OR OLD.dedup_key IS DISTINCT FROM NEW.dedup_key OR OLD.partition_key IS DISTINCT FROM NEW.partition_key)
  EXECUTE FUNCTION outbox.events_before_update();
CREATE TRIGGER events_after_update AFTER UPDATE ON outbox.events
  FOR EACH ROW WHEN (
    OLD.sink IS DISTINCT FROM NEW.sink OR OLD.partition_key IS DISTINCT FROM NEW.partition_key
    OR OLD.available_at IS DISTINCT FROM NEW.available_at OR OLD.status IS DISTINCT FROM NEW.status
    OR OLD.attempts IS DISTINCT FROM NEW.attempts OR OLD.held_by IS DISTINCT FROM NEW.held_by
    OR OLD.position IS DISTINCT FROM NEW.position OR OLD.origin IS DISTINCT FROM NEW.origin
    -- One that waits may be what a sink takes now.
    OR (NEW.sink IS NULL AND (OLD.headers IS DISTINCT FROM NEW.headers OR OLD.aggregate_type IS DISTINCT FROM NEW.aggregate_type
                              OR OLD.event_type IS DISTINCT FROM NEW.event_type)))
  EXECUTE FUNCTION outbox.events_after_update();
CREATE TRIGGER events_after_delete AFTER DELETE ON outbox.events
  FOR EACH ROW WHEN (OLD.attempts > 0 OR OLD.dedup_key IS NOT NULL OR OLD.status = 'FAILED')
  EXECUTE FUNCTION outbox.events_after_delete();

-- Always: also for what a subscription or a restore writes with session_replication_role = replica. A row that no trigger
-- saw would have no position, and a change that none saw would stay behind the worker's cursor.
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_before_insert;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_before_update;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_after_update;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_after_delete;

CREATE FUNCTION outbox.route_waiting() RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE
  SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_route_waiting';
COMMENT ON FUNCTION outbox.route_waiting() IS
  'Routes at most 1000 events that waited for a sink which takes them now, and returns how many: 0 when none is left. The worker calls it when sinks change.';

COMMENT ON COLUMN outbox.dedup.dedup_key IS 'As the producer gave it.';
COMMENT ON COLUMN outbox.dedup.event_id IS 'The event that the key names.';
COMMENT ON COLUMN outbox.dedup.created_at IS 'Since when the key names that event; after outbox.dedup_window it may name another.';
COMMENT ON COLUMN outbox.recalled.position IS 'Position of the event to look at again.';
COMMENT ON COLUMN outbox.recalled.xact IS 'The transaction that says so.';

REVOKE EXECUTE ON FUNCTION outbox.events_before_insert(), outbox.events_before_update(),
  outbox.events_after_update(), outbox.events_after_delete(), outbox.route_waiting() FROM PUBLIC;
-- A sink is a foreign server of one of these wrappers. They have no handler: nothing is read through them, the worker
-- delivers to them. One C function serves every kind: it is told apart by the validator's name, <kind>_validator.

CREATE FUNCTION outbox.kafka_validator(options text[], catalog oid) RETURNS void LANGUAGE c STRICT
AS 'MODULE_PATHNAME', 'outbox_validator';
COMMENT ON FUNCTION outbox.kafka_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_kafka when the DDL runs.';

CREATE FUNCTION outbox.webhook_validator(options text[], catalog oid) RETURNS void LANGUAGE c STRICT
AS 'MODULE_PATHNAME', 'outbox_validator';
COMMENT ON FUNCTION outbox.webhook_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_webhook when the DDL runs.';

REVOKE EXECUTE ON FUNCTION outbox.kafka_validator(text[], oid), outbox.webhook_validator(text[], oid) FROM PUBLIC;

CREATE FOREIGN DATA WRAPPER outbox_kafka NO HANDLER VALIDATOR outbox.kafka_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_kafka IS
  'Sinks that are Apache Kafka clusters: CREATE SERVER name FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''host:9092''). USAGE on this wrapper lets a role make sinks that receive every event.';

CREATE FOREIGN DATA WRAPPER outbox_webhook NO HANDLER VALIDATOR outbox.webhook_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_webhook IS
  'Sinks that are HTTP endpoints: CREATE SERVER name FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url ''https://example.com/hooks''), and CREATE USER MAPPING FOR PUBLIC with the secret. USAGE on this wrapper lets a role make sinks that receive every event.';
-- Sinks that were stopped for good: by a person, by a 410, by failing for too long. Their events wait until outbox.resume().

CREATE TABLE outbox.stopped_sinks (
  sink text,
  state text NOT NULL,
  reason text,
  error text,
  since timestamptz NOT NULL DEFAULT pg_catalog.now(),
  stopped_by text,
  CONSTRAINT stopped_sinks_pkey PRIMARY KEY (sink),
  CONSTRAINT stopped_sinks_state_check CHECK (state IN ('paused', 'disabled'))
);
COMMENT ON TABLE outbox.stopped_sinks IS 'Sinks that deliver nothing until outbox.resume(): a row per sink that is paused or disabled. outbox.pause() and the worker write it.';
COMMENT ON COLUMN outbox.stopped_sinks.sink IS 'The foreign server.';
COMMENT ON COLUMN outbox.stopped_sinks.state IS 'paused (by outbox.pause()) or disabled (by the worker).';
COMMENT ON COLUMN outbox.stopped_sinks.reason IS 'Why it was disabled: 410, what its endpoint said, or disable_after, how long it may fail.';
COMMENT ON COLUMN outbox.stopped_sinks.error IS 'What it last said before it was disabled.';
COMMENT ON COLUMN outbox.stopped_sinks.since IS 'When it was stopped.';
COMMENT ON COLUMN outbox.stopped_sinks.stopped_by IS 'The role that paused it; NULL for the worker.';

CREATE TABLE outbox.failing_sinks (
  sink text PRIMARY KEY,
  failed_for interval NOT NULL,
  last_failed_at timestamptz NOT NULL
);
COMMENT ON TABLE outbox.failing_sinks IS 'How long sinks have been failing without a success, written now and then, so that disable_after survives a restart. The worker writes it.';
COMMENT ON COLUMN outbox.failing_sinks.sink IS 'The foreign server.';
COMMENT ON COLUMN outbox.failing_sinks.failed_for IS 'How long it has been tried in vain.';
COMMENT ON COLUMN outbox.failing_sinks.last_failed_at IS 'When it was last tried.';

SELECT pg_catalog.pg_extension_config_dump('outbox.stopped_sinks', '');

CREATE FUNCTION outbox.stopped_sinks_changed() RETURNS trigger LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_stopped_sinks_changed';
COMMENT ON FUNCTION outbox.stopped_sinks_changed() IS 'Tells the workers at commit that a sink was stopped or goes on.';
CREATE TRIGGER tell_workers AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON outbox.stopped_sinks
  FOR EACH STATEMENT EXECUTE FUNCTION outbox.stopped_sinks_changed();
ALTER TABLE outbox.stopped_sinks ENABLE ALWAYS TRIGGER tell_workers;

CREATE FUNCTION outbox.require_sink(sink text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  now_called text := (SELECT r.new_name FROM outbox.renamed_sinks AS r WHERE r.old_name = require_sink.sink);
  known text := (SELECT string_agg(quote_literal(s.srvname), ', ' ORDER BY s.srvname)
                 FROM pg_foreign_server AS s JOIN outbox.wrappers AS w ON w.oid = s.srvfdw);
BEGIN
  IF require_sink.sink IS NULL THEN
    RAISE EXCEPTION 'the name of a sink must not be null'
      USING ERRCODE = 'null_value_not_allowed', HINT = 'SELECT name, state FROM outbox.sinks;';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_foreign_server AS s JOIN outbox.wrappers AS w ON w.oid = s.srvfdw
                 WHERE s.srvname = require_sink.sink) THEN
    RAISE EXCEPTION 'sink "%" does not exist', require_sink.sink
      USING ERRCODE = 'undefined_object',
      HINT = CASE WHEN now_called IS NOT NULL THEN format('It is now called %L.', now_called)
             WHEN known IS NULL THEN 'There is no sink yet: CREATE SERVER makes one.'
             ELSE format('The sinks are: %s.', known) END;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox.require_sink(text) IS 'Raises an error when there is no such sink.';

-- In a SECURITY DEFINER function current_user is the extension's owner.
CREATE FUNCTION outbox.pause(sink text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  caller text := coalesce(nullif(current_setting('role'), 'none'), session_user);
BEGIN
  PERFORM outbox.require_sink(pause.sink);
  INSERT INTO outbox.stopped_sinks AS s (sink, state, stopped_by) VALUES (pause.sink, 'paused', caller)
  ON CONFLICT ON CONSTRAINT stopped_sinks_pkey DO UPDATE
    SET state = 'paused', reason = NULL, error = NULL, since = now(), stopped_by = EXCLUDED.stopped_by
    WHERE s.state <> 'paused';
  IF NOT FOUND THEN
    RAISE NOTICE 'sink "%" is paused already', pause.sink;
    RETURN false;
  END IF;
  DELETE FROM outbox.failing_sinks AS f WHERE f.sink = pause.sink;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox.pause(text) IS
  'Stops a sink until outbox.resume(), as soon as the transaction commits and for all workers, also after a restart. What is on the wire ends normally, nothing more is claimed, no attempt is spent; events go on being enqueued. False and a notice when it was paused already. The caller need not own the server: GRANT EXECUTE is enough.';

CREATE FUNCTION outbox.resume(sink text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  was text;
BEGIN
  PERFORM outbox.require_sink(resume.sink);
  DELETE FROM outbox.stopped_sinks AS s WHERE s.sink = resume.sink RETURNING s.state INTO was;
  IF was IS NULL THEN
    RAISE NOTICE 'sink "%" is neither paused nor disabled', resume.sink
      USING HINT = 'What it does and why: SELECT name, state, last_error FROM outbox.sinks;';
    RETURN false;
  END IF;
  DELETE FROM outbox.failing_sinks AS f WHERE f.sink = resume.sink;
  IF was = 'disabled' THEN -- what failed need not wait for its time: it was the endpoint
    UPDATE outbox.events AS e SET available_at = now()
    WHERE e.status = 'PENDING' AND e.position = ANY (ARRAY(
      SELECT p.position FROM outbox.events_pending AS p
      WHERE p.available_at > now() AND p.attempts > 0 AND p.held_by IS NULL
        AND (p.sink = resume.sink OR p.sink IN (SELECT r.old_name FROM outbox.renamed_sinks AS r WHERE r.new_name = resume.sink))
      FOR UPDATE SKIP LOCKED));
  END IF;
  RETURN true;
END
$$;
COMMENT ON FUNCTION outbox.resume(text) IS
  'Lets a sink go on that was paused, or disabled by a 410 or by failing for disable_after: as soon as the transaction commits its events go, in their order, slowly at first. What had failed is due at once, where the sink was disabled. False and a notice when it was neither. The caller need not own the server: GRANT EXECUTE is enough.';

REVOKE EXECUTE ON FUNCTION outbox.stopped_sinks_changed(), outbox.require_sink(text), outbox.pause(text), outbox.resume(text) FROM PUBLIC;
-- What an operator looks at and calls.

CREATE FUNCTION outbox.sink_statistics(
  OUT server oid, OUT state text, OUT in_flight integer, OUT delivered bigint, OUT retried bigint, OUT failed bigint,
  OUT redriven_late bigint,
  OUT rate double precision, OUT latency_p50 double precision, OUT latency_p99 double precision,
  OUT last_error text, OUT last_error_at timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_statistics';
COMMENT ON FUNCTION outbox.sink_statistics() IS
  'Counters of this database''s sinks from shared memory, since the server started: the raw material of the view outbox.sinks. Latencies in milliseconds from the start of the enqueuing transaction to the acknowledgement; rate in events per second.';

CREATE FUNCTION outbox.worker_slots(
  OUT database oid, OUT pid integer, OUT worker integer, OUT workers integer, OUT lanes integer, OUT state text,
  OUT started_at timestamptz, OUT last_loop_at timestamptz, OUT memory bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_worker_slots';
COMMENT ON FUNCTION outbox.worker_slots() IS
  'The running workers of the whole cluster, from shared memory: the raw material of the view outbox.workers.';

CREATE FUNCTION outbox.library(
  OUT version text, OUT preloaded boolean, OUT launcher_pid integer, OUT out_of_slots boolean, OUT origin bigint,
  OUT longest_retention interval, OUT libraries text, OUT at_rest boolean) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_library';
COMMENT ON FUNCTION outbox.library() IS
  'What the loaded library says of itself: its version, whether it was preloaded, the launcher, this database''s origin, the longest retention of any sink, the versions of librdkafka, libcurl and OpenSSL, and whether this database needs no worker until something is committed or due (outbox.worker_idle_timeout).';

CREATE FUNCTION outbox.kafka_library(OUT status text, OUT detail text, OUT hint text) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_kafka_library';
COMMENT ON FUNCTION outbox.kafka_library() IS
  'Whether the librdkafka that the server has loaded will do, as a row of outbox.doctor(): ok, warning for a version with a defect, error for one that is too old.';

CREATE VIEW outbox.workers AS
  SELECT d.datname AS database, w.pid, w.worker, w.workers, w.lanes, w.state, w.started_at, w.last_loop_at, w.memory
  FROM outbox.worker_slots() AS w LEFT JOIN pg_catalog.pg_database AS d ON d.oid = w.database;
COMMENT ON VIEW outbox.workers IS 'A row per running worker of the cluster; memory in bytes. A database with nothing due has none: outbox.worker_idle_timeout.';

CREATE VIEW outbox.wrappers AS
  SELECT w.oid, w.fdwname AS name, pg_catalog.substr(w.fdwname, 8) AS kind
  FROM pg_catalog.pg_foreign_data_wrapper AS w
  JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_foreign_data_wrapper'::pg_catalog.regclass
    AND d.objid = w.oid AND d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
  JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'outbox';
COMMENT ON VIEW outbox.wrappers IS 'The kinds of sink: a row per foreign-data wrapper of this extension.';
COMMENT ON COLUMN outbox.wrappers.oid IS 'The wrapper.';
COMMENT ON COLUMN outbox.wrappers.name IS 'What CREATE SERVER names: outbox_kafka.';
COMMENT ON COLUMN outbox.wrappers.kind IS 'The kind of sink: the name without outbox_.';

-- Counting is bounded: beyond 200,000 rows the counts are scaled from a sample and marked as estimates, and the oldest
-- event of a sink is sought among the 20,000 that are first in the order, and in the sample. One pass counts for all
-- sinks, since there may be thousands.
CREATE VIEW outbox.sinks AS
  WITH sample AS MATERIALIZED (
    SELECT e.sink, pg_catalog.count(*) AS pending,
           pg_catalog.count(*) FILTER (WHERE e.available_at > pg_catalog.now() AND e.attempts = 0) AS scheduled,
           pg_catalog.count(*) FILTER (WHERE e.held_by IS NOT NULL) AS held,
           pg_catalog.min(e.created_at) FILTER (WHERE e.available_at IS NULL OR e.attempts > 0 OR e.available_at <= pg_catalog.now()) AS oldest
    FROM (SELECT sink, held_by, available_at, attempts, created_at FROM outbox.events_pending LIMIT 200000) AS e GROUP BY e.sink),
  scale AS MATERIALIZED (
    SELECT CASE WHEN coalesce(pg_catalog.sum(s.pending), 0) < 200000 THEN 1
           ELSE greatest(1, (SELECT c.reltuples FROM pg_catalog.pg_class AS c
                             WHERE c.oid = 'outbox.events_pending'::pg_catalog.regclass) / 200000) END AS factor,
           coalesce(pg_catalog.sum(s.pending), 0) >= 200000 AS estimated
    FROM sample AS s),
  first AS (
    SELECT e.sink, 0 AS pending, 0 AS scheduled, 0 AS held, pg_catalog.min(e.created_at) AS oldest
    FROM (SELECT sink, available_at, attempts, created_at FROM outbox.events_pending
          WHERE (SELECT scale.estimated FROM scale) ORDER BY position LIMIT 20000) AS e
    WHERE e.available_at IS NULL OR e.attempts > 0 OR e.available_at <= pg_catalog.now() GROUP BY e.sink),
  pending AS (
    SELECT coalesce(r.new_name, e.sink) AS sink, pg_catalog.sum(e.pending) AS pending, pg_catalog.sum(e.scheduled) AS scheduled,
           pg_catalog.sum(e.held) AS held, pg_catalog.min(e.oldest) AS oldest
    FROM (SELECT * FROM sample UNION ALL SELECT * FROM first) AS e LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink
    GROUP BY coalesce(r.new_name, e.sink)),
  failed AS (
    SELECT sink, pg_catalog.count(*) AS failed
    FROM (SELECT coalesce(r.new_name, e.sink) AS sink FROM outbox.events_failed AS e
          LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink LIMIT 200000) AS f GROUP BY sink)
  SELECT s.srvname AS name, w.kind,
         coalesce((SELECT pg_catalog.regexp_replace(o.option_value, '//[^/@]*@', '//')
                   FROM pg_catalog.pg_options_to_table(s.srvoptions) AS o
                   WHERE o.option_name IN ('bootstrap_servers', 'url')), '(in the user mapping)') AS target,
         coalesce(CASE WHEN stop.state = 'disabled' THEN 'disabled: ' || stop.reason ELSE stop.state END, st.state,
                  CASE WHEN lib.preloaded THEN 'no worker' ELSE 'not preloaded' END) AS state,
         (coalesce(p.pending, 0) * scale.factor)::bigint AS pending,
         (coalesce(p.scheduled, 0) * scale.factor)::bigint AS scheduled,
         (coalesce(p.held, 0) * scale.factor)::bigint AS held,
         scale.estimated,
         coalesce(st.in_flight, 0) AS in_flight,
         coalesce(f.failed, 0) AS failed,
         pg_catalog.clock_timestamp() - p.oldest AS oldest_pending_age,
         coalesce(st.delivered, 0) AS delivered, coalesce(st.retried, 0) AS retried,
         coalesce(st.failed, 0) AS failed_total, coalesce(st.redriven_late, 0) AS redriven_late,
         coalesce(st.rate, 0) AS rate, st.latency_p50, st.latency_p99, st.last_error, st.last_error_at
  FROM pg_catalog.pg_foreign_server AS s
  JOIN outbox.wrappers AS w ON w.oid = s.srvfdw
  CROSS JOIN scale CROSS JOIN outbox.library() AS lib
  LEFT JOIN outbox.sink_statistics() AS st ON st.server = s.oid
  LEFT JOIN outbox.stopped_sinks AS stop ON stop.sink = s.srvname
  LEFT JOIN pending AS p ON p.sink = s.srvname
  LEFT JOIN failed AS f ON f.sink = s.srvname;
COMMENT ON VIEW outbox.sinks IS
  'A row per sink: state (delivering, idle, degraded, circuit open, paused, disabled: 410, disabled: disable_after, misconfigured, waiting for a synchronous standby, no worker), counts of waiting and failed events (estimates beyond 200,000), the age of the oldest due one (exact up to 200,000, and beyond where it is among the first 20,000; else it may be older), totals since the server started, events per second, latencies in milliseconds, and the last error.';

CREATE FUNCTION outbox.maintain() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  today date := (now() AT TIME ZONE 'UTC')::date;
  day date;
  part text;
  done bigint := 0;
  owner name := (SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
                 WHERE c.oid = 'outbox.events'::regclass);
  keep interval := (SELECT l.longest_retention FROM outbox.library() AS l);
BEGIN
  FOR day IN SELECT today + n FROM generate_series(-1, 3) AS n LOOP
    part := 'events_sent_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass('outbox.' || part) IS NOT NULL;
    -- CREATE and ATTACH: CREATE ... PARTITION OF would wait behind every reader of the parent.
    EXECUTE format('CREATE TABLE outbox.%I (LIKE outbox.events INCLUDING DEFAULTS INCLUDING COMMENTS, PRIMARY KEY (position))', part);
    EXECUTE format('ALTER TABLE outbox.%I OWNER TO %I', part, owner);
    EXECUTE format('ALTER TABLE outbox.events_sent ATTACH PARTITION outbox.%I FOR VALUES FROM (%L) TO (%L)',
                   part, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
    done := done + 1;
  END LOOP;

  -- Whole days leave when the longest retention of any sink is over. A reader in the way: the next run tries again.
  FOR part, day IN
    SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'outbox.events_sent'::regclass AND c.relname ~ '^events_sent_[0-9]{8}$'
  LOOP
    CONTINUE WHEN (day + 1)::timestamp AT TIME ZONE 'UTC' + keep >= now() OR day >= today - 1;
    BEGIN
      PERFORM set_config('lock_timeout', '100ms', true); -- until the end of the transaction
      EXECUTE format('DROP TABLE outbox.%I', part);
      done := done + 1;
    EXCEPTION WHEN lock_not_available THEN
      RAISE LOG 'outbox: day % of delivered events is in use and will be dropped later', day;
    END;
  END LOOP;

  -- A key that a producer is just taking over is its own.
  DELETE FROM outbox.dedup WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM outbox.dedup AS d
    WHERE d.created_at < now() - current_setting('outbox.dedup_window')::interval
    LIMIT 10000 FOR UPDATE SKIP LOCKED));
  RETURN done;
END
$$;
COMMENT ON FUNCTION outbox.maintain() IS
  'Makes the coming days of outbox.events_sent, drops those whose retention is over, and forgets expired dedup keys. The worker calls it every ten minutes; call it yourself where no worker runs. Returns how many days it made or dropped.';

CREATE FUNCTION outbox.adopt() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here bigint := (SELECT l.origin FROM outbox.library() AS l);
  adopted bigint;
BEGIN
  UPDATE outbox.events SET origin = here WHERE status = 'PENDING' AND origin <> here;
  GET DIAGNOSTICS adopted = ROW_COUNT;
  UPDATE outbox.events SET origin = here WHERE status = 'FAILED' AND origin <> here;
  RETURN adopted;
END
$$;
COMMENT ON FUNCTION outbox.adopt() IS
  'Lets this database deliver events that were enqueued elsewhere: after it was restored, copied or upgraded into another cluster. Until then they wait. Returns how many pending events it took over.';

REVOKE EXECUTE ON FUNCTION outbox.sink_statistics(), outbox.worker_slots(), outbox.library(), outbox.kafka_library(), outbox.maintain(),
  outbox.adopt() FROM PUBLIC;
-- What the columns of the operator's views mean.
COMMENT ON COLUMN outbox.sinks.name IS 'The foreign server.';
COMMENT ON COLUMN outbox.sinks.kind IS 'The kind of sink: the wrapper''s name without outbox_.';
COMMENT ON COLUMN outbox.sinks.target IS 'Where it delivers to, without credentials.';
COMMENT ON COLUMN outbox.sinks.state IS 'What the worker is doing with it.';
COMMENT ON COLUMN outbox.sinks.pending IS 'Events that wait for it, scheduled and held ones included.';
COMMENT ON COLUMN outbox.sinks.scheduled IS 'Pending events whose available_at lies ahead and that have not failed.';
COMMENT ON COLUMN outbox.sinks.held IS 'Pending events that wait for a failing one of the same key, or for a dead letter where on_failure is hold.';
COMMENT ON COLUMN outbox.sinks.estimated IS 'Whether pending, scheduled and held are estimates.';
COMMENT ON COLUMN outbox.sinks.in_flight IS 'Events handed over and not yet acknowledged.';
COMMENT ON COLUMN outbox.sinks.failed IS 'Dead letters that stand in the table, counted up to 200,000.';
COMMENT ON COLUMN outbox.sinks.oldest_pending_age IS 'How long the oldest due event has been waiting.';
COMMENT ON COLUMN outbox.sinks.delivered IS 'Events delivered since the server started.';
COMMENT ON COLUMN outbox.sinks.retried IS 'Failed deliveries that were tried again since the server started.';
COMMENT ON COLUMN outbox.sinks.failed_total IS 'Events that became dead letters since the server started.';
COMMENT ON COLUMN outbox.sinks.redriven_late IS 'Dead letters that were redriven by force and delivered after later events of their keys, since the server started.';
COMMENT ON COLUMN outbox.sinks.rate IS 'Deliveries per second, lately.';
COMMENT ON COLUMN outbox.sinks.latency_p50 IS 'Median time from the start of the enqueuing transaction to the acknowledgement, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.latency_p99 IS 'Its 99th percentile, in milliseconds.';
COMMENT ON COLUMN outbox.sinks.last_error IS 'What last went wrong, of an event or of the sink as a whole.';
COMMENT ON COLUMN outbox.sinks.last_error_at IS 'When it went wrong.';
COMMENT ON COLUMN outbox.workers.database IS 'The database that the worker serves.';
COMMENT ON COLUMN outbox.workers.pid IS 'Its process id.';
COMMENT ON COLUMN outbox.workers.worker IS 'Which worker of its database it is, from 0.';
COMMENT ON COLUMN outbox.workers.workers IS 'How many workers its database has.';
COMMENT ON COLUMN outbox.workers.lanes IS 'How many of the 256 lanes it serves.';
COMMENT ON COLUMN outbox.workers.state IS 'What it is doing.';
COMMENT ON COLUMN outbox.workers.started_at IS 'When it started.';
COMMENT ON COLUMN outbox.workers.last_loop_at IS 'When it last went round its loop.';
COMMENT ON COLUMN outbox.workers.memory IS 'Its memory, in bytes.';

CREATE FUNCTION outbox.probe(
  sink text, timeout interval DEFAULT '10 seconds',
  OUT step text, OUT ok boolean, OUT milliseconds double precision, OUT message text, OUT hint text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_probe';
COMMENT ON FUNCTION outbox.probe(text, interval) IS
  'Has the worker try a sink with its options as they are committed, whatever state the sink is in: connect (a webhook: resolve, network guard, TLS), authenticate, ask for metadata and rights, without sending an event or request or making a topic. A row per step, with how long it took; a step that failed says why and what to do. Needs USAGE on the server. All well: SELECT bool_and(ok) FROM outbox.probe(''name'').';
REVOKE EXECUTE ON FUNCTION outbox.probe(text, interval) FROM PUBLIC;
-- Dead letters go back. Called once per event, also from a SELECT over many: one that cannot go must not stop the
-- others, so it says why in a warning and returns false.

CREATE FUNCTION outbox.redrive(id uuid, sink text DEFAULT NULL, force boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  letter record;
  other record;
  sent integer := 0;
  refused integer := 0;
  late boolean := coalesce(redrive.force, false);
BEGIN
  FOR letter IN
    SELECT f.position, f.sink, f.overtaken_by,
           s.oid IS NOT NULL AS sink_exists,
           coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(s.srvoptions) AS o
                     WHERE o.option_name = 'ordered'), true) AS ordered
    FROM outbox.events_failed AS f
    LEFT JOIN (pg_foreign_server AS s JOIN outbox.wrappers AS w ON w.oid = s.srvfdw) ON s.srvname = f.sink
    WHERE f.id = redrive.id AND (redrive.sink IS NULL OR f.sink = redrive.sink)
    ORDER BY f.position FOR UPDATE OF f
  LOOP
    IF letter.sink IS NOT NULL AND NOT letter.sink_exists THEN
      RAISE WARNING 'event % was not redriven: its sink "%" does not exist', redrive.id, letter.sink
        USING ERRCODE = 'undefined_object', DETAIL = 'It stays a dead letter.',
        HINT = format('Make the sink again, or name another: UPDATE outbox.events SET sink = ''other'' WHERE id = %L AND status = ''FAILED'';', redrive.id);
    ELSIF EXISTS (SELECT FROM outbox.events_pending AS p WHERE p.id = redrive.id AND p.sink IS NOT DISTINCT FROM letter.sink) THEN
      RAISE WARNING 'event % was not redriven: another one with its id is pending', redrive.id
        USING ERRCODE = 'unique_violation', DETAIL = format('It was enqueued again for the sink "%s".', letter.sink),
        HINT = format('Redrive it when that one is delivered, or delete it: DELETE FROM outbox.events WHERE position = %s;', letter.position);
    ELSIF letter.overtaken_by IS NOT NULL AND letter.ordered AND NOT late THEN
      RAISE WARNING 'event % was not redriven: later events of its key have been delivered', redrive.id
        USING ERRCODE = 'object_not_in_prerequisite_state',
        DETAIL = format('It has position %s for the sink "%s"; the first later one that was delivered has %s.', letter.position, letter.sink, letter.overtaken_by),
        HINT = format('To send it late: SELECT outbox.redrive(%L, %L, force => true);', redrive.id, letter.sink);
    ELSE
      -- DELETE and INSERT, as the worker moves rows: an UPDATE of status would make its SKIP LOCKED fail.
      WITH gone AS (DELETE FROM outbox.events_failed AS f WHERE f.position = letter.position RETURNING f.*)
      INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers,
        partition_key, dedup_key, seq, created_at, position, sink, origin, last_error, last_attempt_at, overtaken_by, redrive_late, status)
      SELECT g.id, g.aggregate_type, g.aggregate_id, g.event_type, g.payload, g.payload_bytes, g.content_type, g.headers,
        g.partition_key, g.dedup_key, g.seq, g.created_at, g.position, g.sink, g.origin, g.last_error, g.last_attempt_at,
        CASE WHEN letter.ordered THEN g.overtaken_by END, late, 'PENDING'
      FROM gone AS g;
      sent := sent + 1;
      CONTINUE;
    END IF;
    refused := refused + 1;
  END LOOP;
  IF sent + refused > 0 OR redrive.id IS NULL THEN
    RETURN refused = 0 AND sent > 0;
  END IF;

  SELECT p.sink, p.attempts INTO other FROM outbox.events_pending AS p
  WHERE p.id = redrive.id AND (redrive.sink IS NULL OR p.sink = redrive.sink) LIMIT 1;
  IF FOUND THEN
    RAISE WARNING 'event % is not a dead letter', redrive.id
      USING ERRCODE = 'object_not_in_prerequisite_state',
      DETAIL = format('It is pending for the sink "%s", with %s failed attempts.', other.sink, other.attempts),
      HINT = format('To have it tried at once: UPDATE outbox.events SET available_at = now() WHERE id = %L AND status = ''PENDING'';', redrive.id);
  ELSE
    RAISE WARNING 'there is no dead letter %', redrive.id
      USING ERRCODE = 'no_data_found',
      DETAIL = CASE WHEN redrive.sink IS NULL THEN 'It was delivered, deleted or never enqueued.'
               ELSE format('For the sink "%s" it was delivered, deleted or never enqueued.', redrive.sink) END,
      HINT = format('SELECT sink, status, sent_at, last_error FROM outbox.events WHERE id = %L;', redrive.id);
  END IF;
  RETURN false;
END
$$;
COMMENT ON FUNCTION outbox.redrive(uuid, text, boolean) IS
  'Puts a dead letter back into its place in the order of its key, before later events that are not yet sent; without a sink, for all sinks where it is one. True when it went back. Where later events have been delivered, or it is no dead letter, a warning says so and the result is false; force sends it late then, and outbox.sinks counts it. Attempts begin again at 0. Should a later event that is in the air arrive first, the event becomes a dead letter again. Many: SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED''.';
REVOKE EXECUTE ON FUNCTION outbox.redrive(uuid, text, boolean) FROM PUBLIC;
-- Trying it: what would be sent, without sending.

CREATE FUNCTION outbox.preview(id uuid, sink text DEFAULT NULL,
  OUT sink text, OUT part text, OUT name text, OUT value text, OUT bytes bytea) RETURNS SETOF record
LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_preview';
COMMENT ON FUNCTION outbox.preview(uuid, text) IS
  'Shows exactly what would be sent for an event (pending, failed or kept as sent), part by part, without sending it: to the sinks of its rows, to those that would take it, or to the one named, which may be any. bytes are those on the wire, value is their text. value alone: a number of the protocol, or in parentheses what differs with each attempt or is a secret of the user mapping. Both NULL: null (no key, a tombstone). A webhook''s signature of this moment is shown to those who may read the user mapping: superusers and the server''s owner. Its part curl is a command for bash that sends the same request; for secrets it takes variables such as OUTBOX_BEARER_TOKEN. An event that the sink would refuse is an error, as when it is enqueued.';
REVOKE EXECUTE ON FUNCTION outbox.preview(uuid, text) FROM PUBLIC;
-- The first thing to call when something does not move.

CREATE FUNCTION outbox.doctor(OUT "check" text, OUT status text, OUT detail text, OUT hint text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  lib record;
  kafka record;
  installed text := (SELECT e.extversion FROM pg_extension AS e WHERE e.extname = 'outbox');
  n bigint;
  s record;
  example record;
  stop record;
BEGIN
  SELECT * INTO lib FROM outbox.library();
  SELECT * INTO kafka FROM outbox.kafka_library();

  "check" := 'preload'; status := 'ok'; detail := 'The library was loaded at server start.'; hint := NULL;
  IF NOT lib.preloaded THEN
    status := 'error';
    detail := 'The library is not in shared_preload_libraries: events are enqueued, and nobody delivers them.';
    hint := format('ALTER SYSTEM SET shared_preload_libraries = %s; then restart the server.',
                   array_to_string(array_remove(string_to_array(replace(current_setting('shared_preload_libraries'), ' ', ''), ','), '')
                                   || ARRAY['outbox'], ', '));
  END IF;
  RETURN NEXT;

  "check" := 'version'; status := 'ok'; hint := NULL;
  detail := format('Extension %s, library %s; %s.', installed, lib.version, lib.libraries);
  IF installed <> lib.version THEN
    status := 'error';
    hint := 'ALTER EXTENSION outbox UPDATE; if the library is the older one, restart the server first.';
  END IF;
  RETURN NEXT;

  "check" := 'librdkafka'; status := kafka.status; detail := kafka.detail; hint := kafka.hint;
  RETURN NEXT;

  "check" := 'worker'; status := 'ok'; hint := NULL;
  SELECT count(*), min(w.last_loop_at) AS last_loop_at INTO s
  FROM outbox.worker_slots() AS w
  WHERE w.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
  detail := format('%s of %s workers run for this database.', s.count, current_setting('outbox.workers'));
  IF pg_is_in_recovery() THEN
    detail := 'This server is a standby: delivery begins by itself when it is promoted.';
  ELSIF NOT current_setting('outbox.enabled')::boolean THEN
    status := 'warning'; detail := 'outbox.enabled is off: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.enabled = on; SELECT pg_reload_conf();';
  ELSIF current_setting('outbox.workers')::int = 0 THEN
    status := 'warning'; detail := 'outbox.workers is 0: no worker runs.';
    hint := 'ALTER SYSTEM SET outbox.workers = 1; SELECT pg_reload_conf();';
  ELSIF s.count = 0 AND lib.at_rest THEN
    detail := 'Nothing is due: no worker runs, and one starts when an event is committed or due.';
  ELSIF lib.out_of_slots THEN
    status := 'error';
    detail := 'The server has no free background worker slot: ' || detail;
    hint := format('ALTER SYSTEM SET max_worker_processes = %s; then restart the server.',
                   current_setting('max_worker_processes')::int + 8);
  ELSIF s.count = 0 THEN
    status := 'error';
    IF lib.preloaded AND lib.launcher_pid IS NULL THEN
      detail := 'Neither the launcher nor a worker runs.';
    END IF;
    hint := CASE WHEN lib.preloaded THEN 'Read the server log: a worker that fails is started again with growing pauses, a minute at most.'
                 ELSE 'Preload the library first.' END;
  ELSIF s.last_loop_at < clock_timestamp() - interval '1 minute' - make_interval(secs => extract(epoch FROM current_setting('outbox.poll_interval')::interval)) THEN
    status := 'warning';
    detail := format('The worker''s last round was at %s.', s.last_loop_at);
    hint := 'Look for a lock that it waits for: SELECT * FROM pg_stat_activity WHERE backend_type = ''outbox worker'';';
  END IF;
  RETURN NEXT;

  IF EXISTS (SELECT FROM outbox.workers AS w WHERE w.database = current_database()
             AND w.state = 'waiting for a synchronous standby') THEN
    "check" := 'standby'; status := 'warning';
    detail := format('Events wait until the synchronous standbys (%s) have confirmed their transactions.',
                     current_setting('synchronous_standby_names'));
    hint := 'Start a standby: SELECT application_name, state, sync_state FROM pg_stat_replication; or deliver without its word: ALTER SYSTEM SET outbox.wait_for_standbys = off; SELECT pg_reload_conf();';
    RETURN NEXT;
  END IF;

  "check" := 'routes'; status := 'ok'; detail := 'Every waiting event has a sink.'; hint := NULL;
  SELECT count(*) INTO n FROM (SELECT FROM outbox.events_pending AS e WHERE e.sink IS NULL LIMIT 1000) AS waiting;
  IF n > 0 THEN
    SELECT e.aggregate_type, e.event_type, e.headers INTO example FROM outbox.events_pending AS e WHERE e.sink IS NULL
    ORDER BY e.position LIMIT 1;
    status := 'warning';
    detail := format('%s events wait because no sink takes them; the oldest has aggregate_type "%s" and event_type "%s"%s.',
                     CASE WHEN n = 1000 THEN '1000 or more' ELSE n::text END, example.aggregate_type, example.event_type,
                     ', and the headers ' || left(example.headers::text, 200));
    hint := 'CREATE SERVER for a sink that takes them, or widen one: ALTER SERVER name OPTIONS (SET events ''*'', SET aggregates ''*''), or another match.';
  END IF;
  RETURN NEXT;

  SELECT e.sink INTO example FROM (SELECT DISTINCT p.sink FROM outbox.events_pending AS p WHERE p.sink IS NOT NULL) AS e
  LEFT JOIN outbox.renamed_sinks AS r ON r.old_name = e.sink
  WHERE coalesce(r.new_name, e.sink) NOT IN (SELECT f.srvname FROM pg_foreign_server AS f JOIN outbox.wrappers AS w ON w.oid = f.srvfdw)
  ORDER BY e.sink LIMIT 1;
  IF FOUND THEN
    "check" := 'lost sink'; status := 'error';
    detail := format('Events wait for the sink "%s", which does not exist any more.', example.sink);
    hint := format('Make it again, or route its events anew: UPDATE outbox.events SET sink = ''other'' WHERE status = ''PENDING'' AND sink = %L;', example.sink);
    RETURN NEXT;
  END IF;

  SELECT e.origin INTO example FROM outbox.events_pending AS e WHERE e.origin <> lib.origin LIMIT 1;
  IF FOUND THEN
    "check" := 'origin'; status := 'warning';
    detail := 'Events wait that were enqueued in another cluster or database (a restore, a copy, or another outbox.identity).';
    hint := 'If this database is to deliver them: SELECT outbox.adopt();';
    RETURN NEXT;
  END IF;

  FOR s IN SELECT * FROM outbox.sinks ORDER BY name LOOP
    "check" := format('sink %s', s.name); status := 'ok'; hint := NULL;
    detail := format('%s: %s, %s pending, %s failed.', s.kind, s.state, s.pending, s.failed);
    SELECT * INTO stop FROM outbox.stopped_sinks AS t WHERE t.sink = s.name;
    IF stop.state = 'paused' THEN
      status := 'warning';
      detail := format('%s has been paused since %s by %s: %s events wait.', s.name, stop.since, stop.stopped_by, s.pending);
      hint := format('SELECT outbox.resume(%L);', s.name);
    ELSIF stop.state = 'disabled' THEN
      status := 'error';
      detail := format('%s has been disabled since %s, %s: %s. %s events wait.', s.target, stop.since,
                       CASE stop.reason WHEN '410' THEN 'because its endpoint wants no more events (410)'
                       ELSE 'because it had failed for ' || stop.reason || ' without a success' END,
                       coalesce(stop.error, 'no error is known'), s.pending);
      hint := format('Correct the cause; then: SELECT outbox.resume(%L);', s.name);
    ELSIF s.state IN ('circuit open', 'disabled', 'misconfigured') THEN
      status := 'error';
      detail := format('%s is %s: %s', s.target, s.state, coalesce(s.last_error, 'no error is known'));
      hint := CASE
        WHEN s.state = 'misconfigured' AND s.kind = 'kafka' AND kafka.status = 'error' THEN kafka.hint
        WHEN s.state = 'circuit open' THEN format('It is probed until it answers; nothing is lost, and no attempt is spent. What is wrong, step by step: SELECT * FROM outbox.probe(%L);', s.name)
        WHEN s.state = 'disabled' THEN 'It is about to be written down: look again.'
        ELSE format('Correct it: ALTER SERVER %I OPTIONS (…), or CREATE USER MAPPING FOR PUBLIC SERVER %I OPTIONS (…).', s.name, s.name) END;
    ELSIF s.state = 'degraded' THEN
      status := 'warning';
      detail := format('%s is degraded: %s', s.target, coalesce(s.last_error, 'no error is known'));
      hint := 'The events concerned wait and go by themselves when the cause is gone; nothing is lost, and no attempt is spent.';
    ELSIF s.failed > 0 THEN
      status := 'warning';
      IF s.held > 0 THEN
        detail := detail || format(' %s wait behind them or behind failing events of their keys.', s.held);
      END IF;
      hint := format('SELECT id, attempts, last_error FROM outbox.events WHERE status = ''FAILED'' AND sink = %1$L; when the cause is gone: '
                     'SELECT outbox.redrive(id, sink) FROM outbox.events WHERE status = ''FAILED'' AND sink = %1$L;', s.name);
    ELSIF s.held > 0 THEN
      status := 'warning';
      detail := detail || format(' %s wait behind failing events of their keys; last error: %s', s.held, s.last_error);
      hint := format('SELECT position, partition_key, attempts, available_at, last_error FROM outbox.events WHERE status = ''PENDING'' AND sink = %L AND attempts > 0;', s.name);
    END IF;
    RETURN NEXT;
    IF s.kind = 'webhook' AND NOT EXISTS (
         SELECT FROM pg_user_mapping AS m JOIN pg_foreign_server AS f ON f.oid = m.umserver,
                pg_options_to_table(m.umoptions) AS o
         WHERE f.srvname = s.name AND m.umuser = 0 AND o.option_name = 'secret') THEN
      "check" := format('sink %s signature', s.name); status := 'warning';
      detail := 'It has no secret: its requests are not signed, and a receiver cannot tell them from forged ones.';
      hint := format('CREATE USER MAPPING FOR PUBLIC SERVER %I OPTIONS (secret ''whsec_…'');', s.name);
      RETURN NEXT;
    END IF;
  END LOOP;
  IF NOT FOUND THEN
    "check" := 'sinks'; status := 'warning'; detail := 'There is no sink.';
    hint := 'CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''localhost:9092'');';
    RETURN NEXT;
  END IF;
END
$$;
COMMENT ON FUNCTION outbox.doctor() IS
  'Looks for whatever keeps events from being delivered: a row per check, with status ok, warning or error, the fact, and the next step to paste.';
REVOKE EXECUTE ON FUNCTION outbox.doctor() FROM PUBLIC;
-- Last: the launcher learns at commit that this database has the extension. Upgrade scripts end like this too.
CREATE FUNCTION outbox.announce() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_announce';
COMMENT ON FUNCTION outbox.announce() IS 'Tells the launcher, at commit, to start workers for this database. Install and upgrade scripts call it.';
REVOKE EXECUTE ON FUNCTION outbox.announce() FROM PUBLIC;
SELECT outbox.announce();
