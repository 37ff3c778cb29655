-- The extension outbox_manual: sinks whose events a program of the user's own claims and ends. Its C functions are in
-- the library of outbox: they need the delivery library's options and the counters in shared memory.

CREATE OR REPLACE FUNCTION outbox_internal.manual_validator(options text[], catalog oid) RETURNS void
LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_validator';
COMMENT ON FUNCTION outbox_internal.manual_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_manual when the DDL runs.';

CREATE FOREIGN DATA WRAPPER outbox_manual NO HANDLER VALIDATOR outbox_internal.manual_validator;
COMMENT ON FOREIGN DATA WRAPPER outbox_manual IS
  'Sinks whose events your own program claims, with outbox.claim(), outbox.ack() and outbox.nack(): CREATE SERVER '
  'name FOREIGN DATA WRAPPER outbox_manual OPTIONS (events ''order.*''). No worker delivers them. USAGE on this '
  'wrapper lets a role make sinks that take every event.';

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
  'lease_until, then call outbox.ack(token, ids) or outbox.nack(). In an ordered sink no other claim gets events of '
  'the same keys until all of them are ended or the lease is over. A failing event blocks its key as in every sink. '
  'Concurrent claims do not wait for each other. A paused sink returns nothing and raises a notice. limit: 1 to '
  '10000; lease: 1 ms to 7 days. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.ack(token uuid, ids uuid[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.ack(uuid, uuid[]) IS
  'Reports claimed events as delivered: they are deleted, or kept for the retention. Without ids: all events that '
  'the claim still has. Returns the number of accepted events: fewer if another claim has taken some after the '
  'lease, or outbox.nack() has returned some to the table. Needs USAGE on the foreign server.';

CREATE OR REPLACE FUNCTION outbox.nack(
  token uuid, id uuid, error text, retry_in interval DEFAULT NULL, give_up boolean DEFAULT false
) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_as_owner';
COMMENT ON FUNCTION outbox.nack(uuid, uuid, text, interval, boolean) IS
  'Reports a claimed event as failed: an attempt is counted, and the event comes again after retry_in, or as the '
  'option retry says. Later events of its key in the claim are returned to the table. After max_attempts, or at '
  'once with give_up, it becomes a dead letter. Returns its status, PENDING or FAILED, or NULL if the claim does '
  'not have it any more. Needs USAGE on the foreign server.';

