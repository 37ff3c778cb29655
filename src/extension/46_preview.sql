-- Trying it: what would be sent, without sending.

CREATE FUNCTION outbox.preview(id uuid, sink text DEFAULT NULL,
  OUT sink text, OUT part text, OUT name text, OUT value text, OUT bytes bytea) RETURNS SETOF record
LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_preview';
COMMENT ON FUNCTION outbox.preview(uuid, text) IS
  'Shows exactly what would be sent for an event (pending, failed or kept as sent), part by part, without sending it: to the sinks of its rows, to those that would take it, or to the one named, which may be any. bytes are those on the wire, value is their text. value alone: a number of the protocol, or in parentheses what differs with each attempt or stands in the user mapping, which is not read. Both NULL: null (no key, a tombstone). An event that the sink would refuse is an error, as when it is enqueued.';
REVOKE EXECUTE ON FUNCTION outbox.preview(uuid, text) FROM PUBLIC;
