import uuid

from django.db import models


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    customer = models.TextField()
    total = models.DecimalField(max_digits=12, decimal_places=2)

    class Meta:
        db_table = "orders"
