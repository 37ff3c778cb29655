package com.example.orders;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.springframework.context.annotation.Profile;
import org.springframework.http.HttpStatus;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.web.bind.annotation.ResponseStatus;

@Service
@Profile("service")
public class OrderService {
    private static final BigDecimal LIMIT = new BigDecimal("1000.00");

    public record Request(String customer, BigDecimal total) {}

    @ResponseStatus(HttpStatus.UNPROCESSABLE_ENTITY)
    public static class CreditRefused extends RuntimeException {}

    private final Orders orders;
    private final Outbox outbox;
    private final ObjectMapper json;

    OrderService(Orders orders, Outbox outbox, ObjectMapper json) {
        this.orders = orders;
        this.outbox = outbox;
        this.json = json;
    }

    @Transactional
    public UUID place(Request request) {
        return placeAll(List.of(request)).get(0);
    }

    /** All or none. The rows go out in batches, see application.yml. */
    @Transactional
    public List<UUID> placeAll(List<Request> requests) {
        List<Order> placed = orders.saveAll(requests.stream().map(each -> new Order(each.customer(), each.total())).toList());
        for (Order order : placed) {
            outbox.save(new OutboxEvent("Order", order.getId(), OutboxEvent.Type.OrderPlaced, json.valueToTree(new OrderPlaced(order)),
                                        Map.of("service", "orders")));
        }
        orders.flush(); // both rows are in the database now, and go again when this transaction does
        placed.forEach(this::checkCredit);
        return placed.stream().map(Order::getId).toList();
    }

    private void checkCredit(Order order) {
        if (order.getTotal().compareTo(LIMIT) > 0) {
            throw new CreditRefused();
        }
    }
}
