-- What is sent to Kafka: options that cannot work are refused when the DDL runs, events that cannot be sent when they are enqueued.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
\set kafka 'CREATE SERVER regress_k FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''127.0.0.1:1'', '

-- Values that no option has
:kafka format 'cloud_events');
\echo :LAST_ERROR_SQLSTATE
:kafka key_format 'base32');
\echo :LAST_ERROR_SQLSTATE
:kafka value_format 'json');
\echo :LAST_ERROR_SQLSTATE
:kafka timestamp 'sent_at');
\echo :LAST_ERROR_SQLSTATE
:kafka tombstone_on_empty_payload 'perhaps');
\echo :LAST_ERROR_SQLSTATE
:kafka partition 'first');
\echo :LAST_ERROR_SQLSTATE
:kafka partition '2147483648');
\echo :LAST_ERROR_SQLSTATE
:kafka format 'cloudevents', source 'my shop');
\echo :LAST_ERROR_SQLSTATE
:kafka format 'cloudevents', source 'https://shop.example/%zz');
\echo :LAST_ERROR_SQLSTATE
:kafka topic 'outbox.event.{aggregate_type}');
\echo :LAST_ERROR_SQLSTATE
:kafka topic 'outbox.event.${routedByValue}');
\echo :LAST_ERROR_SQLSTATE
SELECT repeat('x', 249) || '${aggregate_type}' AS long \gset
:kafka topic :'long');
\echo :LAST_ERROR_SQLSTATE

-- Variables
:kafka topic '${agregate_type}');
\echo :LAST_ERROR_SQLSTATE
:kafka key '${tenant}');
\echo :LAST_ERROR_SQLSTATE
:kafka partition '${header.');
\echo :LAST_ERROR_SQLSTATE

-- A column's name where a template is meant; topics of Kafka's own
:kafka key 'aggregate_id');
\echo :LAST_ERROR_SQLSTATE
:kafka key 'header.tenant');
\echo :LAST_ERROR_SQLSTATE
:kafka topic '__consumer_offsets');
\echo :LAST_ERROR_SQLSTATE

-- Placements
:kafka additional_placement 'event_type:header:ce_Type', format 'cloudevents');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_typ:header');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:body');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:header:a, seq:header:a');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:header:id');
\echo :LAST_ERROR_SQLSTATE

-- Options that contradict each other
:kafka format 'cloudevents', value_format 'json_compact');
\echo :LAST_ERROR_SQLSTATE
:kafka source '/shop');
\echo :LAST_ERROR_SQLSTATE
:kafka null_behavior 'ignore');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:envelope');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:envelope', value_format 'connect_json');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'event_type:envelope', format 'raw');
\echo :LAST_ERROR_SQLSTATE
:kafka additional_placement 'seq:partition', partition '1');
\echo :LAST_ERROR_SQLSTATE

-- Good ones
BEGIN;
:kafka topic 'events.${event_type}', key '${aggregate_type}.${aggregate_id}', partition '${header.shard}', timestamp 'now', key_format 'json',
  value_format 'json_compact', null_behavior 'ignore', additional_placement 'type:header:eventType, header.tenant:envelope', tombstone_on_empty_payload 'false');
ALTER SERVER regress_k OPTIONS (DROP value_format);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
:kafka format 'cloudevents-structured', source 'https://${database}.example/${aggregate_type}');
ALTER SERVER regress_k OPTIONS (SET format 'raw');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Events that have no topic, no partition, no key of that form
:kafka topic 'x.${header.tenant}', partition '${header.shard}', key '${header.key}', key_format 'base64');
SELECT outbox.enqueue('Order', '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a b", "shard": 1}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": {"base64": "AP8="}, "shard": 1}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a", "shard": {"base64": "AP8="}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a", "shard": -1}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a", "shard": 1, "key": "no base64"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"tenant": "a", "shard": 1, "key": "AQID"}') IS NOT NULL AS taken;
DROP SERVER regress_k;

:kafka topic '${header.topic}');
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"topic": "__transaction_state"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"topic": "trailing "}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"topic": "__of_ours"}') IS NOT NULL AS taken;
DROP SERVER regress_k;

-- A sink that takes bytes, and one whose attributes are text
:kafka value_format 'bytes', tombstone_on_empty_payload 'true');
SELECT outbox.enqueue('Order', '1', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue_bytes('Order', '1', 'order.created', '\x00', 'application/avro') IS NOT NULL AS taken, outbox.enqueue('Order', '1', 'order.deleted', NULL) IS NOT NULL AS tombstone;
ALTER SERVER regress_k OPTIONS (DROP tombstone_on_empty_payload);
SELECT outbox.enqueue('Order', '1', 'order.deleted', NULL);
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'order.deleted', NULL);
-- The one that is in the table stays what it is, and can be changed
UPDATE outbox.events SET headers = '{"tenant": "acme"}' WHERE event_type = 'order.deleted' RETURNING status, payload IS NULL AS tombstone;
SELECT p.part, p.name, p.value FROM outbox.events AS e, outbox.preview(e.id, e.sink) AS p WHERE e.event_type = 'order.deleted' AND (p.name = 'tenant' OR p.part = 'value');
DROP SERVER regress_k;
:kafka format 'cloudevents');
SELECT outbox.enqueue('Order', E'1\t2', 'order.created', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"ce_Tenant": "a"}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"ce_type": "a"}');
\echo :LAST_ERROR_SQLSTATE
DROP SERVER regress_k;

-- Headers that are bytes
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"a": {"base64": "AQI"}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"a": {"base64": "AQ ID"}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"a": {"base64": 1}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"a": {"base64": "AQID", "more": "x"}}');
\echo :LAST_ERROR_SQLSTATE
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"": {"base64": "AQID"}}');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO outbox.events (aggregate_type, event_type, headers)
  VALUES ('Order', 'order.created', '{"__value_schema_id": {"base64": "AQ0K/w=="}, "empty": {"base64": ""}, "n": 1}') RETURNING headers;
:kafka topic 't');
CREATE SERVER regress_w FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/outbox', forward_headers 'text');
SELECT outbox.enqueue('Order', '1', 'order.created', '{}', '{"__value_schema_id": {"base64": "AQ0K/w=="}, "text": "x"}', id => '017f22e2-79b0-7cc3-98c4-dc0c0c07398f');
SELECT sink, name, value, bytes FROM outbox.preview('017f22e2-79b0-7cc3-98c4-dc0c0c07398f') WHERE part = 'header' AND name IN ('__value_schema_id', 'text') ORDER BY 1, 2;

SET client_min_messages = warning;
TRUNCATE outbox.events, outbox_internal.dedup, outbox_internal.rescan_queue;
DROP SERVER regress_k;
DROP SERVER regress_w;
