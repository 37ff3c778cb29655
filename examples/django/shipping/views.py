"""The receiver of outbox's webhooks. Ships what was ordered: each event once, however often it is sent."""

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from standardwebhooks import Webhook, WebhookVerificationError

from .models import Shipment


@csrf_exempt  # the signature says who it is
@require_POST
def receive_event(request: HttpRequest) -> HttpResponse:
    try:
        event = Webhook(settings.WEBHOOK_SECRET).verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return HttpResponse(status=401)
    with transaction.atomic():
        if first_time(request.headers["webhook-id"]) and event["type"] == "OrderPlaced":
            order = event["data"]
            Shipment.objects.create(order_id=order["id"], customer=order["customer"], total=order["total"])
    # After the commit, for a duplicate too. Whatever is raised above answers 500, and the event comes again.
    return HttpResponse(status=200)


def first_time(event_id: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT outbox_inbox.mark_processed(%s, 'shipping')", [event_id])
        return cursor.fetchone()[0]
