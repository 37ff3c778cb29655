"""An ordinary table with the same columns and indexes, as a team would write it, and the data for both."""

from outbox_rig.database import Database
from stage import Stage

# Autovacuum is off for the ordinary table, and nothing reads it. The ids of the source are precomputed and ascending: a
# plain INSERT that uses them spends nothing on ids.
TABLES = """
    CREATE SEQUENCE plain_position CACHE 1;
    CREATE TABLE plain (LIKE outbox.events_pending INCLUDING ALL) WITH (autovacuum_enabled = off);
    ALTER TABLE plain ALTER id SET DEFAULT gen_random_uuid(), ALTER position SET DEFAULT nextval('plain_position'),
      ALTER xact SET DEFAULT pg_current_xact_id(), ALTER origin SET DEFAULT 1, ALTER sink SET DEFAULT 'main';
    CREATE TABLE source (aggregate_type text, key text, event_type text, payload jsonb, n bigserial, id uuid
      GENERATED ALWAYS AS (('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid) STORED);
"""
INTO_SOURCE = "source (aggregate_type, key, event_type, payload)"
EVENTS = "INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload) SELECT aggregate_type, key, event_type, payload FROM source"


def make(stage: Stage, db: Database, aggregate_type: str, events: int) -> None:
    db.sql(TABLES)
    stage.load(db, "fixed", events, aggregate_type, into=INTO_SOURCE)
    db.sql("VACUUM ANALYZE source")


def empty(db: Database) -> None:
    """Both tables are emptied, right after a checkpoint."""
    db.sql("TRUNCATE outbox.events_pending, plain")
    db.sql("CHECKPOINT")
