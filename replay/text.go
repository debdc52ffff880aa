package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/internal/mysqldb"
)

// short prints a duration as a person says it: 35 ms, 4.2 s, 11 min, 3h12m.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d).Milliseconds())
	case d < time.Minute:
		return strings.Replace(fmt.Sprintf("%.1f s", d.Seconds()), ".0 s", " s", 1)
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// meter tells how fast a job is, from how far it was some seconds ago.
type meter struct {
	points []meterPoint
}

type meterPoint struct {
	at   time.Time
	done int64
}

// meterSpan is what the rate is taken over.
const meterSpan = 10 * time.Second

func newMeter() *meter { return &meter{} }

// text is a bar, what is done, the rate, and when it will be over.
func (m *meter) text(now time.Time, done, all int64, s standing) string {
	m.points = append(m.points, meterPoint{now, done})
	for len(m.points) > 2 && now.Sub(m.points[1].at) >= meterSpan {
		m.points = m.points[1:]
	}
	first := m.points[0]
	rate := 0.0
	if d := now.Sub(first.at).Seconds(); d > 0 {
		rate = float64(done-first.done) / d
	}
	const width = 18
	share := min(float64(done)/float64(max(all, 1)), 1)
	bar := strings.Repeat("#", int(share*width))
	text := fmt.Sprintf("[%-*s] %3d %%  %d of %d", width, bar, int(share*100), done, all)
	bar = strings.Repeat(".", width-len(bar))
	text = strings.Replace(text, strings.Repeat(" ", len(bar))+"]", bar+"]", 1)
	if rate >= 1 {
		text += fmt.Sprintf("  %.1fk ev/s  eta %s", rate/1000, short(time.Duration(float64(max(0, all-done))/rate*float64(time.Second))))
	}
	if s.liveAlive {
		text += "  live lag " + short(s.liveBehind)
	}
	return text
}

// quote is a name as a string of SQL: names are checked, and hold nothing that needs more.
func quote(name string) string {
	return "'" + strings.ReplaceAll(strings.Trim(mysqldb.Ident(name), "`"), "'", "''") + "'"
}
