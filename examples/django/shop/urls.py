from django.urls import path

from orders import views as orders
from shipping import views as shipping

urlpatterns = [
    path("orders", orders.place_order),
    path("orders/batch", orders.place_orders),
    path("health", orders.health),
    path("webhooks", shipping.receive_event),
]
