-- Run once, in $POSTGRES_DB, when the volume is new: the extension, two sinks, a table of orders, and the roles that use them. Passwords and secret are
-- those of a machine to try things on: change them with ALTER ROLE and ALTER USER MAPPING.
CREATE EXTENSION outbox;

CREATE SERVER main FOREIGN DATA WRAPPER outbox_kafka
  OPTIONS (bootstrap_servers 'kafka:9092');

BEGIN; -- in one transaction, so that nothing goes out unsigned
CREATE SERVER crm FOREIGN DATA WRAPPER outbox_webhook
  OPTIONS (url 'http://receiver:8080/hooks', allow_http 'true', allow_networks '10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16');
CREATE USER MAPPING FOR PUBLIC SERVER crm
  OPTIONS (secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
COMMIT;

CREATE ROLE app LOGIN PASSWORD 'app';          -- may enqueue, and no more
GRANT USAGE ON SCHEMA outbox TO app;
GRANT INSERT ON outbox.events TO app;
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, total numeric NOT NULL);
GRANT SELECT, INSERT ON orders TO app;         -- what the service writer does

CREATE ROLE operator LOGIN PASSWORD 'operator';  -- who uses the console: sees no payload
GRANT pg_monitor TO operator;
GRANT USAGE ON SCHEMA outbox TO operator;
GRANT EXECUTE ON FUNCTION outbox.pause, outbox.resume, outbox.redrive, outbox.story, outbox.probe TO operator;
GRANT USAGE ON FOREIGN SERVER main, crm TO operator;
GRANT SELECT (id, sink, aggregate_type, aggregate_id, event_type, partition_key, created_at, available_at, attempts, status, last_error,
              sent_at, last_attempt_at, position, blocked_by, overtaken_by, redrive_late) ON outbox.events TO operator;

CREATE ROLE metrics LOGIN PASSWORD 'metrics';  -- the exporter
GRANT pg_monitor TO metrics;                   -- to look, and not to enqueue

CREATE ROLE receiver LOGIN PASSWORD 'receiver';
CREATE DATABASE receiver OWNER receiver;       -- where the receiver remembers what it has processed
