\echo Use "CREATE EXTENSION outbox_grpc" to load this file. \quit
CREATE FUNCTION outbox_internal.grpc_validator(options text[], catalog oid) RETURNS void
  LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_kind_validator';
CREATE FOREIGN DATA WRAPPER outbox_grpc NO HANDLER VALIDATOR outbox_internal.grpc_validator;
