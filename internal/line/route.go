package line

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// TenantRoute is where a tenant's events and rows go.
type TenantRoute struct {
	Line        string       `json:"line"`
	LayoutEpoch int64        `json:"layout_epoch"`
	Tenant      string       `json:"tenant"`
	Placement   string       `json:"placement"` // shared, dedicated, spread(n)
	Lane        int          `json:"lane"`
	Places      []SlotPlace  `json:"places"` // one, or one per placed slot in spread order
	Tables      []RouteTable `json:"tables"`
}

// RouteTable is one table as it is in the tenant's shards.
type RouteTable struct {
	Name  string `json:"name"` // physical; <yyyymm> stands for a month
	Topic string `json:"topic"`
}

// SlotPlace is where one slot lives.
type SlotPlace struct {
	Slot      partitioner.Slot `json:"slot"`
	Partition int32            `json:"partition"`
	Shard     string           `json:"shard"`
	Database  string           `json:"database"`
}

// checkTenant refuses what cannot be a tenant.
func checkTenant(tenant string) error {
	if len(tenant) == 0 || len(tenant) > 64 || strings.ContainsRune(tenant, 0) {
		return &fault.Error{Code: "SL9002", Class: fault.Usage,
			What: fmt.Sprintf("tenant %q has %d bytes", tenant, len(tenant)),
			Do:   "write a tenant of 1 to 64 bytes without NUL, as its column holds it; an integer in decimal"}
	}
	return nil
}

// RouteOf answers from the file alone while its layout is the first, whose slot→partition map is computed; that of a later
// one is asked of the outbox database.
func RouteOf(ctx context.Context, file, tenant string) (*TenantRoute, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	if err := checkTenant(tenant); err != nil {
		return nil, err
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		return nil, err
	}
	layout, err := partitioner.New(spec)
	if err == nil && cfg.Layout.Epoch > 1 {
		l := New(cfg, slog.New(slog.DiscardHandler))
		defer l.Close()
		var inForce *partitioner.Layout
		if inForce, err = l.appliedLayout(ctx); err == nil && inForce != nil { // else the first apply is to come
			layout, err = agree(cfg.File, cfg.Layout, cfg.Kafka.Partitions, inForce)
		}
	}
	if err != nil {
		return nil, err
	}
	r := &TenantRoute{Line: cfg.Line, LayoutEpoch: layout.Epoch(), Tenant: tenant,
		Placement: layout.Placement(tenant).String(), Lane: partitioner.Lane(tenant, cfg.Outbox.Lanes)}
	for _, route := range layout.Routes(tenant) {
		name := layout.ShardName(route.Shard) // a layout orders shards by name, a file as it likes
		shard := cfg.Shards[slices.IndexFunc(cfg.Shards, func(s config.Shard) bool { return s.Name == name })]
		r.Places = append(r.Places, SlotPlace{route.Slot, route.Partition, shard.Name, shard.DSN.Redacted()})
	}
	for _, t := range cfg.Tables {
		table := RouteTable{Name: t.Name, Topic: cfg.Topic(t)}
		switch {
		case t.Broadcast():
			continue // in every shard, whatever the tenant
		case t.Month != event.None:
			table.Name += "_<yyyymm>"
		}
		r.Tables = append(r.Tables, table)
	}
	return r, nil
}

// WriteText prints the route for a person.
func (r *TenantRoute) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s  layout epoch %d  tenant %s  %s\n", r.Line, r.LayoutEpoch, r.Tenant, r.Placement)
	fmt.Fprintf(w, "lane   %02d  (slotline_outbox_%02d)\n", r.Lane, r.Lane)
	for _, t := range r.Tables {
		fmt.Fprintf(w, "table  %s  in topic %s\n", t.Name, t.Topic)
	}
	t := newTable(w, "SLOT", "PARTITION", "SHARD", "DATABASE")
	for _, p := range r.Places {
		t.row(fmt.Sprint(p.Slot), fmt.Sprint(p.Partition), p.Shard, p.Database)
	}
	return t.flush()
}
