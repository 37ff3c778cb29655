-- The example's own tables. outbox.events is the extension's: CREATE EXTENSION outbox is the DBA's.
CREATE TABLE IF NOT EXISTS orders (
  id uuid PRIMARY KEY,
  customer text NOT NULL,
  total numeric(12, 2) NOT NULL
);
CREATE TABLE IF NOT EXISTS shipments (
  id bigserial PRIMARY KEY,
  order_id uuid NOT NULL,
  customer text NOT NULL,
  total numeric(12, 2) NOT NULL
);
