-- Options of sinks are checked when the DDL runs: each mistake says what it is, its SQLSTATE, and the next step.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
CREATE ROLE regress_outbox_dba;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka, outbox_webhook TO regress_outbox_dba;

-- Unknown option
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', agregates 'Order');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_server 'localhost:9092');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', compresion_type 'lz4');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', time_out '5s');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', ca_pem 'x');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', qwertyuiop '1');
\echo :LAST_ERROR_SQLSTATE
ALTER FOREIGN DATA WRAPPER outbox_kafka OPTIONS (ADD bootstrap_servers 'localhost:9092');
\echo :LAST_ERROR_SQLSTATE

-- Wrong type, wrong unit, out of range
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', ordered 'perhaps');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', max_attempts 'ten');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', max_attempts '0');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', retention '1 fortnight');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', retry 'sometimes');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', on_dead_letter 'stop');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', on_dead_letter 'block', ordered 'no');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', on_dead_leter 'block');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', events 'a.*,,b.*');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', format 'xml');
\echo :LAST_ERROR_SQLSTATE
-- librdkafka judges its own properties
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', linger_ms 'soon');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', compression_type 'zip');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', enable_idempotence 'false');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:not-a-port');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'hooks.invalid/outbox');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'http://hooks.invalid/outbox');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', timeout '15');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', concurrency '-1');
\echo :LAST_ERROR_SQLSTATE

-- A topic template with an unknown variable, one that does not end, and a topic that cannot be
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', topic 'events.${agregate_type}');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', topic 'events.${aggregate_type');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', topic 'my events');
\echo :LAST_ERROR_SQLSTATE

-- Missing: Kafka's bootstrap_servers; a webhook's url may come in the user mapping
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka;
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (topic 'events');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_w FOREIGN DATA WRAPPER outbox_webhook;

-- Secrets are for user mappings, options of the server are not; no error shows a secret
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', sasl_password 'hunter2');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_w OPTIONS (concurrency '3');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_w OPTIONS (secret 'whsec_hunter2!');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_w OPTIONS (secrett 'hunter2');
\echo :LAST_ERROR_SQLSTATE

-- The worker acts for no role: a mapping is for PUBLIC
CREATE USER MAPPING FOR CURRENT_USER SERVER regress_w OPTIONS (secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR regress_outbox_dba SERVER regress_w;
\echo :LAST_ERROR_SQLSTATE
-- and those of other wrappers are nobody's business
CREATE FOREIGN DATA WRAPPER outbox_regress_foreign;
CREATE SERVER regress_foreign FOREIGN DATA WRAPPER outbox_regress_foreign;
CREATE USER MAPPING FOR CURRENT_USER SERVER regress_foreign;
INSERT INTO outbox.events (aggregate_type, event_type, sink) VALUES ('Order', 'order.created', 'regress_foreign');
\echo :LAST_ERROR_SQLSTATE
DROP FOREIGN DATA WRAPPER outbox_regress_foreign CASCADE;

-- What reads the server's files or reaches into its network is for superusers
SET ROLE regress_outbox_dba;
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', ssl_ca_location '/etc/passwd');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', allow_networks '10.0.0.0/8');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', plugin_library_paths '/tmp/evil.so');
\echo :LAST_ERROR_SQLSTATE

-- Good ones, changed and dropped again; ALTER checks the whole
BEGIN;
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'localhost:9092', compression_type 'lz4', linger_ms '5',
  events 'order.*, customer.*', aggregates 'Order', ordered 'false', retry '15s*3, 5m*5', max_attempts '7', retention '30d', topic 'events.${aggregate_type}');
ALTER SERVER regress_s OPTIONS (SET linger_ms '10', DROP retention, ADD acks 'all');
ALTER SERVER regress_w OPTIONS (ADD url 'https://hooks.invalid/outbox', ADD timeout '20s', ADD on_dead_letter 'block');
CREATE USER MAPPING FOR PUBLIC SERVER regress_w OPTIONS (secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
SELECT srvname, srvoptions FROM pg_foreign_server WHERE srvname LIKE 'regress%' ORDER BY 1;
ALTER SERVER regress_s OPTIONS (DROP bootstrap_servers);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

DROP SERVER regress_w;
DROP OWNED BY regress_outbox_dba;
DROP ROLE regress_outbox_dba;
