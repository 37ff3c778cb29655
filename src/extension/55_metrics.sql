-- What a monitoring system scrapes: names and meanings in docs/monitoring.md.

CREATE OR REPLACE FUNCTION outbox.sink_failures(OUT server oid, OUT reason text, OUT failures bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_failures';
COMMENT ON FUNCTION outbox.sink_failures() IS
  'How often deliveries of this database''s sinks have failed, or their peers could not be reached, by reason, since the server started or outbox.reset_stats(). Reasons that have not occurred are left out.';

CREATE OR REPLACE FUNCTION outbox.sink_latency(
  OUT server oid, OUT le double precision[], OUT buckets bigint[], OUT sum double precision, OUT count bigint)
RETURNS SETOF record LANGUAGE c VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_sink_latency';
COMMENT ON FUNCTION outbox.sink_latency() IS
  'A histogram for each of this database''s sinks: how many events (buckets) took at most so many seconds (le) from created_at to the acknowledgement; the sum of all, and how many they are.';
