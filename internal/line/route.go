package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// tenantBytesMax is what records and lane tables hold.
const tenantBytesMax = 64

// tenantOf brings a tenant that a person typed into the form that rows and keys have, and refuses one that no table holds.
func tenantOf(cfg *config.Config, text string) (string, error) {
	refuse := func(what string, why ...string) (string, error) {
		return "", &fault.Error{Code: "SL9002", Class: fault.Usage, What: what, Why: strings.Join(why, "\n"),
			Do: fmt.Sprintf("write a tenant of 1 to %d bytes without NUL, as its column holds it; an integer in decimal", tenantBytesMax)}
	}
	if len(text) == 0 || len(text) > tenantBytesMax || strings.ContainsRune(text, 0) {
		return refuse(fmt.Sprintf("tenant %.70q has %d bytes", text, len(text)))
	}
	held, tenants := "", false
	var why []string
	for _, t := range cfg.Tables {
		if t.Tenant == event.None {
			continue
		}
		tenants = true
		c := &t.Columns[t.Tenant]
		switch canonical, problem := columnText(c, text); {
		case problem != "":
			why = append(why, fmt.Sprintf("%s.%s is %s: %s", t.Name, c.Name, c.Type, problem))
		case held == "" || canonical == text:
			held = canonical
		}
	}
	if tenants && held == "" {
		return refuse(fmt.Sprintf("tenant %q fits into no table of %s", text, cfg.File), why...)
	}
	return cmp.Or(held, text), nil
}

// columnText brings what a person typed into the form that rows and keys have; problem says why the column cannot hold it.
func columnText(c *event.Column, text string) (canonical, problem string) {
	number := func(n string, err error, bounds string) (string, string) {
		switch {
		case errors.Is(err, strconv.ErrRange):
			return "", "that is outside " + bounds
		case err != nil:
			return "", "that is no whole number"
		}
		return n, ""
	}
	switch n := c.Type.Length; c.Type.Kind {
	case event.Int32:
		v, err := strconv.ParseInt(text, 10, 32)
		return number(strconv.FormatInt(v, 10), err, "-2147483648 to 2147483647")
	case event.Int64:
		v, err := strconv.ParseInt(text, 10, 64)
		return number(strconv.FormatInt(v, 10), err, "the range of int64")
	case event.Uint64:
		if digits, negative := strings.CutPrefix(text, "-"); negative && digits != "" && strings.Trim(digits, "0123456789") == "" {
			return "", "that is less than 0"
		}
		v, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 64)
		return number(strconv.FormatUint(v, 10), err, "the range of uint64")
	case event.String:
		if has := utf8.RuneCountInString(text); has > n {
			return "", fmt.Sprintf("that has %d characters", has)
		}
	}
	if text == "" {
		return "", "that is empty"
	}
	return text, ""
}

// RouteOf answers from the file alone while its layout is the first, whose slot→partition map is computed; that of a later
// one is asked of the outbox database.
func RouteOf(ctx context.Context, file, tenant string) (*TenantRoute, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	if tenant, err = tenantOf(cfg, tenant); err != nil {
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
