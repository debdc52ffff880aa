package line

import (
	"context"
	"fmt"
	"io"

	"github.com/slotline/slotline/replay"
)

// ReplayTenant writes the rows of one tenant, as they were, to a file or another database.
func (l *Line) ReplayTenant(ctx context.Context, to string, o replay.TenantOptions) (*TenantRows, error) {
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	var err error
	if o.Tenant, err = tenantOf(l.Config, o.Tenant); err != nil {
		return nil, err
	}
	out, err := replay.OpenRowOutput(ctx, l.Config, to)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	o.Config, o.Layout, o.Logger, o.To = l.Config, l.layout, l.Log, out
	rows, err := replay.Tenant(ctx, o)
	if err == nil {
		err = out.Done(ctx)
	}
	if rows == nil || err != nil {
		return nil, err
	}
	return &TenantRows{rows}, nil
}

// TenantRows is what was written, for a person.
type TenantRows struct {
	*replay.TenantRows
}

// WriteText prints a line for each table.
func (r *TenantRows) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "tenant %s: %d events of %d offsets in %d partitions", r.Tenant, r.Events, r.Offsets, r.Partitions)
	if r.Refused > 0 {
		fmt.Fprintf(w, ", and %d that make no row", r.Refused)
	}
	fmt.Fprintln(w)
	for _, t := range r.Tables {
		if _, err := fmt.Fprintf(w, "  %-20s %d rows, %d deleted\n", t.Table, t.Rows, t.Deleted); err != nil {
			return err
		}
	}
	return nil
}
