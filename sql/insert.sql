-- Plain INSERT and COPY: the shapes that ORMs and bulk loads send.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;

CREATE VIEW pg_temp.events AS
  SELECT row_number() OVER (ORDER BY position) AS n, aggregate_id, event_type, payload, partition_key, status, attempts, sink
  FROM outbox.events ORDER BY position;

-- One row; RETURNING gives what the server filled in.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'order.created', '{"total": 5}')
  RETURNING substr(id::text, 15, 1) AS version, status, attempts, partition_key, position > 0 AS position, created_at = now() AS created,
            xact = pg_current_xact_id() AS xact, origin IS NOT NULL AS origin;
-- Several rows, in their order; a payload left out is {}, an explicit NULL is a tombstone.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '2', 'a'), ('Order', '2', 'b'), ('Order', '2', 'c');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '3', 'order.deleted', NULL);
-- INSERT ... SELECT keeps the order of its query.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload)
  SELECT 'Order', (10 + i)::text, 'bulk', jsonb_build_object('i', i) FROM generate_series(1, 3) AS i ORDER BY i DESC;
-- COPY
COPY outbox.events (aggregate_type, aggregate_id, event_type, payload) FROM stdin;
Order	20	copied	{"c": 1}
Order	21	copied	\N
\.
-- An ORM that names every column and sends NULL for what it does not know.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, partition_key, dedup_key, seq,
                           created_at, available_at, attempts, status, last_error, sent_at, last_attempt_at, position, sink, blocked_by, xact, origin)
  VALUES (NULL, 'Order', '30', 'orm', '{"o": 1}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
  RETURNING id IS NOT NULL AS id, created_at = now() AS created, position > 0 AS position;
-- Straight into the partition.
INSERT INTO outbox.events_pending (aggregate_type, aggregate_id, event_type) VALUES ('Order', '31', 'leaf');
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events;

-- What rolls back leaves nothing, savepoints included.
BEGIN;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'rolled back');
ROLLBACK;
BEGIN;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'kept');
SAVEPOINT s;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'in the savepoint');
SELECT outbox.enqueue('Order', '1', 'in the savepoint', '{}') IS NOT NULL AS enqueued;
ROLLBACK TO s;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'after the savepoint');
SAVEPOINT t;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type) VALUES ('Order', '1', 'in a released savepoint');
RELEASE t;
-- A subtransaction's row carries the transaction that commits it.
SELECT event_type, xact = pg_current_xact_id() AS xact FROM outbox.events ORDER BY position;
COMMIT;
SELECT * FROM pg_temp.events;
TRUNCATE outbox.events;

-- Raw bytes: a payload column that was left out is no second payload.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload_bytes, content_type)
  VALUES ('Order', '1', 'bytes', '\xdeadbeef', 'application/avro') RETURNING payload, payload_bytes;

-- The same id twice is refused as a unique index does it; ON CONFLICT DO NOTHING takes it quietly.
INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'first');
INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'second');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'third', '{}', id => '01890a5d-ac96-774b-bcce-b302099a8057');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (id, aggregate_type, event_type) VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'fourth')
  ON CONFLICT DO NOTHING RETURNING event_type;
SELECT event_type FROM outbox.events WHERE id = '01890a5d-ac96-774b-bcce-b302099a8057';
TRUNCATE outbox.events;

-- A restore brings position, sink and origin along: they are kept, the transaction is ours, the worker is told, and
-- the sequence does not draw the position again.
BEGIN;
SELECT last_value + 1000 AS position FROM outbox.events_position \gset restored_
INSERT INTO outbox.events_pending (id, aggregate_type, event_type, dedup_key, position, sink, xact, origin)
  VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', 'restored', 'd', :restored_position, 'not there yet', '3', 42);
SELECT position = :restored_position AS position, sink, origin, xact = pg_current_xact_id() AS xact FROM outbox.events;
-- (Of another origin it waits for outbox.adopt(); then the worker is told.)
SELECT count(*) AS recalled FROM outbox_internal.rescan_queue;
SELECT outbox.adopt() >= 1 AS adopted;
SELECT position = :restored_position AS recalled FROM outbox_internal.rescan_queue;
SELECT count(*) AS dedup_keys FROM outbox_internal.dedup;
INSERT INTO outbox.events (aggregate_type, event_type) VALUES ('Order', 'next')
  RETURNING position > :restored_position AS later, origin <> 42 AS own_origin;
ROLLBACK;
INSERT INTO outbox.events (id, aggregate_type, event_type, position, origin) VALUES (gen_random_uuid(), 'Order', 'too far', 9223372036854775807, 42);
\echo :LAST_ERROR_SQLSTATE
