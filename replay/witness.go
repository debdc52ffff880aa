package replay

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/rowsum"
	"github.com/slotline/slotline/partitioner"
)

// witness is what the log says of one entity for one sink, without the events that are dead letters there.
type witness struct {
	before int64 // the greatest _ver below the mark: the sink must have it, or a greater one
	newest int64
	dead   bool // one was left out
	same   bool // the event of the version that the side has makes the row that it has
}

// right says that a side is as the log makes it. It is pure.
func (w *witness) right(side rowsum.Item) bool {
	if side.Rows == 0 {
		return w.before == 0
	}
	return w.same && side.Ver >= w.before
}

// witness reads the log once for all differences that are named, and says of each which side is wrong.
func (a *against) witness(ctx context.Context) error {
	named := a.out.Named
	if len(named) == 0 {
		return nil
	}
	letters, err := kafka.DeadLetters(ctx, a.o.Config, a.o.Logger, nil)
	if err != nil {
		return err
	}
	type place struct {
		sink string
		event.Partition
		offset int64
	}
	dead := map[place]bool{}
	for _, l := range letters {
		dead[place{l.Sink, l.Partition, l.Offset}] = true
	}
	var parts []event.Partition
	byKey := map[string][]*Disagreement{} // an entity may differ in two months
	for i := range named {
		d := &named[i]
		byKey[d.key] = append(byKey[d.key], d)
		for _, p := range a.partitions(d.where.table, d.Tenant) {
			if !slices.Contains(parts, p) {
				parts = append(parts, p)
			}
		}
	}
	history := &history{a.o.Config, a.o.Logger}
	logs, holes, err := history.stand(ctx, "verify", parts)
	if err != nil {
		return err
	}
	from, to := map[event.Partition]int64{}, map[event.Partition]int64{}
	var offsets int64
	for p, log := range logs {
		from[p], to[p] = log.Start, log.Stable
		offsets += log.Stable - log.Start
	}
	a.say("%d rows differ: reading %d offsets of the log, which decides", a.out.Differ, offsets)
	var view event.View
	var row event.Row
	err = history.scan(ctx, "verify", from, to, func(r *kgo.Record) {
		list := byKey[string(r.Key)]
		if len(list) == 0 || event.ParseView(kafka.Content(r), &view) != nil {
			return
		}
		t := list[0].where.table
		if t.DecodeView(&view, &row) != nil {
			return
		}
		ver := view.Version * 2
		if view.Op == event.Delete {
			ver++
		}
		p := event.Partition{Topic: r.Topic, Number: r.Partition}
		sum := rowsum.Of(t, &row, ver)
		for _, d := range list {
			if row.Month != d.where.month && d.where.month != partitioner.NoMonth {
				continue
			}
			for sink, w := range d.log {
				if dead[place{sink, p, r.Offset}] {
					w.dead = true
					continue
				}
				side := d.at.store
				if sink == liveSink {
					side = d.at.shard()
				}
				w.newest = max(w.newest, ver)
				if r.Offset < d.mark[p] {
					w.before = max(w.before, ver)
				}
				w.same = w.same || side.Ver == ver && side.Sum == sum
			}
		}
	})
	if err != nil {
		return err
	}
	return a.judge(ctx, holes)
}

// judge names the wrong side of each difference. One that dead letters explain is none.
func (a *against) judge(ctx context.Context, holes []string) error {
	kept := a.out.Named[:0]
	for _, d := range a.out.Named {
		shard, store := d.log[liveSink], d.log[a.out.Store]
		d.LogVer = max(shard.newest, store.newest)
		misplaced := d.at.found() != int(d.at.shard().Rows)
		if !misplaced && (shard.dead || store.dead) && shard.right(d.at.shard()) && store.right(d.at.store) {
			a.out.Differ--
			a.out.Equal++
			a.out.Dead++
			continue
		}
		if err := a.find(ctx, &d); err != nil {
			return err
		}
		own := a.own(&d)
		for i, r := range d.at.rows {
			if r.Rows > 0 && i != d.at.own {
				name := d.where.shards[i].name
				d.Wrong = append(d.Wrong, name)
				d.Why = fmt.Sprintf("it belongs to %s", own)
			}
		}
		switch {
		case d.LogVer == 0 && len(holes) > 0:
			d.Why = "the log has nothing of it, and begins late: " + holes[0]
		default:
			if !shard.right(d.at.shard()) {
				d.Wrong = append(d.Wrong, own)
			}
			if !store.right(d.at.store) {
				d.Wrong = append(d.Wrong, a.out.Store)
			}
			if s := d.at.shard(); d.Why == "" && s.Ver == d.at.store.Ver && s.Ver != 0 {
				d.Why = "one version, two images"
			}
		}
		kept = append(kept, d)
		a.say("%s", d.String())
	}
	a.out.Named = kept
	if n := a.out.Differ - int64(len(kept)); n > 0 {
		a.say("and %d more", n)
	}
	return nil
}

// own is the shard that an entity belongs to.
func (a *against) own(d *Disagreement) string {
	if d.where.table.Broadcast() {
		return d.where.shards[0].name
	}
	return a.o.Layout.ShardName(a.o.Layout.Route(d.Tenant, d.spread).Shard)
}

// find says where an entity is, if that is in two places of the shards that are compared.
func (a *against) find(ctx context.Context, d *Disagreement) error {
	if d.where.table.Broadcast() || len(d.Shards) == 0 {
		return nil
	}
	for _, s := range a.shards {
		rows, err := a.mysql.Find(ctx, s.name, d.where.table, d.Tenant, d.ID, partitioner.NoMonth)
		if err != nil {
			return err
		}
		for _, r := range rows {
			d.Places = append(d.Places, s.name+" "+r.Table)
		}
	}
	if len(d.Places) < 2 {
		d.Places = nil
	}
	return nil
}
