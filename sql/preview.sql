-- What would be sent for an event, part by part, without sending it. (No worker runs here.)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
\pset null '(null)'
BEGIN;
CREATE SERVER regress_main FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', aggregates 'Order', tombstone_on_empty_payload 'true');
CREATE SERVER regress_crm FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://crm.example/hooks', headers '{"X-Tenant": "42", "X-Empty": " "}', forward_headers '*', events 'order.*');
CREATE USER MAPPING FOR PUBLIC SERVER regress_crm OPTIONS (secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', token 'hush');
-- Without what belongs to the moment.
CREATE FUNCTION pg_temp.stable(value text) RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(regexp_replace(value, 'v1,[^* ]{43}=', 'v1,<signature>', 'g'), '(^|webhook-timestamp: )1[7-9]\d{8}\y', '\1<now>') $$;
CREATE FUNCTION pg_temp.uuid(n integer) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at) VALUES
  (pg_temp.uuid(1), 'Order', '42', 'order.paid', '{"total": 99.50, "of": "Zoë"}', '{"traceparent": "00-ab-cd-01", "n": 1, "webhook-id": "forged", "x-tenant": "forged"}', '2026-01-01Z');

-- To all its sinks; of the user mapping what is no secret, to those who may read it.
SELECT sink, part, name, pg_temp.stable(value) AS value FROM outbox.preview(pg_temp.uuid(1));
SELECT sink, part, bytes FROM outbox.preview(pg_temp.uuid(1)) WHERE part <> 'header';
-- To one.
SELECT part, name, value FROM outbox.preview(pg_temp.uuid(1), 'regress_main');
-- Each header in order, byte by byte.
SELECT string_agg(name || '=' || convert_from(bytes, 'UTF8'), ', ') FROM outbox.preview(pg_temp.uuid(1), 'regress_main') WHERE part = 'header';

-- Whatever has become of it.
UPDATE outbox.events SET status = 'FAILED' WHERE sink = 'regress_main';
SELECT outbox.run_maintenance() >= 0 AS has_days;
UPDATE outbox.events SET status = 'SENT' WHERE sink = 'regress_crm';
SELECT sink, count(*) AS parts FROM outbox.preview(pg_temp.uuid(1)) GROUP BY sink ORDER BY sink;
-- Sent, and enqueued again: what is the next to be sent.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, created_at, sink) VALUES (pg_temp.uuid(1), 'Order', '42', 'order.paid', '"again"', '2026-01-02Z', 'regress_crm');
SELECT sink, part, value FROM outbox.preview(pg_temp.uuid(1)) WHERE part IN ('value', 'body');

-- No key, a tombstone, an empty value, bytes that are no text.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, sink) VALUES
  (pg_temp.uuid(2), 'Order', NULL, 'order.paid', NULL, NULL, NULL, 'regress_main'),
  (pg_temp.uuid(3), 'Order', '', 'order.paid', NULL, '', NULL, 'regress_main'),
  (pg_temp.uuid(4), 'Order', 'x', 'order.paid', NULL, '\x00ff', 'application/avro', 'regress_main');
SELECT e.id, p.part, p.value, p.bytes FROM outbox.events AS e, outbox.preview(e.id) AS p
WHERE e.id IN (pg_temp.uuid(2), pg_temp.uuid(3), pg_temp.uuid(4)) AND p.part IN ('key', 'value') ORDER BY e.id, p.part;

-- Another sink, to try it before it gets anything; one whose url is a secret.
CREATE SERVER regress_new FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers '127.0.0.1:1', aggregates 'None', topic 'new.${event_type}');
CREATE SERVER regress_token FOREIGN DATA WRAPPER outbox_webhook OPTIONS (events 'none');
CREATE USER MAPPING FOR PUBLIC SERVER regress_token OPTIONS (url 'https://crm.example/hush');
SELECT part, value FROM outbox.preview(pg_temp.uuid(2), 'regress_new') WHERE part IN ('topic', 'partition');
SELECT sink, part, name, pg_temp.stable(value) AS value, bytes FROM outbox.preview(pg_temp.uuid(4), 'regress_token') WHERE part <> 'header' OR name = 'Host';
SELECT count(*) AS secrets FROM outbox.preview(pg_temp.uuid(1)) AS p WHERE p::text ~ 'hush|MfKQ9';

