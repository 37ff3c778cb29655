-- Trying it: what would be sent, without sending.

CREATE OR REPLACE FUNCTION outbox.preview(id uuid, sink text DEFAULT NULL,
  OUT sink text, OUT part text, OUT name text, OUT value text, OUT bytes bytea) RETURNS SETOF record
LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_preview';
COMMENT ON FUNCTION outbox.preview(uuid, text) IS
  'Shows exactly what would be sent for an event (pending, failed or kept as sent), part by part, without sending it: to the sinks of its rows, to those that would take it, or to the one named, which may be any. bytes are those on the wire, value is their text. value alone: a number of the protocol, or in parentheses what differs with each attempt or is a secret of the user mapping. Both NULL: null (no key, a tombstone). A webhook''s signature of this moment is shown to those who may read the user mapping: superusers and the server''s owner. An event that the sink would refuse is an error, as when it is enqueued.';
