-- It shows the message of an event without sending it.

CREATE OR REPLACE FUNCTION outbox.preview(id uuid, sink text DEFAULT NULL,
  OUT sink text, OUT part text, OUT name text, OUT value text, OUT bytes bytea) RETURNS SETOF record
LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_preview';
COMMENT ON FUNCTION outbox.preview(uuid, text) IS
  'Shows exactly what would be sent for an event (pending, failed or kept as sent), part by part, and sends '
  'nothing: for the sinks of its rows, for those that would take it, or for the named sink, which may be any. bytes '
  'are those on the wire, value is their text. value alone is a number of the protocol or, in parentheses, says '
  'what differs with each attempt or is a secret of the user mapping. Both NULL: null (no key, a tombstone). Only '
  'superusers and the server''s owner see a webhook''s signature. If the sink would refuse the event, it is an '
  'error, as when it is enqueued.';
