-- How fast an endpoint gets its requests: each malformed value is refused with the next step.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;

CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '100');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '0/s');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '0.5/s');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '-1/s');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '100/fortnight');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '1000000/s');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', ratelimit '100/s');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', concurrency '0');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', concurrency '1001');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', concurrency 'many');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', timeout '6min');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', timeout '15');
CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', timeout '-1s');

CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', rate_limit '600/min', concurrency '8', timeout '30s');
ALTER SERVER regress_s OPTIONS (SET rate_limit '1/10s');
ALTER SERVER regress_s OPTIONS (SET rate_limit '1000/h');
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'regress_s';
DROP SERVER regress_s;
