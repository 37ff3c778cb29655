"""Orders over HTTP. Each is written in one transaction with its event; the database server delivers that."""

import json
from decimal import Decimal

from django.db import connection, transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from outbox.models import OutboxEvent

from .models import Order

CREDIT_LIMIT = Decimal("1000.00")


class CreditRefused(Exception):
    pass


class OrderForm(ModelForm):
    class Meta:
        model = Order
        fields = ["customer", "total"]


def order_placed(order: Order) -> OutboxEvent:
    payload = {"id": str(order.id), "customer": order.customer, "total": str(order.total)}
    return OutboxEvent(aggregate_type="Order", aggregate_id=str(order.id), event_type="OrderPlaced", payload=payload)


def check_credit(order: Order) -> None:
    if order.total > CREDIT_LIMIT:
        raise CreditRefused(f"the credit limit is {CREDIT_LIMIT}")


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(json.loads(request.body))
    if not form.is_valid():
        return JsonResponse(form.errors, status=400)
    try:
        with transaction.atomic():
            order = form.save()
            order_placed(order).save(force_insert=True)
            check_credit(order)  # both rows are in the database, and gone again, with nothing published, if this raises
    except CreditRefused as refused:
        return JsonResponse({"error": str(refused)}, status=422)
    return JsonResponse({"id": order.id}, status=201)


@csrf_exempt
@require_POST
def place_orders(request: HttpRequest) -> HttpResponse:
    forms = [OrderForm(new) for new in json.loads(request.body)]
    if not all(form.is_valid() for form in forms):
        return JsonResponse({"errors": [form.errors for form in forms]}, status=400)
    try:
        with transaction.atomic():
            orders = Order.objects.bulk_create(form.save(commit=False) for form in forms)
            OutboxEvent.objects.bulk_create(order_placed(order) for order in orders)
            for order in orders:
                check_credit(order)
    except CreditRefused as refused:
        return JsonResponse({"error": str(refused)}, status=422)
    return JsonResponse({"ids": [order.id for order in orders]}, status=201)


def health(request: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"status": "ok"})
