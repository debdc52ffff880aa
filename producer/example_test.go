package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/producer"
)

// Flight is the image of a flight; its tags name the columns of table flights in slotline.yaml.
type Flight struct {
	Carrier  string    `slotline:"carrier,tenant"`
	FlightID uint64    `slotline:"flight_id,id"`
	SchedDep time.Time `slotline:"sched_dep,month"`
	Status   string    `slotline:"status"`
}

// Run writes the service's own row and the event in one transaction. The database of the examples is one that only
// notes what it is told.
func Example() {
	fake := newFakeDB()
	db, cfg := fake.open(), testConfig() // sql.Open, config.Load
	ctx := context.Background()

	p := producer.New(cfg)
	flights := producer.MustRegister[Flight](p, "flights")
	f := Flight{Carrier: "UA", FlightID: 1545, SchedDep: time.Now(), Status: "departed"}
	err := p.Run(ctx, db, func(tx *producer.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE flight SET status = ? WHERE id = ?", f.Status, f.FlightID); err != nil {
			return err
		}
		return p.Emit(ctx, tx, flights.Upsert(f)) // buffered; one INSERT per lane before COMMIT
	})
	if errors.Is(err, producer.ErrBacklogged) {
		fmt.Println("answer 503: relay or Kafka is behind, nothing was written")
	}
	fmt.Println(err)
	for _, statement := range fake.statements() {
		fmt.Println(strings.Join(strings.Fields(statement)[:min(3, len(strings.Fields(statement)))], " "))
	}
	// Output:
	// <nil>
	// BEGIN
	// UPDATE flight SET
	// INSERT INTO slotline_outbox_00
	// COMMIT
}

// With a transaction of the caller's own Emit inserts at once: write the row, which locks it, first.
func ExampleProducer_Emit() {
	fake := newFakeDB()
	db, cfg := fake.open(), testConfig()
	ctx := context.Background()

	p := producer.New(cfg)
	flights := producer.MustRegister[Flight](p, "flights")
	gone := Flight{Carrier: "UA", FlightID: 1545, SchedDep: time.Now()}
	remove := func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "DELETE FROM flight WHERE id = ?", gone.FlightID); err != nil {
			return err
		}
		if err := p.Emit(ctx, tx, flights.Delete(gone)); err != nil {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(remove())

	err := p.Emit(ctx, db, flights.Delete(gone)) // a pool is not a transaction
	fmt.Println(errors.Is(err, producer.ErrNotInTransaction))
	// Output:
	// <nil>
	// true
}

var _ producer.Beginner = (*sql.DB)(nil)
