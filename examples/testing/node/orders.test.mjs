// Testing an application that enqueues events: node:test and pg.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import pg from "pg";

// What the transaction would publish: one row per event, whichever sinks take it.
const WOULD_PUBLISH = `
  SELECT event_type, aggregate_id, payload FROM (
    SELECT DISTINCT ON (id) * FROM outbox.events WHERE status = 'PENDING' AND xact = pg_current_xact_id() ORDER BY id, position) AS e
  ORDER BY position`;

// The code under test, within a transaction of the caller. Returns the order's id and that of its event.
async function placeOrder(client, total) {
  const { rows: [{ id }] } = await client.query("INSERT INTO orders (total) VALUES ($1) RETURNING id", [total]);
  const { rows: [{ event }] } = await client.query(
    "SELECT outbox.enqueue('Order', $1::text, 'order.placed', $2::jsonb) AS event", [id, { total }]);
  return { id, event };
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
before(() => client.connect());
after(() => client.end());

test("an order would publish one event", async () => {
  await client.query("BEGIN");
  try {
    const { id } = await placeOrder(client, "99.50");
    const { rows } = await client.query(WOULD_PUBLISH);
    assert.deepEqual(rows, [{ event_type: "order.placed", aggregate_id: String(id), payload: { total: "99.50" } }]);
  } finally {
    await client.query("ROLLBACK"); // nothing leaves the database
  }
});

test("an order arrives", async () => {
  let placed;
  await client.query("BEGIN");
  try {
    placed = await placeOrder(client, "10.00");
    await client.query("COMMIT"); // both rows, or neither
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
  await client.query("CALL outbox.wait_delivered($1, timeout => '1 minute')", [placed.event]);
});
