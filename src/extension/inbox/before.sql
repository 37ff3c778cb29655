-- outbox.mark_processed() for a consumer's database in which the extension outbox cannot be installed: the same table
-- and functions. Run it once, as the role that is to own them; run a newer one over it.

DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'outbox') THEN
    RAISE EXCEPTION 'the extension "outbox" is installed: it has these functions' USING ERRCODE = 'duplicate_object';
  END IF;
END
$$;
CREATE SCHEMA IF NOT EXISTS outbox;
CREATE SCHEMA IF NOT EXISTS outbox_internal;

