package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Testing an application that enqueues events: JUnit 5 and JDBC. */
class OrdersTest {
    /** What the transaction would publish: one row per event, whichever sinks take it. */
    private static final String WOULD_PUBLISH = """
        SELECT event_type, aggregate_id, payload ->> 'total' FROM (
          SELECT DISTINCT ON (id) * FROM outbox.events WHERE status = 'PENDING' AND xact = pg_current_xact_id() ORDER BY id, position) AS e
        ORDER BY position""";

    private record Placed(long order, String event) {}

    /** The code under test, within a transaction of the caller. */
    private static Placed placeOrder(Connection connection, String total) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO orders (total) VALUES (?::numeric) RETURNING id");
             PreparedStatement enqueue = connection.prepareStatement(
                 "SELECT outbox.enqueue('Order', ?::text, 'order.placed', jsonb_build_object('total', ?::text))")) {
            insert.setString(1, total);
            long order = only(insert.executeQuery()).getLong(1);
            enqueue.setLong(1, order);
            enqueue.setString(2, total);
            return new Placed(order, only(enqueue.executeQuery()).getString(1));
        }
    }

    private static ResultSet only(ResultSet rows) throws SQLException {
        assertTrue(rows.next());
        return rows;
    }

    private Connection connection;

    @BeforeEach
    void connect() throws SQLException {
        connection = DriverManager.getConnection(System.getenv("JDBC_URL"));
    }

    @AfterEach
    void disconnect() throws SQLException {
        connection.close(); // an open transaction is rolled back
    }

    @Test
    void anOrderWouldPublishOneEvent() throws SQLException {
        connection.setAutoCommit(false);
        Placed placed = placeOrder(connection, "99.50");
        ResultSet events = only(connection.createStatement().executeQuery(WOULD_PUBLISH));
        assertEquals("order.placed", events.getString(1));
        assertEquals(Long.toString(placed.order()), events.getString(2));
        assertEquals("99.50", events.getString(3));
        assertFalse(events.next());
    }

    @Test
    void anOrderArrives() throws SQLException {
        connection.setAutoCommit(false);
        Placed placed = placeOrder(connection, "10.00");
        connection.commit(); // both rows, or neither
        connection.setAutoCommit(true);
        try (PreparedStatement wait = connection.prepareStatement("CALL outbox.wait_delivered(?::uuid, timeout => '1 minute')")) {
            wait.setString(1, placed.event());
            wait.execute();
        }
    }
}
