package outbox

import (
	"context"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Every way to insert, into the database at DATABASE_URL.
func TestInsert(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())

	event := func(kind string) Event {
		return Event{AggregateType: "GoTest", AggregateID: uuid.NewString(), EventType: kind,
			Payload: map[string]string{"text": "Ünïcode ☃ \\n \" '", "total": "12.50"}, Headers: map[string]string{"tenant": "7"}}
	}
	tombstone := Event{AggregateType: "GoTest", AggregateID: "1", EventType: "tombstone"}

	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		id, err := Insert(t.Context(), tx, event("one"))
		if err != nil {
			return err
		}
		ids, err := InsertBatch(t.Context(), tx, []Event{event("batch"), event("batch"), tombstone})
		if err != nil {
			return err
		}
		for _, id := range append([]uuid.UUID{id}, ids...) {
			t.Log("returned", id)
		}
		return Copy(t.Context(), tx, []Event{event("copy"), event("copy"), tombstone})
	})
	if err != nil {
		t.Fatal(err)
	}
}
