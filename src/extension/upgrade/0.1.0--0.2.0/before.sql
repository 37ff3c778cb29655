-- From 0.1.0: what the parts of the install script, which come next, find there and would not change.
DROP INDEX outbox.events_pending_xact;
DROP FUNCTION outbox.probe(text, interval); -- it has a parameter more
