package com.example.orders;

import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.springframework.context.annotation.Profile;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

@RestController
@Profile("service")
public class OrderController {
    private final OrderService service;

    OrderController(OrderService service) {
        this.service = service;
    }

    @PostMapping("/orders")
    @ResponseStatus(HttpStatus.CREATED)
    Map<String, UUID> place(@RequestBody OrderService.Request request) {
        return Map.of("id", service.place(request));
    }

    @PostMapping("/orders/batch")
    @ResponseStatus(HttpStatus.CREATED)
    Map<String, List<UUID>> placeAll(@RequestBody List<OrderService.Request> requests) {
        return Map.of("ids", service.placeAll(requests));
    }

    @GetMapping("/health")
    void health() {}
}
