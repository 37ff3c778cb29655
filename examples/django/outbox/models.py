"""outbox.events as a model. Copy this app: it is all that Django has to know of outbox."""

from django.db import models


class OutboxEvent(models.Model):
    """To be created, never saved again or deleted: the server's worker does that."""

    class Status(models.TextChoices):
        PENDING = "PENDING"
        SENT = "SENT"
        FAILED = "FAILED"

    # A UUIDv7 that the database makes (INSERT says DEFAULT, RETURNING brings it), unless one is given. The table's key is (id, sink),
    # one row per sink; a CompositePrimaryKey takes no column that may be NULL, and who only inserts needs no more than the id.
    id = models.UUIDField(primary_key=True, db_default=None, editable=False)
    sink = models.TextField(null=True)  # None: the sinks' own options choose
    aggregate_type = models.TextField()
    aggregate_id = models.TextField(null=True)
    event_type = models.TextField()
    payload = models.JSONField(null=True)  # None is a tombstone
    headers = models.JSONField(null=True)
    partition_key = models.TextField(null=True)  # None: the aggregate's id
    dedup_key = models.TextField(null=True)
    available_at = models.DateTimeField(null=True)
    status = models.TextField(choices=Status, null=True, editable=False)  # None: the database says PENDING

    class Meta:
        managed = False
        db_table = 'outbox"."events'  # Django adds the outer quotes: "outbox"."events"
