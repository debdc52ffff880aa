package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/producer"
)

// Order is the image of an order. Its tags name the columns of table orders in slotline.yaml, and their roles.
type Order struct {
	Carrier  string    `slotline:"carrier,tenant"`
	OrderID  uint64    `slotline:"order_id,id"`
	PlacedAt time.Time `slotline:"placed_at,month"`
	Total    string    `slotline:"total"`
}

// Run writes the service's own row and its event in one transaction. The examples' file is the one that `slotline init`
// writes, and their database only notes the statements that it is given.
func Example() {
	ctx := context.Background()
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example())) // in a service: config.Load("slotline.yaml")
	if err != nil {
		panic(err)
	}
	fake := newFakeDB()
	db := fake.open() // in a service: sql.Open("mysql", …), the database that holds the outbox

	p := producer.New(cfg)
	orders := producer.MustRegister[Order](p, "orders")

	o := Order{Carrier: "UA", OrderID: 9041113, PlacedAt: time.Now(), Total: "149.90"}
	err = p.Run(ctx, db, func(tx *producer.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET total = ? WHERE id = ?", o.Total, o.OrderID); err != nil {
			return err
		}
		return p.Emit(ctx, tx, orders.Upsert(o)) // written just before COMMIT
	})
	fmt.Println(err)
	fake.print()
	// Output:
	// <nil>
	// BEGIN
	// UPDATE orders SET
	// INSERT INTO slotline_outbox_00
	// COMMIT
}

// What a service does about each error of Run.
func ExampleProducer_Run() {
	ctx := context.Background()
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example()))
	if err != nil {
		panic(err)
	}
	fake := newFakeDB()
	fake.oldest = time.Hour // no relay has run for an hour
	db := fake.open()

	p := producer.New(cfg)
	orders := producer.MustRegister[Order](p, "orders")
	err = p.Run(ctx, db, func(tx *producer.Tx) error {
		return p.Emit(ctx, tx, orders.Upsert(Order{Carrier: "UA", OrderID: 9041113, PlacedAt: time.Now(), Total: "149.90"}))
	})
	switch {
	case errors.Is(err, producer.ErrBacklogged):
		fmt.Println("503, try again later: relay or Kafka is behind, nothing was written")
	case errors.Is(err, producer.ErrInvalidValue), errors.Is(err, producer.ErrTooLarge):
		fmt.Println("422: a value does not fit its column, nothing was written")
	case errors.Is(err, producer.ErrCommitUnknown):
		fmt.Println("500: the connection was lost in COMMIT, read the row and then decide")
	case err != nil:
		fmt.Println("500: nothing was written")
	}
	// Output:
	// 503, try again later: relay or Kafka is behind, nothing was written
}

// With a transaction of the caller's own Emit inserts at once: write the row, which locks it, first.
func ExampleProducer_Emit() {
	ctx := context.Background()
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example()))
	if err != nil {
		panic(err)
	}
	fake := newFakeDB()
	db := fake.open()

	p := producer.New(cfg)
	orders := producer.MustRegister[Order](p, "orders")
	gone := Order{Carrier: "UA", OrderID: 9041113, PlacedAt: time.Now()} // a delete needs tenant, id and month
	remove := func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		if _, err := tx.ExecContext(ctx, "DELETE FROM orders WHERE id = ?", gone.OrderID); err != nil {
			return err
		}
		if err := p.Emit(ctx, tx, orders.Delete(gone)); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(remove())
	fake.print()

	err = p.Emit(ctx, db, orders.Delete(gone)) // a pool is not a transaction
	fmt.Println(errors.Is(err, producer.ErrNotInTransaction))
	// Output:
	// <nil>
	// BEGIN
	// DELETE FROM orders
	// INSERT INTO slotline_outbox_00
	// COMMIT
	// true
}
