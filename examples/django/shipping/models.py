from django.db import models


class Shipment(models.Model):
    order_id = models.UUIDField()
    customer = models.TextField()
    total = models.DecimalField(max_digits=12, decimal_places=2)

    class Meta:
        db_table = "shipments"
