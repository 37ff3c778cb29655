-- Delivered events again: for a consumer that lost them, or for a sink that was made later.

CREATE OR REPLACE FUNCTION outbox.matches_globs(value text, globs text) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_matches_globs';
COMMENT ON FUNCTION outbox.matches_globs(text, text) IS
  'Whether a text matches one of a comma-separated list of globs, such as ''order.*, customer.created'': as the options events and aggregates of a sink do.';

CREATE OR REPLACE FUNCTION outbox.sink_takes(sink text, aggregate_type text, event_type text, headers jsonb) RETURNS boolean
LANGUAGE c STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_takes';
COMMENT ON FUNCTION outbox.sink_takes(text, text, text, jsonb) IS
  'Whether a sink takes such events by its options events, aggregates and match.';

CREATE OR REPLACE FUNCTION outbox.replay(sink text, since timestamptz, until timestamptz DEFAULT now(), events text DEFAULT '*') RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_replay';
COMMENT ON FUNCTION outbox.replay(text, timestamptz, timestamptz, text) IS
  'Sends events again that were delivered from since to before until and are still kept (outbox.retention), with their ids; returns how many. Those that this sink had, and those that only others had and that it takes by its options: so a sink that was made later gets what it missed. events chooses by event type, with globs as in a sink''s option. They go in their old order, as if they were enqueued now: after what is pending. What is pending or a dead letter for the sink is left out. Needs USAGE on the foreign server.';
