CREATE TABLE processed_events (
  event_id     text PRIMARY KEY,                     -- the header webhook-id
  processed_at timestamptz NOT NULL DEFAULT now()    -- rows may go when no event can be so old any more: 30 days, say
);
CREATE TABLE work (                                  -- stands for your own tables
  number bigint GENERATED ALWAYS AS IDENTITY, event_id text, event_type text, data jsonb);
