-- Sinks of kind outbox_manual: a program of the user's own claims their events and reports how they ended. The work
-- of ack() and nack() is in 37_manual.sql, that of claim() in 38_claim.sql.

CREATE TABLE IF NOT EXISTS outbox.leases (
  server oid NOT NULL,
  ordered boolean NOT NULL,
  key_hash bigint NOT NULL,
  single bigint NOT NULL,
  token uuid NOT NULL,
  lease_until timestamptz NOT NULL,
  overtaken_by bigint,
  ids uuid[] NOT NULL,
  positions bigint[] NOT NULL,
  CONSTRAINT leases_pkey PRIMARY KEY (server, ordered, key_hash, single)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX IF NOT EXISTS leases_token ON outbox.leases (token);
COMMENT ON TABLE outbox.leases IS
  'Claimed events of sinks of kind outbox_manual: one row per key, or per event if the sink keeps no order. '
  'outbox.claim() writes it, outbox.ack() and outbox.nack() end it.';
COMMENT ON COLUMN outbox.leases.server IS 'The sink.';
COMMENT ON COLUMN outbox.leases.ordered IS 'Whether the sink kept order when the events were claimed.';
COMMENT ON COLUMN outbox.leases.key_hash IS
  'The hash of the claimed key, of which no other claim gets events; 0 for a lease of one event.';
COMMENT ON COLUMN outbox.leases.single IS 'The position of the claimed event; 0 for a lease of a key.';
COMMENT ON COLUMN outbox.leases.token IS
  'The name of the claim. A claim that has lost its lease to another cannot end it.';
COMMENT ON COLUMN outbox.leases.lease_until IS 'After this time another claim may take the events.';
COMMENT ON COLUMN outbox.leases.overtaken_by IS
  'The position of the last event of the key that this claim has acknowledged before earlier events of its own.';
COMMENT ON COLUMN outbox.leases.ids IS 'The events that are neither acknowledged nor refused yet, in order.';
COMMENT ON COLUMN outbox.leases.positions IS 'The positions of these events.';

CREATE OR REPLACE FUNCTION outbox_internal.other_leases(server oid, ordered boolean) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
@READS_BY_INDEX@
AS $$
  SELECT max(l.lease_until) FROM outbox.leases AS l
  WHERE l.server = other_leases.server AND l.ordered = NOT other_leases.ordered
    AND l.lease_until > clock_timestamp()
$$;
COMMENT ON FUNCTION outbox_internal.other_leases(oid, boolean) IS
  'Part of outbox.claim(), story() and doctor(): until when events are leased that were claimed before the option '
  'ordered of their sink was changed. The sink gives out nothing before.';

CREATE OR REPLACE FUNCTION outbox.claim(
  sink text, "limit" integer DEFAULT 100, lease interval DEFAULT '30 seconds',
  OUT id uuid, OUT aggregate_type text, OUT aggregate_id text, OUT event_type text, OUT payload jsonb,
  OUT payload_bytes bytea, OUT content_type text, OUT headers jsonb, OUT partition_key text, OUT dedup_key text,
  OUT seq bigint, OUT created_at timestamptz, OUT attempts integer, OUT "position" bigint, OUT token uuid,
  OUT lease_until timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.claim(text, integer, interval) IS
  'Returns at most limit due events of a sink of kind outbox_manual, in order. Commit, handle them before '
  'lease_until, and then call outbox.ack(token, ids) or outbox.nack(). In an ordered sink no other claim gets '
  'events of the same keys until all of them are ended or the lease is over. A failing event blocks its key as in '
  'every sink. Concurrent claims do not wait for each other. A paused sink returns nothing and raises a notice. '
  'limit: 1 to 10000; lease: 1 ms to 7 days. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.ack(token uuid, ids uuid[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.ack(uuid, uuid[]) IS
  'Reports claimed events as delivered: they are deleted, or kept for the retention. Without ids: all events that '
  'the claim still has. Returns the number of accepted events, which is smaller if the lease was over and another '
  'claim has taken some, or if an outbox.nack() returned some to the table. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.nack(
  token uuid, id uuid, error text, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.nack(uuid, uuid, text, interval, boolean) IS
  'Reports a claimed event as failed: an attempt is counted, and the event comes again after retry_in, or as the '
  'sink''s option retry says. Later events of its key in the claim are returned to the table. After max_attempts, '
  'or at once with give_up, it becomes a dead letter. Returns its status, PENDING or FAILED, or NULL if the claim '
  'does not have the event any more. Needs USAGE on the foreign server.';
