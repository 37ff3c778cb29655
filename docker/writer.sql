-- An application: each second one transaction writes an order and its event. docker compose -f docker/compose.yaml logs -f writer shows them.
WITH placed AS (
  INSERT INTO orders (customer, total) SELECT (ARRAY['Ada', 'Ben', 'Cleo'])[1 + floor(random() * 3)], round((random() * 100)::numeric, 2) RETURNING *)
SELECT format('order %s of %s: event %s', id, customer, outbox.enqueue('Order', id, 'order.placed', to_jsonb(placed))) FROM placed \watch 1
