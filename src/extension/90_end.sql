-- Last: the launcher learns at commit that this database has the extension. Upgrade scripts end like this too.
CREATE FUNCTION outbox.announce() RETURNS void LANGUAGE c VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'outbox_announce';
COMMENT ON FUNCTION outbox.announce() IS 'Tells the launcher, at commit, to start workers for this database. Install and upgrade scripts call it.';
REVOKE EXECUTE ON FUNCTION outbox.announce() FROM PUBLIC;
SELECT outbox.announce();
