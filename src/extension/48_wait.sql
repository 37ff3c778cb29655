-- For jobs, scripts and tests that go on only when an event has arrived. The procedure commits, so that it holds
-- neither snapshot nor lock while it waits. With SET search_path it could not commit: it is C, and qualifies every
-- name.

CREATE OR REPLACE PROCEDURE outbox.wait_delivered(id uuid, timeout interval DEFAULT '30 seconds')
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_wait_delivered';
COMMENT ON PROCEDURE outbox.wait_delivered(uuid, interval) IS
  'Waits until no pending row of an event is left. Fails with SQLSTATE OB001 if the event is a dead letter for a '
  'sink, with OB002 when the time is up, and with OB003 if there is no such event: this session has not enqueued '
  'and committed it, and it is neither pending nor kept (outbox.retention). CALL it after COMMIT, as a statement of '
  'its own: inside a transaction block it fails (25001).';
