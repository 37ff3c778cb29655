-- What a webhook's request may be: every malformed value is refused when the DDL runs, with the next step; and an event
-- that could never be sent is refused when it is enqueued.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;

-- Runs it, takes it back, and tells what came of it: SQLSTATE, message, DETAIL, HINT.
CREATE FUNCTION pg_temp.told(statements text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  message text; detail text; hint text; state text;
BEGIN
  EXECUTE statements;
  RAISE SQLSTATE 'TAKEN';
EXCEPTION WHEN SQLSTATE 'TAKEN' THEN
  RETURN 'taken';
WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, state = RETURNED_SQLSTATE;
  RETURN concat_ws(E'\n  ', state || ' ' || message, nullif(detail, ''), nullif(hint, ''));
END $$;
CREATE FUNCTION pg_temp.list(options text[]) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%I %L', options[n], options[n + 1]), ', ' ORDER BY n) FROM generate_series(1, cardinality(options), 2) n
$$;
CREATE FUNCTION pg_temp.make(VARIADIC options text[]) RETURNS text LANGUAGE sql AS $$
  SELECT pg_temp.told('CREATE SERVER regress_tried FOREIGN DATA WRAPPER outbox_webhook OPTIONS (' || pg_temp.list(options) || ')')
$$;
CREATE FUNCTION pg_temp.map(VARIADIC options text[]) RETURNS text LANGUAGE sql AS $$
  SELECT pg_temp.told('CREATE USER MAPPING FOR PUBLIC SERVER regress_w OPTIONS (' || pg_temp.list(options) || ')')
$$;
CREATE SERVER regress_w FOREIGN DATA WRAPPER outbox_webhook OPTIONS (events 'none');
\pset format unaligned
\pset tuples_only on

-- URLs
SELECT pg_temp.make('url', v) FROM unnest(ARRAY[
  '', 'hooks.invalid/outbox', 'https:/hooks.invalid', 'ftp://hooks.invalid/', 'file:///etc/passwd', 'https://', 'https://ho oks.invalid/',
  'https://[::1/', 'http://hooks.invalid/']) WITH ORDINALITY AS t(v, n) ORDER BY n;
SELECT pg_temp.make('url', v) FROM unnest(ARRAY[
  'https://hooks.invalid:99999/', 'https://hooks.invalid:0/', 'https://me:hunter2@hooks.invalid/', 'https://hooks.invalid/#top',
  'https://hooks.invalid/a b', E'https://hooks.invalid/\r\nX: 1', 'https://hooks.invalid/café', 'https://hooks.invalid/100%', 'https://hooks.invalid/a/../b',
  'https://hooks.invalid/{aggregate_id}']) WITH ORDINALITY AS t(v, n) ORDER BY n;
SELECT pg_temp.make('url', v) FROM unnest(ARRAY[
  'https://${header.host}/', 'https://hooks.invalid:${header.port}/', '${header.scheme}://hooks.invalid/', 'https://hooks.invalid/${agregate_id}',
  'https://hooks.invalid/${aggregate_id', 'https://hooks.invalid/' || repeat('x', 8000)]) WITH ORDINALITY AS t(v, n) ORDER BY n;
SELECT pg_temp.make('url', v) FROM unnest(ARRAY[
  'https://hooks.invalid', 'HTTPS://hooks.invalid:8443/orders/${aggregate_id}?type=${event_type}&a[]=%20']) WITH ORDINALITY AS t(v, n) ORDER BY n;

-- Method, format, prefix, Idempotency-Key, source
SELECT pg_temp.make('method', 'GET');
SELECT pg_temp.make('method', 'PUT /x HTTP/1.1');
SELECT pg_temp.make('format', 'xml');
SELECT pg_temp.make('idempotency_key', 'id');
SELECT pg_temp.make('format', 'cloudevents', 'source', 'not a URI');
SELECT pg_temp.make('source', '/shop');

-- Headers
SELECT pg_temp.make('headers', v) FROM unnest(ARRAY[
  'X-Tenant: 42', '[]', '{"X-Tenant": {}}', '{"X-Tenant": null}', '{"X Tenant": "42"}', '{"": "42"}', '{"X-Tenant": "a\r\nEvil: b"}', '{"X-Tenant": "a\u0001"}',
  '{"X-Tenant": "1", "x-tenant": "2"}', '{"Content-Length": "1"}', '{"webhook-id": "1"}', '{"Svix-Signature": "v1,"}', '{"Authorization": "Bearer x"}',
  '{"X-Tenant": "${header.tenant"}', '{"X-Tenant": "${tenant}"}', '{"Content-Type": "${content_type}"}']) WITH ORDINALITY AS t(v, n) ORDER BY n;
SELECT pg_temp.make('headers', '{"idempotency-key": "1"}', 'idempotency_key', 'true');
SELECT pg_temp.make('headers', '{"ce-tenant": "1"}', 'format', 'cloudevents');
SELECT pg_temp.make('headers', '{"Content-Type": "text/plain"}', 'format', 'cloudevents');
SELECT pg_temp.make('headers', '{"Content-Type": "application/merge-patch+json", "X-Tenant": "${header.tenant}", "X-N": 1}');

-- Body templates
SELECT pg_temp.make('body', v) FROM unnest(ARRAY[
  ' ', '{', '{"id": ${id} "type": 1}', '{"order": order-${aggregate_id}}', '{${id}: 1}', 'id=${id}&type=${event_type}', '{"data": ${paylod}}', '{"data": ${payload}',
  '{"data": "${payload']) WITH ORDINALITY AS t(v, n) ORDER BY n;
SELECT pg_temp.make('body', '{}', 'format', 'cloudevents');
SELECT pg_temp.make('body', v) FROM unnest(ARRAY[
  '', '${payload}', '{"id": ${id}, "ref": "order-${aggregate_id}", "payload": ${payload}, "headers": ${headers}}']) WITH ORDINALITY AS t(v, n) ORDER BY n;

-- Secrets: what is wrong is said, and the value never shown
SELECT pg_temp.map(k, v) FROM (VALUES
  (1, 'secret', ''), (2, 'secret', 'whsec_hunter2!'), (3, 'secret', 'whsec_aHVudGVyMg=='), (4, 'secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_aHVudGVyMg=='), (5, 'token', 'Bearer hunter2'),
  (6, 'user', 'hunter:2'), (7, 'password', E'hunter2\n'), (8, 'ssl_certificate_pem', 'hunter2'), (9, 'ssl_key_pem', 'hunter2'), (10, 'headers', 'hunter2'),
  (11, 'headers', '{"X-Key": "hunter2\n"}'), (12, 'url', 'https://hooks.invalid/hunter2#'), (13, 'url', 'https://hunter2@hooks.invalid/')) AS t(n, k, v) ORDER BY n;
SELECT pg_temp.map('secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_' || repeat('A', 43) || '=, whsec_' || repeat('B', 43) || '=');
SELECT pg_temp.map('secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
SELECT pg_temp.map('password', 'hunter2');
SELECT pg_temp.map('user', 'me', 'token', 'hunter2');
SELECT pg_temp.map('user', 'me', 'headers', '{"Authorization": "Token hunter2"}');

-- Certificates for mutual TLS: of throw-away keys
\set certificate `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /dev/null -subj /CN=regress 2>/dev/null`
\set key `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 2>/dev/null`
\set locked `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -aes256 -pass pass:regress 2>/dev/null`
SELECT pg_temp.map('ssl_certificate_pem', :'certificate');
SELECT pg_temp.map('ssl_key_pem', :'key');
SELECT pg_temp.map('ssl_certificate_pem', :'certificate', 'ssl_key_pem', :'key');
SELECT pg_temp.map('ssl_certificate_pem', :'certificate', 'ssl_key_pem', :'locked');
SELECT pg_temp.make('ssl_key_pem', 'hunter2');

-- Good ones
SELECT pg_temp.map('secret', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_' || repeat('A', 43) || '=', 'user', 'me', 'password', 'hunter2');
SELECT pg_temp.map('headers', '{"Authorization": "Token hunter2", "X-Key": "${hunter2}"}', 'url', 'https://hooks.invalid/hunter2/${aggregate_id}');

-- Events that could never be sent, told when they are enqueued. An aggregate_id that names no place, a dedup_key that no header
-- has, a control character, and no header "tenant"
CREATE FUNCTION pg_temp.enqueue(VARIADIC options text[]) RETURNS text LANGUAGE sql AS $$
  SELECT pg_temp.told('CREATE SERVER regress_tried FOREIGN DATA WRAPPER outbox_webhook OPTIONS (events ''tried*'', ' || pg_temp.list(options) || ');' ||
    $event$INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers, dedup_key)
             VALUES ('Order', '..', E'tried\x02', '{}', '{"ce_Zone": "1"}', 'Zürich')$event$)
$$;
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/orders/${aggregate_id}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/orders?id=${aggregate_id}&type=${event_type}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/${header.tenant}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'idempotency_key', 'true');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'headers', '{"X-Type": "${event_type}"}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'headers', '{"X-Tenant": "${header.tenant}", "X-Id": "${aggregate_id}"}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'body', '{"tenant": ${header.tenant}, "type": ${event_type}}');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'format', 'cloudevents');
SELECT pg_temp.enqueue('url', 'https://hooks.invalid/', 'format', 'cloudevents-structured');
-- A URL that stands in the user mapping is not known here
SELECT pg_temp.enqueue('format', 'raw');

\pset tuples_only off
\pset format aligned
DROP SERVER regress_w;
