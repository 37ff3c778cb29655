-- outbox_inbox.mark_processed() for a consumer's database in which no extension can be installed: the same table and
-- functions as CREATE EXTENSION outbox_inbox makes. Run it once, as the role that is to own them; run a newer one
-- over it.

DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'outbox_inbox') THEN
    RAISE EXCEPTION 'the extension "outbox_inbox" is installed: it has these functions'
      USING ERRCODE = 'duplicate_object';
  END IF;
END
$$;
