-- The schemas are members of the extension, which itself is in pg_catalog: DROP EXTENSION drops them too. PostgreSQL
-- refuses these statements if such a schema exists and is not the extension's, so the schemas contain no functions of
-- other owners.
CREATE SCHEMA IF NOT EXISTS outbox;
COMMENT ON SCHEMA outbox IS
  'The objects that applications and operators use: functions to call, tables and views to read.';
CREATE SCHEMA IF NOT EXISTS outbox_internal;
COMMENT ON SCHEMA outbox_internal IS
  'Internals of the extension outbox, used by its functions and its worker. Not for other use.';
