-- A Kafka sink's options for TLS and authentication: who may set them, where, and what fits together.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS outbox;
RESET client_min_messages;
CREATE ROLE regress_outbox_owner;
GRANT USAGE ON FOREIGN DATA WRAPPER outbox_kafka TO regress_outbox_owner;
CREATE FUNCTION pg_temp.attempt(options text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE SERVER regress_s FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers ''localhost:9092'', %s)', options);
  DROP SERVER regress_s;
  RETURN 'taken';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
GRANT ALL ON FUNCTION pg_temp.attempt(text) TO regress_outbox_owner;

-- Files, commands, code and addresses that the server would use on the owner's behalf
SET ROLE regress_outbox_owner;
SELECT option, pg_temp.attempt(option || ' ''x''') FROM unnest(ARRAY[
  'ssl_ca_location', 'ssl_key_location', 'ssl_certificate_location', 'ssl_crl_location', 'ssl_keystore_location',
  'ssl_ca_certificate_stores', 'ssl_engine_location', 'ssl_engine_id', 'ssl_providers', 'plugin_library_paths',
  'sasl_kerberos_kinit_cmd', 'sasl_kerberos_keytab', 'sasl_kerberos_principal', 'sasl_kerberos_service_name',
  'sasl_oauthbearer_token_endpoint_url']) AS option;
SELECT pg_temp.attempt($$security_protocol 'sasl_ssl', sasl_mechanism 'GSSAPI'$$);
SELECT pg_temp.attempt($$security_protocol 'sasl_ssl', sasl_mechanism 'PLAIN'$$);
RESET ROLE;

-- A superuser's option stays a superuser's; the owner may drop it
SET ROLE regress_outbox_owner;
CREATE SERVER regress_k FOREIGN DATA WRAPPER outbox_kafka OPTIONS (bootstrap_servers 'a', security_protocol 'ssl');
RESET ROLE;
ALTER SERVER regress_k OPTIONS (ADD ssl_ca_location '/etc/ssl/certs/ca-certificates.crt');
SET ROLE regress_outbox_owner;
ALTER SERVER regress_k OPTIONS (SET bootstrap_servers 'b');
ALTER SERVER regress_k OPTIONS (DROP ssl_ca_location, SET bootstrap_servers 'b');
RESET ROLE;

-- What cannot work together
SELECT pg_temp.attempt($$ssl_ca_pem 'x'$$);
SELECT pg_temp.attempt($$sasl_mechanism 'PLAIN'$$);
SELECT pg_temp.attempt($$security_protocol 'ssl', sasl_username 'outbox'$$);
SELECT pg_temp.attempt($$enable_ssl_certificate_verification 'true'$$);
SELECT pg_temp.attempt($$security_protocol 'sasl_ssl'$$);
SELECT pg_temp.attempt($$security_protocol 'sasl_ssl', sasl_mechanism 'SCRAM'$$);
SELECT pg_temp.attempt($$security_protocol 'tls'$$);

-- Secrets only in the user mapping, and none of them in an error
SELECT option, pg_temp.attempt(option || ' ''hunter2''') FROM unnest(ARRAY[
  'sasl_password', 'ssl_key_pem', 'ssl_keystore_password', 'sasl_oauthbearer_client_secret']) AS option;
CREATE USER MAPPING FOR PUBLIC SERVER regress_k OPTIONS (ssl_key_pem 'hunter2');
CREATE USER MAPPING FOR PUBLIC SERVER regress_k OPTIONS (ssl_key_password 'hunter2');
CREATE USER MAPPING FOR PUBLIC SERVER regress_k OPTIONS (ssl_certificate_pem 'hunter2');
CREATE USER MAPPING FOR PUBLIC SERVER regress_k OPTIONS (ssl_ca_location '/etc/passwd');
CREATE USER MAPPING FOR PUBLIC SERVER regress_k OPTIONS (sasl_username 'outbox', sasl_password 'hunter2');

DROP SERVER regress_k CASCADE;
REVOKE ALL ON FOREIGN DATA WRAPPER outbox_kafka FROM regress_outbox_owner;
DROP OWNED BY regress_outbox_owner;
DROP ROLE regress_outbox_owner;
