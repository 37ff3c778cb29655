-- A text id, and processed_at.
-- docs/migration.md says how to use it.

BEGIN;
SELECT public.lock_when_free('public.outbox', 'ACCESS EXCLUSIVE');
ALTER TABLE public.outbox RENAME TO outbox_old;
SELECT outbox.create_view('public.outbox', '{
  "id": "dedup_key", "aggregate_type": "aggregate_type", "aggregate_id": "aggregate_id", "type": "event_type", "payload": "payload",
  "created_at": "created_at", "processed_at": "sent_at"}');
INSERT INTO public.outbox (id, aggregate_type, aggregate_id, type, payload, created_at)
SELECT id, aggregate_type, aggregate_id, type, payload, created_at
FROM public.outbox_old WHERE processed_at IS NULL ORDER BY created_at;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.outbox, outbox.events TO app;
COMMIT;
