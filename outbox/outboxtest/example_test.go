package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/outbox/outboxtest"
	"github.com/slotline/slotline/producer"
)

// Order is the image of an order, in the table that `slotline init` writes.
type Order struct {
	Carrier  string    `slotline:"carrier,tenant"`
	OrderID  uint64    `slotline:"order_id,id"`
	PlacedAt time.Time `slotline:"placed_at,month"`
	Total    string    `slotline:"total"`
}

// shop is a service: it changes a row, and emits the change, in one transaction.
type shop struct {
	db     *sql.DB
	p      *producer.Producer
	orders *producer.Table[Order]
}

func newShop(cfg *config.Config, db *sql.DB) *shop {
	p := producer.New(cfg)
	return &shop{db, p, producer.MustRegister[Order](p, "orders")}
}

var errClosed = errors.New("the order is closed")

func (s *shop) setTotal(ctx context.Context, o Order) error {
	return s.p.Run(ctx, s.db, func(tx *producer.Tx) error {
		r, err := tx.ExecContext(ctx, "UPDATE orders SET total = ? WHERE id = ? AND NOT closed", o.Total, o.OrderID)
		if err != nil {
			return err
		}
		if err := s.p.Emit(ctx, tx, s.orders.Upsert(o)); err != nil {
			return err
		}
		if n, _ := r.RowsAffected(); n == 0 {
			return errClosed
		}
		return nil
	})
}

// A test of a service: what it emits, and that it emits nothing when its transaction fails.
func Example() {
	testSetTotal := func(t testing.TB, cfg *config.Config) {
		out := outboxtest.New(t, cfg)
		s := newShop(cfg, out.DB)
		o := Order{Carrier: "UA", OrderID: 9041113, PlacedAt: time.Now(), Total: "149.90"}

		fmt.Println(s.setTotal(t.Context(), o))
		out.Want(t, s.orders.Upsert(o))

		out.Answer(func(statement string, args []any) (outboxtest.Answer, error) {
			return outboxtest.Answer{Affected: 0}, nil // as if the order was closed
		})
		fmt.Println(s.setTotal(t.Context(), o))
		out.Want(t) // nothing
		out.Answer(nil)

		out.Backlogged(true)
		fmt.Println(errors.Is(s.setTotal(t.Context(), o), producer.ErrBacklogged))
		out.Want(t)
		out.Backlogged(false)

		// A wrong expectation says which column differs.
		s = newShop(cfg, out.DB)
		fmt.Println(s.setTotal(t.Context(), o))
		o.Total = "150"
		out.Want(t, s.orders.Upsert(o))
	}

	cfg, err := config.Parse("slotline.yaml", []byte(config.Example())) // in a service: config.Load("slotline.yaml")
	if err != nil {
		panic(err)
	}
	t := &printer{} // in a test: its *testing.T
	testSetTotal(t, cfg)
	t.end()
	// Output:
	// <nil>
	// the order is closed
	// true
	// <nil>
	// FAIL outboxtest: tenant "UA": 1 events were committed, 1 wanted
	//   1. upsert orders/UA/9041113
	//      column total is "149.90", wanted "150.00"
}
