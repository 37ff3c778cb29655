package com.example.orders;

import com.fasterxml.jackson.annotation.JsonFormat;
import java.math.BigDecimal;
import java.util.UUID;

/** The event's payload: what the service writes and the consumer reads. */
public record OrderPlaced(UUID id, String customer, @JsonFormat(shape = JsonFormat.Shape.STRING) BigDecimal total) {
    public OrderPlaced(Order order) {
        this(order.getId(), order.getCustomer(), order.getTotal());
    }
}
