// An order service with a transactional outbox, and the consumer of its events.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var schema string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Join(os.Args[1:], " ")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, command string) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	switch command {
	case "migrate":
		_, err := pool.Exec(ctx, schema)
		return err
	case "service":
		return serve(ctx, pool, "127.0.0.1:"+os.Getenv("PORT"))
	case "consumer":
		return consume(ctx, pool, os.Getenv("KAFKA_BOOTSTRAP_SERVERS"))
	}
	return fmt.Errorf("usage: %s migrate | service | consumer", os.Args[0])
}
