-- The settings, their units and defaults, and what they refuse.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
LOAD 'outbox';

SELECT name, boot_val, unit, min_val, max_val, context FROM pg_settings WHERE name LIKE 'outbox.%' ORDER BY name;

SET outbox.retention = '1d';
SHOW outbox.retention;
SET outbox.retry = '1s..10min';
SET outbox.retry = '15s*3, 5m*5';
SET outbox.retry = '';
SET outbox.retry = 'now and then';
\echo :LAST_ERROR_SQLSTATE
SET outbox.retention = '11 parsecs';
\echo :LAST_ERROR_SQLSTATE
SET outbox.max_attempts = -1;
\echo :LAST_ERROR_SQLSTATE
SET outbox.workers = 2;
\echo :LAST_ERROR_SQLSTATE
SET outbox.no_such_setting = 1;
\echo :LAST_ERROR_SQLSTATE
