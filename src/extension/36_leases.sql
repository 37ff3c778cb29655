-- The claimed events of sinks of kind outbox_manual. The functions that claim and end events are an extension,
-- manual/; the table is here, because outbox.sinks, outbox.story() and outbox.doctor() read it.

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
COMMENT ON COLUMN outbox.leases.key_hash IS 'The hash of the claimed key; 0 for a lease of one event.';
COMMENT ON COLUMN outbox.leases.single IS 'The position of the claimed event; 0 for a lease of a key.';
COMMENT ON COLUMN outbox.leases.token IS 'The name of the claim.';
COMMENT ON COLUMN outbox.leases.lease_until IS 'After this time another claim may take the events.';
COMMENT ON COLUMN outbox.leases.overtaken_by IS
  'The last position of the key that this claim acknowledged before earlier events of its own.';
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
