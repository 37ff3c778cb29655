package com.example.orders;

import com.fasterxml.jackson.databind.JsonNode;
import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.annotations.UuidGenerator;
import org.hibernate.type.SqlTypes;

/**
 * A row of outbox.events: written once, in the transaction that changes the data, and never read, changed or deleted from here. In the table
 * the key is (id, sink), one row per sink; the server chooses the sinks, and no sink is part of the key in Java. Columns that are not
 * mapped (created_at, status, sink, partition_key …) are filled by the server.
 */
@Entity
@Immutable
@Table(schema = "outbox", name = "events")
public class OutboxEvent {
    public enum Type { OrderPlaced }

    /** Made in Java, not by the server with RETURNING: Hibernate sends no batches of rows whose key it must read back. */
    @Id
    @UuidGenerator(algorithm = UuidV7.class)
    private UUID id;

    @Column(name = "aggregate_type")
    private String aggregateType;

    @Column(name = "aggregate_id")
    private String aggregateId;

    @Enumerated(EnumType.STRING)
    @Column(name = "event_type")
    private Type eventType;

    @JdbcTypeCode(SqlTypes.JSON)
    private JsonNode payload;

    /** A flat object, sent as headers beside the body. */
    @JdbcTypeCode(SqlTypes.JSON)
    private Map<String, String> headers;

    protected OutboxEvent() {}

    public OutboxEvent(String aggregateType, UUID aggregateId, Type eventType, JsonNode payload, Map<String, String> headers) {
        this.aggregateType = aggregateType;
        this.aggregateId = aggregateId.toString();
        this.eventType = eventType;
        this.payload = payload;
        this.headers = headers;
    }
}
