-- Sinks of kind outbox_manual: a program of the user's own claims their events and says how they ended. What ack() and nack() do is in 37_manual.sql.

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
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX IF NOT EXISTS leases_token ON outbox.leases (token);
COMMENT ON TABLE outbox.leases IS 'What is claimed from sinks of kind outbox_manual: a row per key, or per event where no order is kept. outbox.claim() writes it, outbox.ack() and outbox.nack() end it.';
COMMENT ON COLUMN outbox.leases.server IS 'The sink.';
COMMENT ON COLUMN outbox.leases.ordered IS 'Whether the sink kept order when the events were claimed.';
COMMENT ON COLUMN outbox.leases.key_hash IS 'The key that nobody else is given events of; 0 where the lease is of one event.';
COMMENT ON COLUMN outbox.leases.single IS 'The position of that one event; 0 where the lease is of a key.';
COMMENT ON COLUMN outbox.leases.token IS 'Names the claim: who has lost the lease to another claim cannot end it.';
COMMENT ON COLUMN outbox.leases.lease_until IS 'After this moment another claim may take the events.';
COMMENT ON COLUMN outbox.leases.overtaken_by IS 'Position of the last event of the key that this claim has acknowledged before others of its own.';
COMMENT ON COLUMN outbox.leases.ids IS 'The events that are not yet acknowledged or refused, in order.';
COMMENT ON COLUMN outbox.leases.positions IS 'Their positions.';

CREATE OR REPLACE FUNCTION outbox.claim(
  sink text, "limit" integer DEFAULT 100, lease interval DEFAULT '30 seconds',
  OUT id uuid, OUT aggregate_type text, OUT aggregate_id text, OUT event_type text, OUT payload jsonb, OUT payload_bytes bytea,
  OUT content_type text, OUT headers jsonb, OUT partition_key text, OUT dedup_key text, OUT seq bigint, OUT created_at timestamptz,
  OUT attempts integer, OUT "position" bigint, OUT token uuid, OUT lease_until timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_claim';
COMMENT ON FUNCTION outbox.claim(text, integer, interval) IS
  'Gives out at most limit events of a sink of kind outbox_manual that are due, in order, to be handled before lease_until; commit, handle them, and then outbox.ack(token, ids) or outbox.nack(). In an ordered sink nobody else is given events of the same keys until all of them are ended, or the lease is over. An event that fails holds up its key as for every sink. Claims that run at once wait for nobody. A paused sink gives out nothing, and says so in a notice. limit: 1 to 10000; lease: 1 ms to 7 days. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.ack(token uuid, ids uuid[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.ack(uuid, uuid[]) IS
  'Says that claimed events have been delivered: they leave, or are kept for the retention. Without ids, all that the claim still has. Returns how many it took: fewer than given where the lease was over and another claim has taken them, or where an outbox.nack() gave them back. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.nack(token uuid, id uuid, error text, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.nack(uuid, uuid, text, interval, boolean) IS
  'Says that a claimed event has failed: an attempt is counted, and it comes again after retry_in, or by the option retry of its sink; later events of its key that the claim has are given back. After max_attempts, or with give_up at once, it becomes a dead letter. Returns its status, PENDING or FAILED; NULL when the claim does not have it any more. Needs USAGE on the foreign server.';
