package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consume ships what is ordered, each order once. It ends where it cannot process an event: started again, it goes on from
// the last committed offset, and what comes a second time is known.
func consume(ctx context.Context, pool *pgxpool.Pool, brokers string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumerGroup("shipping"),
		kgo.ConsumeTopics("outbox.event.Order"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),               // what was polled is committed before another member gets the partition
		kgo.SessionTimeout(10*time.Second),       // a killed consumer's partitions are taken over after that
		kgo.MetadataMinAge(500*time.Millisecond), // the topic may come into being after us
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()

	for {
		fetches := client.PollRecords(ctx, 100)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("%s/%d: %v", topic, partition, err) // the client tries again by itself
		})
		for _, record := range fetches.Records() {
			if err := shipOnce(ctx, pool, record); err != nil {
				return fmt.Errorf("%s/%d offset %d: %w", record.Topic, record.Partition, record.Offset, err)
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			log.Print(err) // they come again
		}
		client.AllowRebalance()
	}
}

func shipOnce(ctx context.Context, pool *pgxpool.Pool, record *kgo.Record) error {
	event, err := eventID(record)
	if err != nil {
		return err
	}
	var o Order
	if err := json.Unmarshal(record.Value, &o); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var first bool
		if err := tx.QueryRow(ctx, "SELECT outbox_inbox.mark_processed($1, 'shipping')", event).Scan(&first); err != nil || !first {
			return err // nil for a duplicate: nothing to do
		}
		_, err := tx.Exec(ctx, "INSERT INTO shipments (order_id, customer, total) VALUES ($1, $2, $3)", o.ID, o.Customer, o.Total)
		return err
	})
}

func eventID(record *kgo.Record) (uuid.UUID, error) {
	for _, header := range record.Headers {
		if header.Key == "id" {
			return uuid.ParseBytes(header.Value)
		}
	}
	return uuid.Nil, errors.New("the record has no header id")
}
