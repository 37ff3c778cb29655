-- A sink is a foreign server of one of these wrappers. They have no handler: the worker delivers to them, and no
-- query reads through them. Each kind of sink has a library of its own, with its validator, <kind>_validator; that of
-- the kind manual, whose events no worker sends, is in the library of outbox itself (manual/).

CREATE OR REPLACE FUNCTION outbox_internal.kafka_validator(options text[], catalog oid) RETURNS void
LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp
AS '$libdir/outbox_kafka', 'outbox_kind_validator';
COMMENT ON FUNCTION outbox_internal.kafka_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_kafka when the DDL runs.';

CREATE OR REPLACE FUNCTION outbox_internal.webhook_validator(options text[], catalog oid) RETURNS void
LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp
AS '$libdir/outbox_webhook', 'outbox_kind_validator';
COMMENT ON FUNCTION outbox_internal.webhook_validator(text[], oid) IS
  'Checks the options of servers and user mappings of outbox_webhook when the DDL runs.';

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_foreign_data_wrapper WHERE fdwname = 'outbox_kafka') THEN
    CREATE FOREIGN DATA WRAPPER outbox_kafka NO HANDLER VALIDATOR outbox_internal.kafka_validator;
  END IF;
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_foreign_data_wrapper WHERE fdwname = 'outbox_webhook') THEN
    CREATE FOREIGN DATA WRAPPER outbox_webhook NO HANDLER VALIDATOR outbox_internal.webhook_validator;
  END IF;
END
$$;
COMMENT ON FOREIGN DATA WRAPPER outbox_kafka IS
  'Sinks that are Apache Kafka clusters: CREATE SERVER name FOREIGN DATA WRAPPER outbox_kafka OPTIONS '
  '(bootstrap_servers ''host:9092''). USAGE on this wrapper lets a role make sinks that receive every event.';

COMMENT ON FOREIGN DATA WRAPPER outbox_webhook IS
  'Sinks that are HTTP endpoints: CREATE SERVER name FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url '
  '''https://example.com/hooks''), and CREATE USER MAPPING FOR PUBLIC with the secret. USAGE on this wrapper lets a '
  'role make sinks that receive every event.';

CREATE OR REPLACE VIEW outbox_internal.wrappers AS
  SELECT w.oid, w.fdwname AS name, pg_catalog.substr(w.fdwname, 8) AS kind
  FROM pg_catalog.pg_foreign_data_wrapper AS w
  JOIN pg_catalog.pg_proc AS v ON v.oid = w.fdwvalidator AND v.prosrc IN ('outbox_validator', 'outbox_kind_validator')
  JOIN pg_catalog.pg_language AS l ON l.oid = v.prolang AND l.lanname = 'c'
  WHERE w.fdwname = 'outbox_' || pg_catalog.regexp_replace(v.proname, '_validator$', '');
COMMENT ON VIEW outbox_internal.wrappers IS
  'The kinds of sink: one row per foreign-data wrapper whose validator belongs to this library, or to that of an '
  'extension with a kind of its own.';
COMMENT ON COLUMN outbox_internal.wrappers.oid IS 'The wrapper.';
COMMENT ON COLUMN outbox_internal.wrappers.name IS 'The name that CREATE SERVER uses, such as outbox_kafka.';
COMMENT ON COLUMN outbox_internal.wrappers.kind IS 'The kind of sink: the name without outbox_.';

CREATE OR REPLACE VIEW outbox_internal.sink_names AS
  SELECT s.oid AS server, s.srvname::text COLLATE "C" AS name,
         coalesce((SELECT o.option_value::boolean FROM pg_catalog.pg_options_to_table(s.srvoptions) AS o
                   WHERE o.option_name = 'ordered'), true) AS ordered
  FROM pg_catalog.pg_foreign_server AS s JOIN outbox_internal.wrappers AS w ON w.oid = s.srvfdw;
COMMENT ON VIEW outbox_internal.sink_names IS 'The sinks, with their names as rows have them.';
COMMENT ON COLUMN outbox_internal.sink_names.server IS 'The foreign server.';
COMMENT ON COLUMN outbox_internal.sink_names.name IS 'Its name.';
COMMENT ON COLUMN outbox_internal.sink_names.ordered IS 'Its option ordered.';
