CREATE TABLE orders (
  id uuid PRIMARY KEY,
  customer text NOT NULL,
  total numeric(12, 2) NOT NULL
);

-- The consumer's. No unique key on order_id: outbox_inbox.mark_processed() is what keeps duplicates out.
CREATE TABLE shipments (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id uuid NOT NULL,
  customer text NOT NULL,
  total numeric(12, 2) NOT NULL
);
