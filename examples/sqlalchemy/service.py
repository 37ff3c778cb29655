"""Orders over HTTP. Each is written in one transaction with its event; the database server delivers that."""

from decimal import Decimal
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import text
from uuid_utils.compat import uuid7

from models import Order, Session
from outbox import OutboxEvent

CREDIT_LIMIT = Decimal("1000.00")
app = FastAPI()


class NewOrder(BaseModel):
    customer: str
    total: Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]

    def order(self) -> Order:
        return Order(id=uuid7(), customer=self.customer, total=self.total)


def order_placed(order: Order, event_id: UUID | None = None) -> OutboxEvent:
    payload = {"id": str(order.id), "customer": order.customer, "total": str(order.total)}
    return OutboxEvent(id=event_id, aggregate_type="Order", aggregate_id=str(order.id), event_type="OrderPlaced", payload=payload)


def check_credit(order: Order) -> None:
    if order.total > CREDIT_LIMIT:
        raise HTTPException(422, f"the credit limit is {CREDIT_LIMIT}")


@app.post("/orders", status_code=201)
def place_order(new: NewOrder) -> dict[str, UUID]:
    with Session.begin() as session:
        order = new.order()
        session.add_all([order, order_placed(order)])
        session.flush()  # both rows are in the database now ...
        check_credit(order)  # ... and gone again, with nothing published, if this raises
    return {"id": order.id}


@app.post("/orders/batch", status_code=201)
def place_orders(batch: list[NewOrder]) -> dict[str, list[UUID]]:
    with Session.begin() as session:
        orders = [new.order() for new in batch]
        # Events whose ids are known go in one INSERT. For ids from the database SQLAlchemy sends row by row, to know whose is whose.
        session.add_all([*orders, *(order_placed(order, event_id=uuid7()) for order in orders)])
        session.flush()
        for order in orders:
            check_credit(order)
    return {"ids": [order.id for order in orders]}


@app.get("/health")
def health() -> dict[str, str]:
    with Session() as session:
        session.execute(text("SELECT 1"))
    return {"status": "ok"}
