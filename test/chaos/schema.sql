-- The application under chaos: a row per key, whose lock serialises the key, and a ledger that is written in the
-- event's own (sub)transaction. The ledger, read after recovery, says which events exist.
CREATE SCHEMA chaos;
CREATE TABLE chaos.aggregates (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0);
CREATE TABLE chaos.ledger (id uuid PRIMARY KEY, cycle int NOT NULL, n bigint NOT NULL, key text);
CREATE INDEX ON chaos.ledger (cycle);

CREATE FUNCTION chaos.type_of(key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'Chaos' $$;

CREATE FUNCTION chaos.emit(cycle int, key text, id uuid, event_type text DEFAULT 'chaos.happened', more jsonb DEFAULT '{}',
                           available_at timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE number bigint;
BEGIN
  UPDATE chaos.aggregates AS a SET n = a.n + 1 WHERE a.key = emit.key RETURNING a.n INTO STRICT number;
  INSERT INTO chaos.ledger VALUES (id, cycle, number, key);
  PERFORM outbox.enqueue(chaos.type_of(key), key, event_type, jsonb_build_object('id', id, 'key', key, 'n', number) || more, id => id,
                         available_at => available_at);
  RETURN number;
END $$;

-- The first event is caught by an exception block, the second one takes place.
CREATE FUNCTION chaos.emit_after_error(cycle int, key text, undone uuid, done uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    PERFORM chaos.emit(cycle, key, undone);
    RAISE EXCEPTION 'caught';
  EXCEPTION WHEN raise_exception THEN NULL;
  END;
  PERFORM chaos.emit(cycle, key, done);
END $$;

-- Transactions of its own: every second one is rolled back.
CREATE PROCEDURE chaos.emit_in_steps(cycle int, key text, ids uuid[]) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. cardinality(ids) LOOP
    PERFORM chaos.emit(cycle, key, ids[i]);
    IF i % 2 = 1 THEN COMMIT; ELSE ROLLBACK; END IF;
  END LOOP;
END $$;

-- Plain INSERTs of many rows.
CREATE FUNCTION chaos.emit_many(cycle int, key text, ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE before bigint;
BEGIN
  UPDATE chaos.aggregates AS a SET n = a.n + cardinality(ids) WHERE a.key = emit_many.key
    RETURNING a.n - cardinality(ids) INTO STRICT before;
  INSERT INTO chaos.ledger SELECT event, cycle, before + i, key FROM unnest(ids) WITH ORDINALITY AS e (event, i);
  INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload)
    SELECT event, chaos.type_of(key), key, 'chaos.happened', jsonb_build_object('id', event, 'key', key, 'n', before + i)
    FROM unnest(ids) WITH ORDINALITY AS e (event, i) ORDER BY i;
END $$;
