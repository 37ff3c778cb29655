package com.example.orders;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.math.BigDecimal;
import java.util.UUID;
import org.hibernate.annotations.UuidGenerator;

@Entity
@Table(name = "orders")
public class Order {
    @Id
    @UuidGenerator(algorithm = UuidV7.class)
    private UUID id;

    private String customer;
    private BigDecimal total;

    protected Order() {}

    public Order(String customer, BigDecimal total) {
        this.customer = customer;
        this.total = total;
    }

    public UUID getId() {
        return id;
    }

    public String getCustomer() {
        return customer;
    }

    public BigDecimal getTotal() {
        return total;
    }
}
