-- The schemas are members of the extension: DROP EXTENSION takes them along, and nobody has put functions into them before.
-- PostgreSQL refuses the statements where such a schema exists and is not the extension's.
-- The schema is a member of the extension, which itself is in pg_catalog, so DROP EXTENSION drops the schema too.
CREATE SCHEMA IF NOT EXISTS outbox;
COMMENT ON SCHEMA outbox IS 'The objects that applications and operators use: functions to call, tables and views to read.';
CREATE SCHEMA IF NOT EXISTS outbox_internal;
COMMENT ON SCHEMA outbox_internal IS 'Internals of the extension outbox, used by its functions and its worker. Not for other use.';
