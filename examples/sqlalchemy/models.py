"""The application's own tables, and its sessions."""

import os
from decimal import Decimal
from uuid import UUID

from sqlalchemy import Numeric, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from uuid_utils.compat import uuid7  # Python 3.14 has uuid.uuid7

engine = create_engine(make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"), pool_pre_ping=True)
# An expired event could not be read again: the application may INSERT events, not SELECT them.
Session = sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    type_annotation_map = {Decimal: Numeric(12, 2)}


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid7)
    customer: Mapped[str]
    total: Mapped[Decimal]


class Shipment(Base):
    __tablename__ = "shipments"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[UUID]
    customer: Mapped[str]
    total: Mapped[Decimal]
