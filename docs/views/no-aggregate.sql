-- No aggregate, and a payload of type text.
-- docs/migration.md says how to use it.

BEGIN;
SELECT public.lock_when_free('public.outbox', 'ACCESS EXCLUSIVE');
ALTER TABLE public.outbox RENAME TO outbox_old;
SELECT outbox.create_view('public.outbox', '{
  "event_id": "id", "event_type": "event_type", "payload": "payload text", "status": "status", "occurred_at": "created_at",
  "sent_at": "sent_at"}', statuses => '{NEW,SENT,ERROR}', aggregate_type => 'Event');
INSERT INTO public.outbox (event_id, event_type, payload, status, occurred_at)
SELECT event_id, event_type, payload, status, occurred_at
FROM public.outbox_old WHERE status <> 'SENT' ORDER BY occurred_at;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.outbox, outbox.events TO app;
COMMIT;
