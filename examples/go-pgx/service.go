package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/orders/outbox"
)

// Order is a row of orders, and the payload of its event.
type Order struct {
	ID       uuid.UUID `json:"id"`
	Customer string    `json:"customer"`
	Total    string    `json:"total"` // of numeric(12, 2)
}

var (
	amount          = regexp.MustCompile(`^\d{1,10}(\.\d{1,2})?$`)
	errInvalidOrder = errors.New("an order has a customer and a total such as 12.50")
	errCreditLimit  = errors.New("the credit check refuses a total over 1000.00")
)

// newOrder gives it its id.
func newOrder(o Order) (Order, error) {
	if o.Customer == "" || !amount.MatchString(o.Total) {
		return o, errInvalidOrder
	}
	var err error
	o.ID, err = uuid.NewV7()
	return o, err
}

func (o Order) placed() outbox.Event {
	return outbox.Event{AggregateType: "Order", AggregateID: o.ID.String(), EventType: "OrderPlaced", Payload: o}
}

func checkCredit(o Order) error {
	if total, err := strconv.ParseFloat(o.Total, 64); err != nil || total > 1000 {
		return errCreditLimit
	}
	return nil
}

// placeOrder: the order and its event in one transaction. Any error rolls both back.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, o Order) (Order, error) {
	o, err := newOrder(o)
	if err != nil {
		return o, err
	}
	return o, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, customer, total) VALUES ($1, $2, $3)", o.ID, o.Customer, o.Total); err != nil {
			return err
		}
		event, err := outbox.Insert(ctx, tx, o.placed())
		if err != nil {
			return err
		}
		if err := checkCredit(o); err != nil { // after both rows are written: nothing is published all the same
			return err
		}
		log.Printf("order %s: event %s", o.ID, event)
		return nil
	})
}

// placeOrders: all of them or none.
func placeOrders(ctx context.Context, pool *pgxpool.Pool, orders []Order) ([]Order, error) {
	events := make([]outbox.Event, len(orders))
	for i := range orders {
		var err error
		if orders[i], err = newOrder(orders[i]); err != nil {
			return nil, err
		}
		events[i] = orders[i].placed()
	}
	return orders, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		rows := pgx.CopyFromSlice(len(orders), func(i int) ([]any, error) {
			return []any{orders[i].ID, orders[i].Customer, orders[i].Total}, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "customer", "total"}, rows); err != nil {
			return err
		}
		if _, err := outbox.InsertBatch(ctx, tx, events); err != nil {
			return err
		}
		for _, o := range orders {
			if err := checkCredit(o); err != nil {
				return err
			}
		}
		return nil
	})
}

func serve(ctx context.Context, pool *pgxpool.Pool, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ok"}, pool.Ping(r.Context()))
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var o Order
		err := decode(r, &o)
		if err == nil {
			o, err = placeOrder(r.Context(), pool, o)
		}
		answer(w, http.StatusCreated, map[string]uuid.UUID{"id": o.ID}, err)
	})
	mux.HandleFunc("POST /orders/batch", func(w http.ResponseWriter, r *http.Request) {
		var orders []Order
		err := decode(r, &orders)
		if err == nil {
			orders, err = placeOrders(r.Context(), pool, orders)
		}
		ids := make([]uuid.UUID, len(orders))
		for i, o := range orders {
			ids[i] = o.ID
		}
		answer(w, http.StatusCreated, map[string][]uuid.UUID{"ids": ids}, err)
	})

	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() {
		if err := server.Shutdown(context.Background()); err != nil {
			log.Print(err)
		}
	})
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<20)).Decode(into); err != nil {
		return errInvalidOrder
	}
	return nil
}

func answer(w http.ResponseWriter, status int, body any, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errInvalidOrder):
		status = http.StatusBadRequest
	case errors.Is(err, errCreditLimit):
		status = http.StatusUnprocessableEntity
	default:
		log.Print(err)
		status, err = http.StatusInternalServerError, errors.New("internal error")
	}
	if err != nil {
		body = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}
