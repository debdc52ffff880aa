package progress

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Swap is for tables that change places: those that sink live keeps with those that sink beside keeps. It is called in a
// session that has locked the table for writing. Both have applied what lies below the lesser of their two offsets, so
// there live goes on; its owner epochs grow by one and its owners are gone, so that no statement that was made before
// hits the tables that come. beside's rows are deleted, and rows of the same offsets are made for sink after, which keeps
// the tables that live had; "" makes none. Rows of topics that are not given stay as they are.
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
		statements := []string{rewindSQL(live, topic, both),
			"DELETE FROM `slotline_progress` WHERE `sink`=" + quoteText(beside) + " AND `topic`=" + quoteText(topic)}
		if after != "" {
			statements = append(statements, insertSQL(after, topic, both))
		}
		for _, statement := range statements {
			if _, err := q.ExecContext(ctx, statement); err != nil {
				return err
			}
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

// rewindSQL sets the rows of one topic in one statement: each would be a commit.
func rewindSQL(sink, topic string, rows []Row) string {
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
	return "UPDATE `slotline_progress` SET `owner`='',`owner_epoch`=`owner_epoch`+1," +
		column("next_off", func(r *Row) int64 { return r.Next }) + "," +
		column("applied_off", func(r *Row) int64 { return r.Applied }) + "," +
		column("leader_epoch", func(r *Row) int64 { return int64(r.LeaderEpoch) }) +
		",`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=" + quoteText(sink) + " AND `topic`=" + quoteText(topic) +
		" AND `part` IN (" + strings.Join(parts, ",") + ")"
}

func insertSQL(sink, topic string, rows []Row) string {
	var b strings.Builder
	b.WriteString("INSERT INTO `slotline_progress` (`sink`,`topic`,`part`,`next_off`,`applied_off`,`topic_id`,`leader_epoch`," +
		"`owner`,`owner_epoch`,`updated_at`) VALUES ")
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("(" + quoteText(sink) + "," + quoteText(topic) + "," + strconv.Itoa(int(r.Number)) + "," +
			strconv.FormatInt(r.Next, 10) + "," + strconv.FormatInt(r.Applied, 10) + ",x'")
		for _, c := range r.TopicID {
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
		b.WriteString("'," + strconv.Itoa(int(r.LeaderEpoch)) + ",'',0,UTC_TIMESTAMP(6))")
	}
	return b.String()
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
