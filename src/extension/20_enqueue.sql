-- Enqueuing: outbox.enqueue(), and the triggers of every INSERT, UPDATE and DELETE of events.
-- A text parameter for a jsonb, uuid or time column is refused by the parser, before any trigger. Casts of ours would
-- let it through, but would belong to the whole database: docs/enqueue.md has the statements for two such casts.
-- UPDATE ... SET sent_at = now() alone marks an event as sent, because many pollers have no column status: otherwise
-- it would be delivered once more.

-- Functions for the payload and the headers that drivers send: jsonb, json and text. The parser takes an untyped
-- literal or parameter for text, also beside jsonb headers: in that function these have no default, because otherwise
-- two functions would fit a call without headers. The function for anyelement takes jsonb; for a payload of another
-- type, its error says which call to use. In C all of them are one function, which looks up its arguments' types.
DO $body$
DECLARE
  json text;
  headers text;
BEGIN
  FOR json, headers IN
    VALUES ('anyelement', 'jsonb'), ('json', 'json'), ('text', 'text'), ('text', 'jsonb')
  LOOP
    EXECUTE format($$
      CREATE OR REPLACE FUNCTION outbox.enqueue(
        aggregate_type text, aggregate_id anycompatible, event_type text, payload %1$s,
        headers %2$s%3$s, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
        available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
      ) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
      AS 'MODULE_PATHNAME', 'outbox_enqueue' $$,
      json, headers, CASE WHEN json = 'text' AND headers = 'jsonb' THEN '' ELSE ' DEFAULT NULL' END);
    EXECUTE format(
      'COMMENT ON FUNCTION '
      'outbox.enqueue(text, anycompatible, text, %1$s, %2$s, text, text, timestamptz, text, uuid) IS %3$L',
      json, headers,
      'Enqueues an event in the current transaction and returns its id. aggregate_id is a text, an integer, a '
      'numeric, a uuid or an enum. The payload and the headers are jsonb, json, or JSON as text. For an event '
      'without a key, use partition_key => ''''. With a known dedup_key it adds no event and returns the first '
      'event''s id. Needs USAGE on schema outbox and INSERT on outbox.events; naming a sink needs USAGE on that '
      'foreign server.');
  END LOOP;
END
$body$;

CREATE OR REPLACE FUNCTION outbox.enqueue_bytes(
  aggregate_type text, aggregate_id anycompatible, event_type text, payload bytea, content_type text,
  headers jsonb DEFAULT NULL, partition_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, sink text DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS uuid LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION
  outbox.enqueue_bytes(text, anycompatible, text, bytea, text, jsonb, text, text, timestamptz, text, uuid) IS
  'Enqueues an event like outbox.enqueue(), with a body of raw bytes (Avro, Protobuf) and its media type. The '
  'bytes are sent exactly as given.';

CREATE OR REPLACE FUNCTION outbox_internal.events_before_insert() RETURNS trigger LANGUAGE c
AS 'MODULE_PATHNAME', 'outbox_events_before_insert';
COMMENT ON FUNCTION outbox_internal.events_before_insert() IS
  'Trigger of outbox.events: fills in missing columns, refuses events that can never be sent, routes to the sinks '
  'and draws the position.';

CREATE OR REPLACE FUNCTION outbox_internal.events_before_update() RETURNS trigger
LANGUAGE c SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_events_before_update';
COMMENT ON FUNCTION outbox_internal.events_before_update() IS
  'Trigger of outbox.events: checks a user''s change as a new event would be checked.';

CREATE OR REPLACE FUNCTION outbox_internal.events_after_update() RETURNS trigger
LANGUAGE c SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_events_after_update';
COMMENT ON FUNCTION outbox_internal.events_after_update() IS
  'Trigger of outbox.events: makes the worker read a pending event again that a user changed.';

CREATE OR REPLACE FUNCTION outbox_internal.events_after_delete() RETURNS trigger
LANGUAGE c SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_events_after_delete';
COMMENT ON FUNCTION outbox_internal.events_after_delete() IS
  'Trigger of outbox.events: frees the dedup key of a cancelled event, and the events that waited behind it.';

-- The WHEN clauses keep the worker's bulk DELETEs, and changes without an effect on delivery, out of the triggers.
CREATE OR REPLACE TRIGGER events_before_insert BEFORE INSERT ON outbox.events
  FOR EACH ROW EXECUTE FUNCTION outbox_internal.events_before_insert();
-- By columns: a WHEN clause that compares them would have to read a TOAST value, which may be damaged.
CREATE OR REPLACE TRIGGER events_before_update BEFORE UPDATE
  OF status, sink, created_at, sent_at, attempts, aggregate_type, aggregate_id, event_type, payload, payload_bytes,
     headers, content_type, dedup_key, partition_key, position, xact, origin, blocked_by, overtaken_by, redrive_late,
     application, acknowledgement
  ON outbox.events
  FOR EACH ROW EXECUTE FUNCTION outbox_internal.events_before_update();
CREATE OR REPLACE TRIGGER events_after_update AFTER UPDATE ON outbox.events
  FOR EACH ROW WHEN (
    OLD.sink IS DISTINCT FROM NEW.sink
    OR OLD.available_at IS DISTINCT FROM NEW.available_at
    OR OLD.status IS DISTINCT FROM NEW.status
    OR OLD.last_attempt_at IS DISTINCT FROM NEW.last_attempt_at
    OR OLD.blocked_by IS DISTINCT FROM NEW.blocked_by
    OR OLD.position IS DISTINCT FROM NEW.position
    OR OLD.origin IS DISTINCT FROM NEW.origin
    OR OLD.partition_key IS DISTINCT FROM NEW.partition_key)
  EXECUTE FUNCTION outbox_internal.events_after_update();
-- After the change of an event that waits for a sink, a sink may take it.
CREATE OR REPLACE TRIGGER events_after_update_of_waiting
  AFTER UPDATE OF headers, aggregate_type, event_type ON outbox.events
  FOR EACH ROW WHEN (NEW.sink IS NULL) EXECUTE FUNCTION outbox_internal.events_after_update();
CREATE OR REPLACE TRIGGER events_after_delete AFTER DELETE ON outbox.events
  FOR EACH ROW WHEN (OLD.last_attempt_at IS NOT NULL OR OLD.dedup_key IS NOT NULL OR OLD.status = 'FAILED')
  EXECUTE FUNCTION outbox_internal.events_after_delete();

-- ENABLE ALWAYS: also for rows that a subscription or a restore writes with session_replication_role = replica.
-- Without the triggers, a row would have no position, and a changed event would stay behind the worker's cursor.
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_before_insert;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_before_update;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_after_update;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_after_update_of_waiting;
ALTER TABLE outbox.events ENABLE ALWAYS TRIGGER events_after_delete;

CREATE OR REPLACE FUNCTION outbox_internal.route_waiting() RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE
  SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_route_waiting';
COMMENT ON FUNCTION outbox_internal.route_waiting() IS
  'Routes at most 1000 events that waited for a sink and that a sink takes now. Returns their number; 0 when none '
  'is left. The worker calls it when sinks change.';

CREATE OR REPLACE FUNCTION outbox_internal.has_taker(aggregate_type text, event_type text, headers jsonb)
RETURNS boolean LANGUAGE c STABLE PARALLEL RESTRICTED
  SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_has_taker';
COMMENT ON FUNCTION outbox_internal.has_taker(text, text, jsonb) IS
  'Part of outbox.doctor(): whether any sink takes such an event.';

COMMENT ON COLUMN outbox_internal.dedup.dedup_key IS 'The key as the producer gave it.';
COMMENT ON COLUMN outbox_internal.dedup.event_id IS 'The event that the key names.';
COMMENT ON COLUMN outbox_internal.dedup.created_at IS
  'The time since which the key names that event; after outbox.dedup_window it may name another.';
COMMENT ON COLUMN outbox_internal.rescan_queue.position IS 'The position of the event to read again.';
COMMENT ON COLUMN outbox_internal.rescan_queue.xact IS 'The transaction that added the row.';
