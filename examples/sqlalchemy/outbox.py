"""outbox.events as a mapped class. Copy this file: it is all that SQLAlchemy has to know of outbox."""

import enum
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Enum, FetchedValue, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class OutboxBase(DeclarativeBase):
    """With metadata of its own, so that create_all() and Alembic's autogenerate leave the extension's table alone."""

    type_annotation_map = {str: Text, datetime: DateTime(timezone=True), dict[str, Any]: JSONB(none_as_null=True)}


class Status(enum.Enum):
    PENDING = "PENDING"
    SENT = "SENT"
    FAILED = "FAILED"


class OutboxEvent(OutboxBase):
    """To be added, never changed or deleted: the server's worker does that."""

    __tablename__ = "events"
    __table_args__ = {"schema": "outbox"}
    # RETURNING asks for the id alone: more would need more than the right SELECT (id).
    __mapper_args__ = {"eager_defaults": False}

    # A UUIDv7 that the database makes, unless one is given.
    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=FetchedValue())
    # Half of the key, as an event has one row per sink. None: the sinks' own options choose.
    sink: Mapped[str | None] = mapped_column(primary_key=True, nullable=True)
    aggregate_type: Mapped[str]
    aggregate_id: Mapped[str | None]
    event_type: Mapped[str]
    payload: Mapped[dict[str, Any] | None]  # None is a tombstone
    headers: Mapped[dict[str, Any] | None]
    partition_key: Mapped[str | None]  # None: the aggregate's id
    dedup_key: Mapped[str | None]
    available_at: Mapped[datetime | None]
    status: Mapped[Status] = mapped_column(Enum(Status, native_enum=False), server_default=FetchedValue())
