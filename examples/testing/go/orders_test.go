// Testing an application that enqueues events: testing and pgx.
package orders

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// What the transaction would publish: one row per event, whichever sinks take it.
const wouldPublish = `
	SELECT event_type, aggregate_id, payload ->> 'total' FROM (
	  SELECT DISTINCT ON (id) * FROM outbox.events WHERE status = 'PENDING' AND xact = pg_current_xact_id() ORDER BY id, position) AS e
	ORDER BY position`

// The code under test, within a transaction of the caller. Returns the order's id and that of its event.
func placeOrder(ctx context.Context, tx pgx.Tx, total string) (order, event string, err error) {
	if err = tx.QueryRow(ctx, "INSERT INTO orders (total) VALUES ($1::text::numeric) RETURNING id::text", total).Scan(&order); err != nil {
		return
	}
	err = tx.QueryRow(ctx, "SELECT outbox.enqueue('Order', $1::text, 'order.placed', jsonb_build_object('total', $2::text))::text",
		order, total).Scan(&event)
	return
}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.Background()) })
	return db
}

func TestAnOrderWouldPublishOneEvent(t *testing.T) {
	ctx := context.Background()
	tx, err := connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx) // nothing leaves the database

	order, _, err := placeOrder(ctx, tx, "99.50")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(ctx, wouldPublish)
	if err != nil {
		t.Fatal(err)
	}
	type event struct{ Type, Order, Total string }
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0] != (event{"order.placed", order, "99.50"}) {
		t.Fatalf("it would publish %v", events)
	}
}

func TestAnOrderArrives(t *testing.T) {
	ctx, db := context.Background(), connect(t)
	var event string
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) { // both rows, or neither
		_, event, err = placeOrder(ctx, tx, "10.00")
		return
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(ctx, "CALL outbox.wait_delivered($1::text::uuid, timeout => '1 minute')", event); err != nil {
		t.Fatal(err)
	}
}
