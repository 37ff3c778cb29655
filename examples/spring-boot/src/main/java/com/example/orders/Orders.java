package com.example.orders;

import java.util.UUID;
import org.springframework.data.jpa.repository.JpaRepository;

public interface Orders extends JpaRepository<Order, UUID> {}
