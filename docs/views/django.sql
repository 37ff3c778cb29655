-- Django, with published_at. For a BigAutoField, write "id": "position" and leave id out of the INSERT and the SELECT.
-- docs/migration.md says how to use it.

BEGIN;
SELECT public.lock_when_free('public.events_outboxevent', 'ACCESS EXCLUSIVE');
ALTER TABLE public.events_outboxevent RENAME TO events_outboxevent_old;
SELECT outbox.create_view('public.events_outboxevent', '{
  "id": "id", "aggregate_type": "aggregate_type", "aggregate_id": "aggregate_id", "event_type": "event_type", "payload": "payload",
  "created_at": "created_at", "published_at": "sent_at", "attempts": "attempts", "last_error": "last_error"}');
INSERT INTO public.events_outboxevent (id, aggregate_type, aggregate_id, event_type, payload, created_at, last_error)
SELECT id, aggregate_type, aggregate_id, event_type, payload, created_at, last_error
FROM public.events_outboxevent_old WHERE published_at IS NULL ORDER BY created_at;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.events_outboxevent, outbox.events TO app;
COMMIT;
