package reader_test

import (
	"context"
	"fmt"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/reader"
)

// A page of a tenant's flights of one quarter, the newest month first. The cursor of its last row is what the next page begins
// behind.
func Example() {
	page := func(ctx context.Context, r *reader.Reader, tenant, after string) (cursor string, err error) {
		q := reader.Query{Table: "flights", Tenant: tenant, After: after, Limit: 50, Descending: true,
			From:    time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC),
			To:      time.Date(2013, 4, 1, 0, 0, 0, 0, time.UTC),
			Columns: "flight_id, status", Where: "origin = ?", Args: []any{"JFK"}}
		for row, err := range r.Query(ctx, q) {
			if err != nil {
				return "", err
			}
			var id uint64
			var status string
			if err := row.Scan(&id, &status); err != nil {
				return "", err
			}
			fmt.Println(id, status, row.Version())
			cursor = row.Cursor()
		}
		return cursor, nil
	}
	cfg, err := config.Load("slotline.yaml")
	if err != nil {
		fmt.Println("no file")
		return
	}
	r, err := reader.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	if _, err := page(context.Background(), r, "UA", ""); err != nil {
		fmt.Println(err)
	}
	// Output: no file
}

// SQL of your own goes to the places of a tenant: all of its tables are in the same shards, so that they can be joined there.
func ExampleReader_Places() {
	legs := func(ctx context.Context, r *reader.Reader, tenant string, month time.Time) error {
		flights, err := r.Places(ctx, "flights", tenant, month, month.AddDate(0, 1, 0))
		if err != nil {
			return err
		}
		for _, p := range flights { // one month: one place in each of the tenant's shards
			rows, err := p.DB.QueryContext(ctx, "SELECT f.flight_id, n.text FROM "+p.Table+" f JOIN notes n ON n.carrier = f.carrier AND n.flight_id = f.flight_id "+
				"WHERE f.carrier = ? AND f._deleted = 0 AND n._deleted = 0", tenant)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id uint64
				var text string
				if err := rows.Scan(&id, &text); err != nil {
					return err
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	_ = legs
	// Output:
}
