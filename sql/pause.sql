-- A sink that a person has stopped, or that has stopped for good: what the functions say. What the worker does: test/webhook.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
\set SHOW_CONTEXT never
BEGIN;

-- Which sink?
SAVEPOINT s;
SELECT outbox.pause(NULL);
ROLLBACK TO s;
SELECT outbox.resume(NULL);
ROLLBACK TO s;
SELECT outbox.pause('crm');
ROLLBACK TO s;
CREATE SERVER regress_crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://127.0.0.1/');
CREATE SERVER regress_main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
CREATE FOREIGN DATA WRAPPER regress_other;
CREATE SERVER regress_no_sink FOREIGN DATA WRAPPER regress_other;
SAVEPOINT s;
SELECT outbox.pause('regress_no_sink');
ROLLBACK TO s;
SELECT outbox.resume('nonsense');
ROLLBACK TO s;

-- Twice, and back twice; a sink of any kind
CREATE VIEW pg_temp.stopped AS SELECT sink, state, reason, stopped_by = session_user AS by_me, since = now() AS since_now FROM outbox.stopped_sinks ORDER BY sink;
SELECT outbox.pause('regress_main'), outbox.pause('regress_crm');
SELECT outbox.pause('regress_crm');
SELECT * FROM pg_temp.stopped;
SELECT name, state FROM outbox.sinks ORDER BY name;
SELECT status, regexp_replace(detail, 'since .* by .*:', 'since … by …:') AS detail, hint FROM outbox.doctor() WHERE "check" = 'sink regress_crm';
SELECT outbox.resume('regress_main');
SELECT outbox.resume('regress_main');

-- Disabled: by the worker, whose part is played here
CREATE FUNCTION pg_temp.disable() RETURNS text LANGUAGE sql AS $$ INSERT INTO outbox.stopped_sinks (sink, state, reason, error) VALUES ('regress_main', 'disabled', '410', '410 Gone') RETURNING state $$;
SELECT pg_temp.disable();
SELECT name, state FROM outbox.sinks ORDER BY name;
SELECT status, regexp_replace(detail, 'since [^,]*,', 'since …,') AS detail, hint FROM outbox.doctor() WHERE "check" = 'sink regress_main';
-- Disabled and then paused: that is a person's now
SELECT outbox.pause('regress_main');
SELECT * FROM pg_temp.stopped;
SELECT outbox.resume('regress_main');
SELECT outbox.resume('regress_crm');
SELECT * FROM pg_temp.stopped;

-- Where it was the endpoint's fault, what had failed is due at once; a mere pause keeps the times.
TRUNCATE outbox.events, outbox_internal.rescan_queue;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink, attempts, available_at) VALUES
  ('Order', 'failed', 'e', 'regress_main', 3, now() + interval '1 day'), ('Order', 'scheduled', 'e', 'regress_main', 0, now() + interval '1 day'),
  ('Order', 'other', 'e', 'regress_crm', 3, now() + interval '1 day');
SELECT outbox.pause('regress_main'), outbox.resume('regress_main');
SELECT aggregate_id, available_at - now() AS due_in, attempts FROM outbox.events ORDER BY position;
SELECT pg_temp.disable(), outbox.resume('regress_main');
SELECT aggregate_id, available_at - now() AS due_in, attempts FROM outbox.events ORDER BY position;
TRUNCATE outbox.events, outbox_internal.rescan_queue;

-- For those who were granted it, who need own no server and read no table; for nobody else.
CREATE ROLE regress_outbox_operator;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_operator;
SAVEPOINT s;
SET ROLE regress_outbox_operator;
SELECT outbox.pause('regress_crm');
ROLLBACK TO s;
SET ROLE regress_outbox_operator;
SELECT outbox.resume('regress_main');
ROLLBACK TO s;
GRANT EXECUTE ON FUNCTION outbox.pause(text), outbox.resume(text) TO regress_outbox_operator;
SET ROLE regress_outbox_operator;
SELECT outbox.pause('regress_crm'), outbox.pause('regress_main'), outbox.resume('regress_main');
RESET ROLE;
SELECT sink, state, stopped_by FROM outbox.stopped_sinks;

-- disable_after
SAVEPOINT s;
ALTER SERVER regress_crm OPTIONS (ADD disable_after '5 days');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD disable_after '5');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD disable_after '-1h');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD disable_after '366d');
ROLLBACK TO s;
ALTER SERVER regress_main OPTIONS (ADD disable_after '5d');
ROLLBACK TO s;
ALTER SERVER regress_crm OPTIONS (ADD disable_after '0');
ALTER SERVER regress_crm OPTIONS (SET disable_after '36h');
ROLLBACK;
