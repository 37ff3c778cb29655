-- The one table that users see. Its columns and partitions are explained in src/README.md, "The table".
-- Status is the partition key: events_pending (hot, small), events_failed (dead letters), events_sent (by day,
-- dropped whole). An ON CONFLICT with a target therefore needs events_pending as its table: a unique index of the
-- parent would have to contain the status.
-- Triggers are ENABLE ALWAYS: with session_replication_role = replica (the apply worker of every subscription) a row
-- would have no position.
-- adopt() finds the rows of another origin in the table. No list of them is kept: where no worker runs, nothing would
-- empty it.
-- The index by transaction begins with the origin: two looks at it find the only row of another origin among any
-- number. It costs nine bytes per pending event; a partial index would need the origin as a constant.
-- Columns that indexes compare have the collation "C": the order of the database's collation changes with a new C
-- library or ICU, and an index that was made before does not find its rows then.
-- events_pending_sink has each sink's first rows, so the age of the oldest event is exact however many wait. It costs
-- an INSERT 0.6 to 0.9 us of CPU (of 5.9 in bulk).

CREATE SEQUENCE IF NOT EXISTS outbox.events_position AS bigint INCREMENT BY 10001 CACHE 1;
COMMENT ON SEQUENCE outbox.events_position IS
  'The order of delivery. It increments by 10001 without a cache, and ALTER SEQUENCE cannot change that, because '
  'the numbers are the order of delivery. The numbers between are for further rows of an event that waited for a '
  'sink: one for each sink that takes it.';

CREATE TABLE IF NOT EXISTS outbox.events (
  id uuid NOT NULL,
  aggregate_type text NOT NULL,
  aggregate_id text,
  event_type text NOT NULL,
  payload jsonb DEFAULT '{}',
  payload_bytes bytea,
  content_type text,
  headers jsonb,
  partition_key text COLLATE "C",
  dedup_key text COLLATE "C",
  seq bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  available_at timestamptz,
  attempts integer NOT NULL DEFAULT 0,
  status text DEFAULT 'PENDING',
  last_error text,
  sent_at timestamptz,
  last_attempt_at timestamptz,
  position bigint NOT NULL,
  sink text COLLATE "C",
  blocked_by bigint,
  xact xid8 NOT NULL,
  origin bigint NOT NULL,
  overtaken_by bigint,
  redrive_late boolean,
  application text,
  acknowledgement text
) PARTITION BY LIST (status);

COMMENT ON TABLE outbox.events IS
  'The transactional outbox: one row per event and sink. INSERT here, or call outbox.enqueue(), in the transaction '
  'that changes your data.';
COMMENT ON COLUMN outbox.events.id IS
  'The event''s id in every delivery, the same for all sinks; consumers drop duplicates by it. Default: a UUIDv7.';
COMMENT ON COLUMN outbox.events.aggregate_type IS
  'The kind of thing that the event is about, such as Order. By default part of the topic''s name.';
COMMENT ON COLUMN outbox.events.aggregate_id IS 'The id of that thing.';
COMMENT ON COLUMN outbox.events.event_type IS 'What happened, such as order.created.';
COMMENT ON COLUMN outbox.events.payload IS
  'The event''s body; {} if left out. An explicit NULL may be a tombstone (option tombstone_on_empty_payload).';
COMMENT ON COLUMN outbox.events.payload_bytes IS
  'The body as raw bytes (Avro, Protobuf), sent exactly as given; payload is then NULL.';
COMMENT ON COLUMN outbox.events.content_type IS 'The media type of payload_bytes.';
COMMENT ON COLUMN outbox.events.headers IS 'A flat JSON object, sent as headers beside the body.';
COMMENT ON COLUMN outbox.events.partition_key IS
  'Events with the same key reach a sink in the order in which they were enqueued. Default: aggregate_id. Empty: no '
  'key.';
COMMENT ON COLUMN outbox.events.dedup_key IS
  'A second event with the same key within outbox.dedup_window is not enqueued.';
COMMENT ON COLUMN outbox.events.seq IS 'The application''s own sequence number. Default: NULL.';
COMMENT ON COLUMN outbox.events.created_at IS 'When the event was enqueued. Default: the start of its transaction.';
COMMENT ON COLUMN outbox.events.available_at IS
  'The event is not delivered before this time: a schedule, or the next attempt after a failure. NULL: at once.';
COMMENT ON COLUMN outbox.events.attempts IS
  'The number of failed attempts so far, without failures that spend none, as for a missing topic.';
COMMENT ON COLUMN outbox.events.status IS
  'PENDING, SENT or FAILED (a dead letter). Changing a dead letter to PENDING does the same as outbox.redrive() '
  'with force.';
COMMENT ON COLUMN outbox.events.last_error IS
  'The error of the last failed delivery, with the beginning of the peer''s answer: at most 8192 bytes, then " '
  '[cut]".';
COMMENT ON COLUMN outbox.events.sent_at IS 'When the sink acknowledged the event.';
COMMENT ON COLUMN outbox.events.last_attempt_at IS
  'When delivery last failed, whether or not that spent an attempt. NULL after outbox.redrive().';
COMMENT ON COLUMN outbox.events.position IS
  'The place in the order of delivery, drawn from outbox.events_position by the server, in steps of 10001. The '
  'further rows of an event that waited for a sink have the positions after its own.';
COMMENT ON COLUMN outbox.events.sink IS
  'The foreign server to which this row goes. NULL: no sink takes the event yet, and it waits.';
