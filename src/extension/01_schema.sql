-- The schema is a member of the extension: DROP EXTENSION takes it along, and nobody has put functions into it before.
-- PostgreSQL refuses the statement where the schema exists and is not the extension's.
CREATE SCHEMA IF NOT EXISTS outbox;
