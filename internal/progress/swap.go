package progress

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Swap is for tables that change places: those that sink live keeps with those that sink beside keeps. It is called in a
// session that has locked the table for writing. Both have applied what lies below the lesser of their two offsets, so
// there live goes on, and whoever keeps the tables that live had: sink after, to which beside's rows go. Owner epochs grow by
// one and owners are gone, so that no statement that was made before hits the tables that come. All of a topic is one
// statement: where the tables do not change places in the end, Rename has beside go on as if nothing had been. Rows of topics
// that are not given stay as they are.
func Swap(ctx context.Context, q Querier, topics []string, live, beside, after string) error {
	rows, err := List(ctx, q, live)
	if err != nil {
		return err
	}
	others, err := List(ctx, q, beside)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		var both []Row
		for _, r := range rows {
			at := slices.IndexFunc(others, func(o Row) bool { return o.Partition == r.Partition })
			if r.Topic == topic && at >= 0 {
				both = append(both, lesser(r, others[at]))
			}
		}
		if len(both) == 0 {
			continue
		}
		if _, err := q.ExecContext(ctx, swapSQL(live, beside, after, topic, both)); err != nil {
			return err
		}
	}
	return nil
}

// lesser is where both rows' tables hold everything below.
func lesser(live, beside Row) Row {
	r := live
	if beside.Next < live.Next {
		r.Next, r.LeaderEpoch = beside.Next, beside.LeaderEpoch
	}
	r.Applied = min(live.Applied, beside.Applied)
	return r
}

// swapSQL sets the rows of one topic, of both sinks.
func swapSQL(live, beside, after, topic string, rows []Row) string {
	column := func(name string, value func(r *Row) int64) string {
		var b strings.Builder
		b.WriteString("`" + name + "`=CASE `part`")
		for i := range rows {
			b.WriteString(" WHEN " + strconv.Itoa(int(rows[i].Number)) + " THEN " + strconv.FormatInt(value(&rows[i]), 10))
		}
		b.WriteString(" ELSE `" + name + "` END")
		return b.String()
	}
	parts := make([]string, len(rows))
	for i, r := range rows {
		parts[i] = strconv.Itoa(int(r.Number))
	}
	return "UPDATE `slotline_progress` SET `sink`=IF(`sink`=" + quoteText(live) + ",`sink`," + quoteText(after) + ")," +
		"`owner`='',`owner_epoch`=`owner_epoch`+1," +
		column("next_off", func(r *Row) int64 { return r.Next }) + "," +
		column("applied_off", func(r *Row) int64 { return r.Applied }) + "," +
		column("leader_epoch", func(r *Row) int64 { return int64(r.LeaderEpoch) }) +
		",`updated_at`=UTC_TIMESTAMP(6) WHERE `sink` IN (" + quoteText(live) + "," + quoteText(beside) + ") AND `topic`=" + quoteText(topic) +
		" AND `part` IN (" + strings.Join(parts, ",") + ")"
}

// Rename has the rows that a sink has in some topics be another's, which has none there.
func Rename(ctx context.Context, q Querier, from, to string, topics []string) error {
	for _, topic := range topics {
		_, err := q.ExecContext(ctx, "UPDATE `slotline_progress` SET `sink`="+quoteText(to)+" WHERE `sink`="+quoteText(from)+" AND `topic`="+quoteText(topic))
		if err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes a sink's rows of some topics: what it kept is gone.
func Forget(ctx context.Context, q Querier, sink string, topics []string) error {
	for _, topic := range topics {
		if _, err := q.ExecContext(ctx, "DELETE FROM `slotline_progress` WHERE `sink`="+quoteText(sink)+" AND `topic`="+quoteText(topic)); err != nil {
			return err
		}
	}
	return nil
}