COMMENT ON COLUMN outbox.events.blocked_by IS
  'Set by the worker: the position of the event of its key for which this row waits: a failing event, or a dead '
  'letter if on_dead_letter is block.';
COMMENT ON COLUMN outbox.events.xact IS 'Set by the server: the transaction that wrote the row.';
COMMENT ON COLUMN outbox.events.origin IS
  'Set by the server: where the row was enqueued. Rows of another cluster or database wait for outbox.adopt().';
COMMENT ON COLUMN outbox.events.overtaken_by IS
  'Set by the worker while the event is failing or a dead letter: the position of the first later event of its key '
  'that was delivered.';
COMMENT ON COLUMN outbox.events.application IS
  'Set by the server: application_name of the session that enqueued the event.';
COMMENT ON COLUMN outbox.events.acknowledgement IS
  'Set by the worker when a delivered event is kept: what the sink answered. Kafka: partition and offset; a '
  'webhook: the status, and X-Request-Id; other kinds: the message''s id or place. In parentheses: how long the '
  'attempt took, and which worker made it.';
COMMENT ON COLUMN outbox.events.redrive_late IS
  'Set by outbox.redrive(). true (force): send the event even after later events of its key; false: only before '
  'them. NULL: not redriven.';

-- ORMs send explicit NULLs, and partition routing comes before triggers: so this partition takes NULL too.
CREATE TABLE IF NOT EXISTS outbox.events_pending PARTITION OF outbox.events (
  CONSTRAINT events_pending_pkey PRIMARY KEY (position),
  CONSTRAINT events_pending_id_sink_key UNIQUE NULLS NOT DISTINCT (id, sink)
) FOR VALUES IN ('PENDING', NULL)
WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
      autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
-- With this index the worker finds late commits by their transaction, and the views find even a few rows of another
-- origin.
CREATE INDEX IF NOT EXISTS events_pending_xact ON outbox.events_pending (origin, xact, position);
CREATE INDEX IF NOT EXISTS events_pending_due ON outbox.events_pending (sink, available_at, position)
  WHERE available_at IS NOT NULL AND blocked_by IS NULL;
CREATE INDEX IF NOT EXISTS events_pending_blocked ON outbox.events_pending (blocked_by, position)
  WHERE blocked_by IS NOT NULL;
-- For the views: a sink's first events, however many others wait.
CREATE INDEX IF NOT EXISTS events_pending_sink ON outbox.events_pending (sink, position)
  WHERE available_at IS NULL;
CREATE INDEX IF NOT EXISTS events_pending_unrouted ON outbox.events_pending (position) WHERE sink IS NULL;
-- In this index the worker finds the failing and redriven rows of a key that a delivered event has overtaken.
CREATE INDEX IF NOT EXISTS events_pending_troubled
  ON outbox.events_pending (sink, pg_catalog.hashtextextended(partition_key, 0), position)
  WHERE last_attempt_at IS NOT NULL OR redrive_late IS NOT NULL;
COMMENT ON TABLE outbox.events_pending IS 'Pending events: a small table with many changes.';

CREATE TABLE IF NOT EXISTS outbox.events_failed PARTITION OF outbox.events (
  CONSTRAINT events_failed_pkey PRIMARY KEY (position)
) FOR VALUES IN ('FAILED');
CREATE INDEX IF NOT EXISTS events_failed_key
  ON outbox.events_failed (sink, pg_catalog.hashtextextended(partition_key, 0), position);
CREATE INDEX IF NOT EXISTS events_failed_id ON outbox.events_failed (id);
CREATE INDEX IF NOT EXISTS events_failed_at ON outbox.events_failed (sink, last_attempt_at);
COMMENT ON TABLE outbox.events_failed IS
  'Dead letters: events whose attempts are used up, or that can never be sent. They stay until a user acts.';

CREATE TABLE IF NOT EXISTS outbox.events_sent PARTITION OF outbox.events
  FOR VALUES IN ('SENT') PARTITION BY RANGE (sent_at);
COMMENT ON TABLE outbox.events_sent IS
  'Delivered events, kept for outbox.retention. One partition per day (UTC), dropped as a whole.';

CREATE TABLE IF NOT EXISTS outbox_internal.dedup (
  dedup_key text COLLATE "C" PRIMARY KEY,
  event_id uuid NOT NULL,
  created_at timestamptz NOT NULL
);
COMMENT ON TABLE outbox_internal.dedup IS
  'Dedup keys of the last outbox.dedup_window, and the event that each names.';

CREATE TABLE IF NOT EXISTS outbox_internal.rescan_queue (
  position bigint NOT NULL,
  xact xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id()
);
-- Under an old snapshot, deleted rows stay in the index: the worker starts reading at the oldest transaction that may
-- still write one.
CREATE INDEX IF NOT EXISTS rescan_queue_xact ON outbox_internal.rescan_queue (xact, position);
-- The table has no key: without this, a publication FOR ALL TABLES would make the worker's DELETEs fail.
ALTER TABLE outbox_internal.rescan_queue REPLICA IDENTITY FULL;
COMMENT ON TABLE outbox_internal.rescan_queue IS
  'Positions of pending rows behind the worker''s cursor (a changed, routed or redriven event). The worker reads '
  'and empties it.';

-- pg_dump dumps no rows of a partitioned parent: every leaf, the dedup table and the sequence are registered one by
-- one.
SELECT pg_catalog.pg_extension_config_dump('outbox.events_pending', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.events_failed', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_internal.dedup', '');
SELECT pg_catalog.pg_extension_config_dump('outbox.events_position', '');
