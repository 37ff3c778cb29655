-- Which addresses a webhook may reach, and through which proxy: what is refused when the DDL runs.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
CREATE SERVER regress_n FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/');

-- Networks
ALTER SERVER regress_n OPTIONS (ADD allow_networks '');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.0/8,');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.0/8; 192.168.0.0/16');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.0/33');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.0/-8');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.0/255.0.0.0');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0/8');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '010.0.0.0/8');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.0.0.1-10.0.0.9');
ALTER SERVER regress_n OPTIONS (ADD allow_networks 'fd00::/129');
ALTER SERVER regress_n OPTIONS (ADD allow_networks 'fe80::1%eth0');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '[::1]');
ALTER SERVER regress_n OPTIONS (ADD allow_networks 'localhost');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '10.1.2.3/8');
ALTER SERVER regress_n OPTIONS (ADD allow_networks 'fd00::1/64');
ALTER SERVER regress_n OPTIONS (ADD allow_networks '::ffff:10.0.0.0/104');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (ADD allow_networks ' 10.0.0.0/8 ,127.0.0.1,fd00::/8, ::1');

-- The setting for all webhooks
ALTER SYSTEM SET outbox.allow_networks = '10.0.0.0/8, fd00::/129';
\echo :LAST_ERROR_SQLSTATE
ALTER SYSTEM SET outbox.allow_networks = '10.1.0.0/8';

-- Plain http
ALTER SERVER regress_n OPTIONS (SET url 'http://hooks.invalid/');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (ADD allow_http 'perhaps');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (SET url 'http://hooks.invalid/', ADD allow_http 'on');
ALTER SERVER regress_n OPTIONS (DROP allow_http);
ALTER SERVER regress_n OPTIONS (SET url 'https://hooks.invalid/', DROP allow_http);

-- No other protocol, whatever stands before the host
ALTER SERVER regress_n OPTIONS (SET url 'file:///etc/passwd');
ALTER SERVER regress_n OPTIONS (SET url 'gopher://hooks.invalid/');
ALTER SERVER regress_n OPTIONS (SET url 'unix:///var/run/docker.sock');
ALTER SERVER regress_n OPTIONS (SET url 'https+unix://%2Fvar%2Frun%2Fdocker.sock/');
\echo :LAST_ERROR_SQLSTATE

-- Proxies
ALTER SERVER regress_n OPTIONS (ADD proxy '');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (ADD proxy 'proxy.invalid:3128');
ALTER SERVER regress_n OPTIONS (ADD proxy 'socks5://proxy.invalid:1080');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://proxy.invalid');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://proxy.invalid:99999');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://proxy.invalid:3128/path');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://proxy.invalid:3128?query');
ALTER SERVER regress_n OPTIONS (ADD proxy 'http://bob:hunter2@proxy.invalid:3128');
ALTER SERVER regress_n OPTIONS (ADD proxy 'https://proxy.invalid:3128/');
ALTER SERVER regress_n OPTIONS (ADD proxy_password 'hunter2');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_user 'bob:hunter2');
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_user '');
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_user 'bob', proxy_password '');
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_user 'bob', proxy_password E'hunter2\r\nX: y');
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_password 'hunter2');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy 'http://proxy.invalid:3128');
\echo :LAST_ERROR_SQLSTATE
CREATE USER MAPPING FOR PUBLIC SERVER regress_n OPTIONS (proxy_user 'bob', proxy_password 'hunter2');

-- Superusers alone set what leads inside; whoever owns the server may only take it away
CREATE ROLE regress_outbox_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_webhook TO regress_outbox_owner;
ALTER SERVER regress_n OWNER TO regress_outbox_owner;
SET ROLE regress_outbox_owner;
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'http://hooks.invalid/', allow_http 'true');
\echo :LAST_ERROR_SQLSTATE
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', allow_networks '0.0.0.0/0');
CREATE SERVER regress_m FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.invalid/', proxy 'http://proxy.invalid:3128');
ALTER SERVER regress_n OPTIONS (SET url 'https://10.0.0.5:9200/');
\echo :LAST_ERROR_SQLSTATE
ALTER SERVER regress_n OPTIONS (SET url 'https://example.invalid/', DROP allow_networks, DROP proxy);
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 'regress_n';
RESET ROLE;

DROP SERVER regress_n CASCADE;
DROP OWNED BY regress_outbox_owner;
DROP ROLE regress_outbox_owner;
