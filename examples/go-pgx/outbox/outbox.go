// Package outbox puts events into outbox.events, in the transaction of the change that they tell of. The database fills in the
// rest, ids included, and delivers them once that transaction has committed.
package outbox

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Event is what an application says of an event. It is only ever inserted: the row belongs to the database from then on.
type Event struct {
	AggregateType string            // names the Kafka topic: outbox.event.<AggregateType>
	AggregateID   string            // events of one aggregate arrive in their order
	EventType     string            // what happened
	Payload       any               // becomes jsonb by encoding/json
	Headers       map[string]string // nil for none
}

const insert = `
	INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, payload, headers)
	VALUES ($1, $2, $3, $4, $5) RETURNING id`

func (e Event) values() []any {
	return []any{e.AggregateType, e.AggregateID, e.EventType, e.Payload, e.Headers}
}

// Insert returns the event's id, a UUIDv7.
func Insert(ctx context.Context, tx pgx.Tx, e Event) (id uuid.UUID, err error) {
	err = tx.QueryRow(ctx, insert, e.values()...).Scan(&id)
	return id, err
}

// InsertBatch inserts many in one round trip and returns their ids.
func InsertBatch(ctx context.Context, tx pgx.Tx, events []Event) ([]uuid.UUID, error) {
	ids, batch := make([]uuid.UUID, len(events)), &pgx.Batch{}
	for i, e := range events {
		batch.Queue(insert, e.values()...).QueryRow(func(row pgx.Row) error { return row.Scan(&ids[i]) })
	}
	return ids, tx.SendBatch(ctx, batch).Close()
}

// Copy inserts very many: the quickest way, which returns no ids.
func Copy(ctx context.Context, tx pgx.Tx, events []Event) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox", "events"},
		[]string{"aggregate_type", "aggregate_id", "event_type", "payload", "headers"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) { return events[i].values(), nil }))
	return err
}
