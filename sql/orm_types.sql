-- The types in which applications give the columns of an event.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
SET timezone = 'America/New_York';
CREATE VIEW pg_temp.events AS
  SELECT row_number() OVER (ORDER BY position) AS n, aggregate_id, event_type, payload, headers, status, attempts, created_at AT TIME ZONE 'UTC' AS created_utc FROM outbox.events ORDER BY position;

-- Parameters without a type (psycopg, node-postgres, pgx, pgjdbc with stringtype=unspecified): the server takes the column's.
PREPARE untyped AS INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, available_at, attempts, status)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id, available_at;
EXECUTE untyped ('01890a5d-ac96-774b-bcce-b302099a8057', 'Order', '1', 'untyped', '{"a": 1}', '{"tenant": 7}', '2021-11-01T10:00:00Z', '2100-01-01 00:00:00', '0', 'PENDING');
EXECUTE untyped ('0B7C9A52-7C3E-4A36-9E0E-5A1F0D6F0001', 'Order', '2', 'untyped', '[1, 2]', NULL, '2021-11-01 10:00:00', NULL, NULL, NULL);
-- Types with a cast of their own that an INSERT may use: numbers, uuid, json, timestamps and dates without a zone (the session's), char(n), enums.
CREATE TYPE regress_status AS ENUM ('PENDING', 'SENT', 'FAILED');
CREATE TYPE regress_kind AS ENUM ('OrderPlaced');
CREATE DOMAIN regress_name AS varchar(40);
PREPARE typed (bigint, char(20), regress_name, json, json, timestamp, smallint, regress_status, regress_kind) AS
  INSERT INTO outbox.events (aggregate_id, aggregate_type, partition_key, payload, headers, created_at, attempts, status, event_type) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
  RETURNING aggregate_type || '.' AS aggregate_type, partition_key;
EXECUTE typed (42, 'Order', 'k', '{"b": 1}', '{"tenant": 8}', '2021-11-01 10:00:00', 0, 'PENDING', 'OrderPlaced');
EXECUTE typed (43, 'Order', NULL, NULL, NULL, NULL, NULL, NULL, 'OrderPlaced');
INSERT INTO outbox.events (aggregate_id, aggregate_type, event_type, created_at, status) VALUES ('0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0001'::uuid, 'Order'::name, 'uuid', '2021-11-01'::date, 'PENDING'::char(10));
INSERT INTO outbox.events (aggregate_id, aggregate_type, event_type) VALUES (4.50::numeric, 'Order', 'numeric'), (7::smallint, 'Order', 'smallint');
-- Casts that the ORM writes.
PREPARE written (text, varchar, text, text) AS
  INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES (cast($1 as uuid), 'Order', '5', 'cast', cast($2 as jsonb), $3::timestamptz)
  RETURNING id, $4 AS other;
EXECUTE written ('01890a5d-ac96-774b-bcce-b302099a8059', '{"c": 1}', '2021-11-01 10:00:00+00', 'x');
-- JSON's own null is what some ORMs make of a None: no headers; as a payload it is what it says, and no tombstone.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES ('Order', '6', 'json null', 'null', 'null') RETURNING payload IS NULL AS tombstone, headers IS NULL AS without;
-- The id that was never set, of languages without NULL: a new one, and not the same for all.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES ('00000000-0000-0000-0000-000000000000', 'Order', '7', 'nil'), ('00000000-0000-0000-0000-000000000000', 'Order', '7', 'nil')
  RETURNING substr(id::text, 15, 1) AS version;
SELECT outbox.enqueue('Order', '7', 'nil', '{}', id => '00000000-0000-0000-0000-000000000000') AS id \gset
SELECT count(*) AS found, count(*) FILTER (WHERE id <> '00000000-0000-0000-0000-000000000000') AS new FROM outbox.events WHERE id = :'id';
-- Bytes, as a parameter of their type and as text.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload_bytes, content_type) VALUES ('Order', '8', 'bytes', '\x00ff'::bytea, 'application/avro'), ('Order', '8', 'bytes', '\x000a', 'text/plain')
  RETURNING payload, payload_bytes;
SELECT n, aggregate_id, event_type, payload, headers, status, attempts, CASE WHEN created_utc < '2022-01-01' THEN created_utc END AS created_utc FROM pg_temp.events;
TRUNCATE outbox.events;

-- COPY, with what each client leaves empty.
COPY outbox.events (id, aggregate_type, aggregate_id, event_type, payload, status, attempts, created_at) FROM stdin (FORMAT csv, HEADER, NULL '');
id,aggregate_type,aggregate_id,event_type,payload,status,attempts,created_at
,Order,1,csv,"{""a"": ""x, y""}",,,
0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0001,Order,2,csv,,PENDING,0,2021-11-01T10:00:00Z
\.
COPY outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers) FROM stdin;
\N	Order	3	text	{"a": "line\\nbreak"}	\N
\.
SELECT n, aggregate_id, event_type, payload, status, attempts FROM pg_temp.events;
TRUNCATE outbox.events;

-- What PostgreSQL itself refuses before any trigger runs: a text or varchar parameter for jsonb, uuid or a time, in whatever table ...
PREPARE strings (varchar, text) AS INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'strings', $1);
\echo :LAST_ERROR_SQLSTATE
PREPARE strings (varchar, text) AS INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES ($2, 'Order', '1', 'strings');
\echo :LAST_ERROR_SQLSTATE
-- ... until a superuser lets assignments do it (docs/enqueue.md).
CREATE CAST (text AS jsonb) WITH INOUT AS ASSIGNMENT;
CREATE CAST (varchar AS jsonb) WITH INOUT AS ASSIGNMENT;
CREATE CAST (text AS uuid) WITH INOUT AS ASSIGNMENT;
CREATE CAST (varchar AS uuid) WITH INOUT AS ASSIGNMENT;
CREATE CAST (text AS timestamptz) WITH INOUT AS ASSIGNMENT;
CREATE CAST (varchar AS timestamptz) WITH INOUT AS ASSIGNMENT;
PREPARE strings (varchar, varchar, varchar, text, text, text) AS
  INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, available_at) VALUES ($1, 'Order', '1', 'strings', $2, $4, $3, $6) RETURNING id, $5 AS other;
EXECUTE strings ('0b7c9a52-7c3e-4a36-9e0e-5a1f0d6f0002', '{"a": 1}', '2021-11-01 10:00:00', '{"h": "1"}', 'x', '2100-01-01T00:00:00Z');
\set VERBOSITY terse
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '2', 'no json', '{"a"'::text);
\set VERBOSITY default
SELECT n, aggregate_id, event_type, payload, headers, created_utc FROM pg_temp.events;
DROP CAST (text AS jsonb);
DROP CAST (varchar AS jsonb);
DROP CAST (text AS uuid);
DROP CAST (varchar AS uuid);
DROP CAST (text AS timestamptz);
DROP CAST (varchar AS timestamptz);
-- A status is one of three words, in capitals: what else an enum says has no partition.
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, status) VALUES ('Order', '1', 'x', 'pending');
\echo :LAST_ERROR_SQLSTATE

DEALLOCATE ALL;
DROP TYPE regress_status, regress_kind;
DROP DOMAIN regress_name;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
