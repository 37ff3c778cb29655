package com.example.orders;

import java.util.UUID;
import org.springframework.data.repository.Repository;

/** Not a JpaRepository: there is nothing to find, change or delete. */
public interface Outbox extends Repository<OutboxEvent, UUID> {
    OutboxEvent save(OutboxEvent event);
}
