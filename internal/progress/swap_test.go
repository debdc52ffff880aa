package progress

import (
	"testing"

	"github.com/slotline/slotline/event"
)

func TestSwapGoesOnFromTheLesser(t *testing.T) {
	part := event.Partition{Topic: "t", Number: 3}
	row := func(next, applied int64, epoch int32) Row {
		return Row{Key: Key{"mysql", part}, Next: next, Applied: applied, LeaderEpoch: epoch, TopicID: event.TopicID{1}}
	}
	for _, c := range []struct{ live, beside, want Row }{
		{row(10, 10, 2), row(7, 7, 1), row(7, 7, 1)},
		{row(7, 9, 1), row(10, 10, 2), row(7, 9, 1)},
		{row(7, 7, 1), row(7, 7, 4), row(7, 7, 1)},
	} {
		if got := lesser(c.live, c.beside); got != c.want {
			t.Errorf("of %+v and %+v: %+v", c.live, c.beside, got)
		}
	}
}

func TestSwapStatement(t *testing.T) {
	rows := []Row{
		{Key: Key{"mysql", event.Partition{Topic: "t", Number: 0}}, Next: 7, Applied: 9, LeaderEpoch: -1},
		{Key: Key{"mysql", event.Partition{Topic: "t", Number: 5}}, Next: 8, Applied: 8, LeaderEpoch: 2, TopicID: event.TopicID{0xAB}},
	}
	want := "UPDATE `slotline_progress` SET `sink`=IF(`sink`='mysql',`sink`,'mysql__old_rb7f3a'),`owner`='',`owner_epoch`=`owner_epoch`+1," +
		"`next_off`=CASE `part` WHEN 0 THEN 7 WHEN 5 THEN 8 ELSE `next_off` END," +
		"`applied_off`=CASE `part` WHEN 0 THEN 9 WHEN 5 THEN 8 ELSE `applied_off` END," +
		"`leader_epoch`=CASE `part` WHEN 0 THEN -1 WHEN 5 THEN 2 ELSE `leader_epoch` END," +
		"`updated_at`=UTC_TIMESTAMP(6) WHERE `sink` IN ('mysql','mysql__rb_rb7f3a') AND `topic`='t' AND `part` IN (0,5)"
	if got := swapSQL("mysql", "mysql__rb_rb7f3a", "mysql__old_rb7f3a", "t", rows); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
