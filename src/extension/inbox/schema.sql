CREATE SCHEMA IF NOT EXISTS outbox_inbox;
COMMENT ON SCHEMA outbox_inbox IS
  'The inbox of a consumer: which events it has processed. Not part of the schema outbox: a database may have both.';