-- Unrouted: those that would take it.
INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES (pg_temp.uuid(5), 'Customer', '7', 'customer.moved');
SAVEPOINT s;
SELECT * FROM outbox.preview(pg_temp.uuid(5));
ROLLBACK TO s;
ALTER SERVER regress_new OPTIONS (SET aggregates 'Cust*');
SELECT sink, part, value FROM outbox.preview(pg_temp.uuid(5)) WHERE part IN ('topic', 'key');

-- What cannot be shown.
SAVEPOINT s;
SELECT * FROM outbox.preview(NULL);
ROLLBACK TO s;
SELECT * FROM outbox.preview(pg_temp.uuid(99));
ROLLBACK TO s;
SELECT * FROM outbox.preview(pg_temp.uuid(1), 'regress_mian');
ROLLBACK TO s;
SELECT * FROM outbox.preview(pg_temp.uuid(1), '');
ROLLBACK TO s;
DROP SERVER regress_crm CASCADE;
SELECT * FROM outbox.preview(pg_temp.uuid(1));
ROLLBACK TO s;
-- What the sink would refuse, as when it is enqueued.
UPDATE outbox.events SET aggregate_type = 'no topic', sink = NULL WHERE id = pg_temp.uuid(5);
SELECT * FROM outbox.preview(pg_temp.uuid(5), 'regress_main');
ROLLBACK TO s;
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, sink) VALUES ('no topic', '7', 'order.paid', 'regress_main');
ROLLBACK TO s;
UPDATE outbox.events SET payload = to_jsonb(repeat('x', 2000)) WHERE id = pg_temp.uuid(1);
ALTER SERVER regress_main OPTIONS (ADD message_max_bytes '1000');
SELECT * FROM outbox.preview(pg_temp.uuid(1), 'regress_main');
ROLLBACK TO s;

-- For those who were granted it, who need no right on table or sink; for nobody else.
CREATE ROLE regress_outbox_reader;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_reader;
SAVEPOINT s;
SET ROLE regress_outbox_reader;
SELECT * FROM outbox.preview('00000000-0000-0000-0000-000000000001');
ROLLBACK TO s;
GRANT EXECUTE ON FUNCTION outbox.preview(uuid, text) TO regress_outbox_reader;
SET ROLE regress_outbox_reader;
SELECT sink, part, value FROM outbox.preview('00000000-0000-0000-0000-000000000001', 'regress_main') WHERE part = 'topic';
SELECT current_user;
RESET ROLE;

-- A signature is shown to whom pg_user_mappings shows PUBLIC's options: superusers, the server's owner and its members. Secrets to nobody.
CREATE ROLE regress_outbox_owner;
CREATE ROLE regress_outbox_member IN ROLE regress_outbox_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO regress_outbox_owner;
ALTER SERVER regress_crm OWNER TO regress_outbox_owner;
GRANT USAGE ON FOREIGN SERVER regress_crm TO regress_outbox_reader;
GRANT USAGE ON SCHEMA outbox TO regress_outbox_owner;
GRANT EXECUTE ON FUNCTION outbox.preview(uuid, text) TO regress_outbox_owner;
CREATE FUNCTION pg_temp.seen(OUT role name, OUT may_read boolean, OUT signature boolean, OUT authorization_ text, OUT secrets boolean) LANGUAGE sql AS $$
  SELECT nullif(current_user, session_user), (SELECT umoptions IS NOT NULL FROM pg_user_mappings WHERE srvname = 'regress_crm'), bool_or(name = 'webhook-signature' AND bytes IS NOT NULL),
         max(value) FILTER (WHERE name = 'Authorization'), bool_or(p::text ~ 'hush|MfKQ9')
  FROM outbox.preview(pg_temp.uuid(1), 'regress_crm') AS p $$;
SELECT * FROM pg_temp.seen();
SET ROLE regress_outbox_owner;
SELECT * FROM pg_temp.seen();
SET ROLE regress_outbox_member;
SELECT * FROM pg_temp.seen();
SET ROLE regress_outbox_reader;
SELECT * FROM pg_temp.seen();
RESET ROLE;

-- It only looks.
SELECT provolatile, proparallel, prosecdef, proconfig FROM pg_proc WHERE oid = 'outbox.preview'::regproc;
SET TRANSACTION READ ONLY;
SELECT sink, part, value FROM outbox.preview(pg_temp.uuid(1), 'regress_new') WHERE part = 'topic';
ROLLBACK;
