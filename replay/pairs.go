package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/sinks/mysql"
)

// pair is a live table and the one that takes its place, or took it.
type pair struct {
	live, beside mysql.PhysicalTable
}

// pairing finds the tables of a job and of its suffix.
type pairing struct {
	tables       []string // logical
	suffix       string
	live, beside *mysql.Sink
}

func (r *Replay) pairing(j *Job, suffix string) (*pairing, error) {
	live, err := r.sinkOf(j, liveSink, "")
	if err != nil {
		return nil, err
	}
	beside, err := r.sinkOf(j, liveSink, suffix)
	if err != nil {
		live.Close()
		return nil, err
	}
	return &pairing{j.Spec.Tables, suffix, live, beside}, nil
}

func (p *pairing) close() {
	p.live.Close()
	p.beside.Close()
}

// find lists them, each live table with the one beside it, in order of names; one that has no other side is in lone. It
// asks q alone, which may have locked them.
func (p *pairing) find(ctx context.Context, q progress.Querier) (pairs []pair, lone []mysql.PhysicalTable, err error) {
	live, err := p.named(ctx, q, p.live)
	if err != nil {
		return nil, nil, err
	}
	beside, err := p.named(ctx, q, p.beside)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range live {
		at := slices.IndexFunc(beside, func(b mysql.PhysicalTable) bool { return b.Name == l.Name+p.suffix })
		if at < 0 {
			lone = append(lone, l)
			continue
		}
		pairs = append(pairs, pair{l, beside[at]})
		beside = slices.Delete(beside, at, at+1)
	}
	return pairs, append(lone, beside...), nil
}

func (p *pairing) named(ctx context.Context, q progress.Querier, s *mysql.Sink) ([]mysql.PhysicalTable, error) {
	list, err := s.TableNames(ctx, q)
	return slices.DeleteFunc(list, func(t mysql.PhysicalTable) bool { return !slices.Contains(p.tables, t.Table.Name) }), err
}

// complete makes the missing side of each pair, so that every month has both. What is left of a month that was retired
// meanwhile is dropped.
func (p *pairing) complete(ctx context.Context, q progress.Querier, shard string) error {
	_, lone, err := p.find(ctx, q)
	if err != nil {
		return err
	}
	for _, t := range lone {
		other := p.beside
		if strings.HasSuffix(t.Name, p.suffix) {
			other = p.live
		}
		err := other.MakeTable(ctx, shard, t.Table, t.Month)
		if mysql.IsRetired(err) && other == p.live {
			_, err = q.ExecContext(ctx, "DROP TABLE IF EXISTS "+mysqldb.Ident(t.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drop drops the job's tables with a suffix, one after the other: cut off, it goes on where it stopped.
func (r *Replay) drop(ctx context.Context, j *Job, suffix string) (int, error) {
	p, err := r.pairing(j, suffix)
	if err != nil {
		return 0, err
	}
	defer p.close()
	list, err := p.named(ctx, r.db, p.beside)
	if err != nil {
		return 0, r.wrap(err)
	}
	for _, p := range list {
		if _, err := r.long.ExecContext(ctx, "DROP TABLE IF EXISTS "+mysqldb.Ident(p.Name)); err != nil {
			return 0, r.wrap(err)
		}
	}
	return len(list), nil
}

// namesOf is what a person reads of tables: "flights_2013MM__rb_rb7f3a (12 tables), airports".
func namesOf(list []mysql.PhysicalTable) string {
	var names []string
	for i := 0; i < len(list); {
		n := i
		for n < len(list) && list[n].Table == list[i].Table {
			n++
		}
		name := list[i].Name
		if n-i > 1 {
			name = fmt.Sprintf("%s .. %s (%d tables)", name, list[n-1].Name, n-i)
		}
		names = append(names, name)
		i = n
	}
	return strings.Join(names, ", ")
}
