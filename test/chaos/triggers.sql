-- The application beside its writers: the sinks under whatever name, and triggers on events. These run inside the
-- worker's recordings.

-- A sink is what its comment says: its name changes.
CREATE VIEW chaos.sinks AS SELECT srvname::text AS name, obj_description(oid, 'pg_foreign_server') AS sink FROM pg_foreign_server;

-- Keys that writers share have a topic of their own.
CREATE OR REPLACE FUNCTION chaos.type_of(key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN key LIKE 'shared-%' THEN 'Shared' ELSE 'Chaos' END
$$;

-- An event that sleeps until the worker records the other one.
CREATE FUNCTION chaos.emit_freeing(cycle int, key text, id uuid, sleeper uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO chaos.aggregates VALUES ('sleeps-' || id);
  PERFORM chaos.emit(cycle, 'sleeps-' || id, sleeper, available_at => '2100-01-01');
  PERFORM chaos.emit(cycle, key, id, 'chaos.frees');
END $$;

-- Kafka refuses it; nothing compresses it.
CREATE FUNCTION chaos.emit_large(cycle int, key text, id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM chaos.emit(cycle, key, id, more => jsonb_build_object('filler', (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 1200))));
END $$;

CREATE FUNCTION chaos.after_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.event_type = 'chaos.frees' THEN
    UPDATE outbox.events SET available_at = NULL WHERE status = 'PENDING' AND aggregate_id = 'sleeps-' || OLD.id AND available_at IS NOT NULL;
  ELSE -- another event, in the same transaction
    PERFORM chaos.emit(cycle, 'echo-' || OLD.aggregate_id, gen_random_uuid()) FROM chaos.ledger WHERE id = OLD.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER chaos_after_delete AFTER DELETE ON outbox.events_pending FOR EACH ROW
  WHEN (OLD.event_type IN ('chaos.frees', 'chaos.echoes')) EXECUTE FUNCTION chaos.after_delete();

-- Rows that may not leave the table.
CREATE TABLE chaos.kept (sink text NOT NULL, keys text NOT NULL);
CREATE FUNCTION chaos.before_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM chaos.kept) THEN
    IF EXISTS (SELECT FROM chaos.kept AS k JOIN chaos.sinks AS s ON s.sink = k.sink WHERE s.name = OLD.sink AND OLD.aggregate_id LIKE k.keys) THEN
      RAISE 'the application keeps this event';
    END IF;
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER chaos_before_delete BEFORE DELETE ON outbox.events_pending FOR EACH ROW
  WHEN (current_setting('chaos.by_hand', true) IS NULL) EXECUTE FUNCTION chaos.before_delete();
