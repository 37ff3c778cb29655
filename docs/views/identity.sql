-- An identity column id, and other words for the status. The server draws new numbers for the moved rows; consumers find the old one in the
-- header legacyId.
-- docs/migration.md says how to use it.

BEGIN;
SELECT public.lock_when_free('public.outbox_messages', 'ACCESS EXCLUSIVE');
ALTER TABLE public.outbox_messages RENAME TO outbox_messages_old;
SELECT outbox.create_view('public.outbox_messages', '{
  "id": "position", "aggregate_type": "aggregate_type", "aggregate_id": "aggregate_id", "event_type": "event_type", "payload": "payload",
  "status": "status", "retry_count": "attempts", "available_at": "available_at", "created_at": "created_at", "updated_at": "updated_at"}',
  statuses => '{NEW,SENT,FAILED}');
INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers, status, available_at, created_at)
SELECT aggregate_type, aggregate_id, event_type, payload, jsonb_build_object('legacyId', id::text),
       CASE status WHEN 'NEW' THEN 'PENDING' ELSE 'FAILED' END, available_at, created_at
FROM public.outbox_messages_old WHERE status <> 'SENT' ORDER BY id;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.outbox_messages, outbox.events TO app;
COMMIT;
