\echo Use "CREATE EXTENSION outbox_redis" to load this file. \quit
CREATE FUNCTION outbox_internal.redis_validator(options text[], catalog oid) RETURNS void
  LANGUAGE c STRICT SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'outbox_kind_validator';
CREATE FOREIGN DATA WRAPPER outbox_redis NO HANDLER VALIDATOR outbox_internal.redis_validator;
