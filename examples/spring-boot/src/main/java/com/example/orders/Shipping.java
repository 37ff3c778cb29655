package com.example.orders;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Profile;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.listener.CommonErrorHandler;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.util.backoff.FixedBackOff;

/** The consumer: one shipment for each order, however often its event comes. */
@Component
@Profile("consumer")
public class Shipping {
    private final JdbcTemplate jdbc;
    private final ObjectMapper json;

    Shipping(JdbcTemplate jdbc, ObjectMapper json) {
        this.jdbc = jdbc;
        this.json = json;
    }

    /** The id is read from the record: in a Message the header "id" is Spring's own. */
    @KafkaListener(topics = "outbox.event.Order")
    @Transactional
    public void ship(ConsumerRecord<String, String> record) throws JsonProcessingException {
        UUID event = UUID.fromString(new String(record.headers().lastHeader("id").value(), StandardCharsets.US_ASCII));
        if (jdbc.queryForObject("SELECT outbox_inbox.mark_processed(?, 'shipping')", Boolean.class, event)) {
            OrderPlaced order = json.readValue(record.value(), OrderPlaced.class);
            jdbc.update("INSERT INTO shipments (order_id, customer, total) VALUES (?, ?, ?)", order.id(), order.customer(), order.total());
        }
    }

    /** Spring Kafka's default gives an event up after ten attempts at once, and commits its offset. This one goes on trying. */
    @Bean
    static CommonErrorHandler retryForever() {
        return new DefaultErrorHandler(new FixedBackOff(1000, FixedBackOff.UNLIMITED_ATTEMPTS));
    }
}
