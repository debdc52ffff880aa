package integration

import (
	"bufio"
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the CSV has local times of America/New_York

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// csvFlight is one line of the CSV, read by code that shares nothing with the events.
type csvFlight struct {
	carrier, origin, dest string
	day, month            string // in UTC: "2013-01-31", "2013-01-01"
	cancelled             bool
	delay                 *float64 // at arrival
	miles                 float64
}

func csvFlights(t *testing.T, keep func(id uint64) bool) (list []csvFlight) {
	t.Helper()
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(nyc.CSV())
	lines.Scan()
	name := strings.Split(lines.Text(), ",")
	for id := uint64(1); lines.Scan(); id++ {
		if !keep(id) {
			continue
		}
		cell := map[string]string{}
		for i, text := range strings.Split(lines.Text(), ",") {
			cell[name[i]] = text
		}
		number := func(name string) float64 {
			n, err := strconv.ParseFloat(cell[name], 64)
			if err != nil {
				t.Fatalf("line %d, %s: %v", id+1, name, err)
			}
			return n
		}
		at := time.Date(int(number("year")), time.Month(number("month")), int(number("day")), int(number("hour")), int(number("minute")), 0, 0, zone).UTC()
		f := csvFlight{carrier: cell["carrier"], origin: cell["origin"], dest: cell["dest"], day: at.Format("2006-01-02"), month: at.Format("2006-01-") + "01",
			cancelled: cell["dep_time"] == "NA", miles: number("distance")}
		if cell["arr_delay"] != "NA" {
			delay := number("arr_delay")
			f.delay = &delay
		}
		list = append(list, f)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// answer is a row by column.
type answer = map[string]any

// about is a figure that an engine rounds: half of its last digit either way is the same.
type about struct{ value, within float64 }

func (a about) is(v any) bool {
	n, ok := v.(float64)
	return ok && math.Abs(n-a.value) <= a.within+1e-9
}

// analytics is a line whose rollups are those of docs/analytics.md.
type analytics struct {
	*wholeLine
	t    *testing.T
	doc  string
	csv  []csvFlight
	sink string
}

// waitRolledUp waits until the rollups have no lag.
func (a *analytics) waitRolledUp() {
	a.t.Helper()
	deadline := harness.Deadline(time.Minute)
	for {
		var s struct {
			Sinks []struct {
				Name    string
				Rollups *struct{ Pairs, Fills int }
			}
		}
		r := harness.Command{Args: []string{"-c", a.file, "status", "-o", "json"}, Name: "status"}.Run(a.t, time.Minute)
		if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
			a.t.Fatal(err)
		}
		for _, k := range s.Sinks {
			if k.Name == a.sink && k.Rollups != nil && k.Rollups.Pairs == 0 && k.Rollups.Fills == 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("the rollups are behind: %s", r.Stdout)
		}
		time.Sleep(200 * time.Millisecond) // a poll: the loop ends by the state it reads
	}
}

func (a *analytics) ask(sql string) (rows []answer) {
	a.t.Helper()
	r := harness.Command{Args: []string{"-c", a.file, "query", sql, "--sink", a.sink, "-o", "json", "--rows", "0"}, Name: "query"}.Run(a.t, time.Minute)
	if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil || r.Code != 0 {
		a.t.Fatalf("%s\nexit status %d, %v\n%s", sql, r.Code, err, r.Stderr)
	}
	return rows
}

// same compares rows in their order.
func (a *analytics) same(what string, got, want []answer) {
	a.t.Helper()
	if len(got) != len(want) {
		a.t.Errorf("%s: %d rows, the CSV has %d", what, len(got), len(want))
		return
	}
	wrong := 0
	for i := range want {
		equal := func(g, w any) bool {
			if near, ok := w.(about); ok {
				return near.is(g)
			}
			if number, ok := w.(float64); ok {
				if text, ok := g.(string); ok { // a sum, where the MySQL behind doristest makes a decimal of it
					n, err := strconv.ParseFloat(text, 64)
					return err == nil && n == number
				}
			}
			return g == w
		}
		if !maps.EqualFunc(got[i], want[i], equal) {
			if wrong++; wrong <= 3 {
				a.t.Errorf("%s, row %d: %v, the CSV has %v", what, i, got[i], want[i])
			}
		}
	}
	if wrong == 0 {
		a.t.Logf("%s: %d rows equal the CSV", what, len(want))
	}
}

// reached is how many offsets the sink has applied, over all partitions.
func (a *analytics) reached() (n int64) {
	a.t.Helper()
	if err := a.outbox.QueryRow("SELECT CAST(SUM(next_off) AS SIGNED) FROM slotline_progress WHERE sink = ?", a.sink).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// groups sorts the flights of the CSV by a key.
func (a *analytics) groups(key func(f *csvFlight) string) (names []string, of map[string][]*csvFlight) {
	of = map[string][]*csvFlight{}
	for i := range a.csv {
		k := key(&a.csv[i])
		of[k] = append(of[k], &a.csv[i])
	}
	return slices.Sorted(maps.Keys(of)), of
}

func cancelled(list []*csvFlight) (n float64) {
	for _, f := range list {
		if f.cancelled {
			n++
		}
	}
	return n
}

// delays are those of flights that arrived, in order.
func delays(list []*csvFlight) (values []float64) {
	for _, f := range list {
		if f.delay != nil {
			values = append(values, *f.delay)
		}
	}
	slices.Sort(values)
	return values
}

// checkRollups compares every row of both rollups.
func (a *analytics) checkRollups(when string) {
	a.t.Helper()
	var want []answer
	names, of := a.groups(func(f *csvFlight) string { return f.carrier + "|" + f.day + "|" + f.origin })
	for _, name := range names {
		list, key := of[name], strings.Split(name, "|")
		row := answer{"carrier": key[0], "day": key[1], "origin": key[2], "flights": float64(len(list)), "cancelled": cancelled(list), "delay": nil}
		if d := delays(list); len(d) > 0 {
			sum := 0.0
			for _, v := range d {
				sum += v
			}
			row["delay"] = about{sum / float64(len(d)), 1e-6}
		}
		want = append(want, row)
	}
	a.same(when+", flights_by_day", a.ask("SELECT carrier, day, origin, flights, cancelled, delay FROM flights_by_day_now ORDER BY carrier, day, origin"), want)

	want = nil
	names, of = a.groups(func(f *csvFlight) string { return f.carrier + "|" + f.month })
	for _, name := range names {
		list, key := of[name], strings.Split(name, "|")
		miles, routes := 0.0, map[string]bool{}
		for _, f := range list {
			miles += f.miles
			routes[f.dest] = true
		}
		want = append(want, answer{"carrier": key[0], "month": key[1], "flights": float64(len(list)), "cancelled": cancelled(list), "miles": miles, "routes": float64(len(routes))})
	}
	a.same(when+", flights_by_month", a.ask("SELECT carrier, month, flights, cancelled, miles, routes FROM flights_by_month_now ORDER BY carrier, month"), want)
}

// wanted are the answers by heading, from the CSV.
func (a *analytics) wanted() map[string][]answer {
	all := map[string][]answer{}
	add := func(heading string, row answer) { all[heading] = append(all[heading], row) }
	first := func(heading string, n int, order func(x, y answer) int) {
		slices.SortStableFunc(all[heading], order)
		all[heading] = all[heading][:min(n, len(all[heading]))]
	}
	down := func(column string) func(x, y answer) int {
		return func(x, y answer) int {
			number := func(r answer) float64 {
				if a, ok := r[column].(about); ok {
					return a.value
				}
				n, _ := r[column].(float64)
				return n
			}
			return cmp.Compare(number(y), number(x))
		}
	}
	carriers, byCarrier := a.groups(func(f *csvFlight) string { return f.carrier })
	months, byMonth := a.groups(func(f *csvFlight) string { return f.month })
	days, _ := a.groups(func(f *csvFlight) string { return f.day })
	number := func(month string) int {
		at, err := time.Parse(time.DateOnly, month)
		if err != nil {
			a.t.Fatal(err)
		}
		return 12*at.Year() + int(at.Month())
	}
	date := func(day string) time.Time {
		at, err := time.Parse(time.DateOnly, day)
		if err != nil {
			a.t.Fatal(err)
		}
		return at
	}
	before := 0.0
	for _, month := range months {
		tenants := map[string]bool{}
		for _, f := range byMonth[month] {
			tenants[f.carrier] = true
		}
		total := float64(len(byMonth[month]))
		add("Growth by month", answer{"month": month, "total": total, "tenants": float64(len(tenants)), "more": total - before})
		before = total
	}
	last := months[len(months)-1]
	retained := map[[2]string]float64{} // by first month and another
	slots, shards := map[uint64][]string{}, map[string][]string{}
	for _, carrier := range carriers {
		list := byCarrier[carrier]
		total, gone := float64(len(list)), cancelled(list)
		add("Top tenants", answer{"carrier": carrier, "total": total, "percent": about{100 * total / float64(len(a.csv)), 0.05}})
		add("Cancellations", answer{"carrier": carrier, "gone": gone, "total": total, "percent": about{100 * gone / total, 0.005}})
		active, newest, now, then := map[string]bool{}, "", 0.0, 0.0
		byDay := map[string][]*csvFlight{}
		for _, f := range list {
			active[f.month] = true
			newest = max(newest, f.day)
			byDay[f.day] = append(byDay[f.day], f)
			switch number(last) - number(f.month) {
			case 0:
				now++
			case 1:
				then++
			}
		}
		add("Tenants that grew or shrank most", answer{"carrier": carrier, "now": now, "before": then, "more": now - then, "abs": math.Abs(now - then)})
		begin := slices.Min(slices.Collect(maps.Keys(active)))
		for month := range active {
			retained[[2]string{begin, month}]++
		}
		if ago := date(days[len(days)-1]).Sub(date(newest)).Hours() / 24; ago > 30 {
			add("Tenants that fell silent", answer{"carrier": carrier, "last_day": newest, "days_ago": ago})
		}
		var worst []answer
		for _, day := range slices.Sorted(maps.Keys(byDay)) {
			row := answer{"carrier": carrier, "day": day, "flights": float64(len(byDay[day])), "gone": cancelled(byDay[day]), "delay_90": nil}
			if d := delays(byDay[day]); len(d) > 0 {
				row["delay_90"] = d[int(0.9*float64(len(d)))]
			}
			worst = append(worst, row)
		}
		slices.SortStableFunc(worst, down("gone"))
		add("Days that stand out", worst[0])
		slot := partitioner.XXH64.Sum(carrier) % 1024
		slots[slot] = append(slots[slot], carrier)
		shard := a.layout.ShardName(a.layout.Route(carrier, "1").Shard)
		if carrier == "DL" {
			shard = "s1 and s2"
		}
		shards[shard] = append(shards[shard], carrier)
	}
	for _, pair := range slices.SortedFunc(maps.Keys(retained), func(x, y [2]string) int { return slices.Compare(x[:], y[:]) }) {
		add("Retention by month", answer{"first": pair[0], "months_later": float64(number(pair[1]) - number(pair[0])), "tenants": retained[pair]})
	}
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		total := 0.0
		for _, carrier := range slots[slot] {
			total += float64(len(byCarrier[carrier]))
		}
		add("Skew of slots", answer{"slot": float64(slot), "tenants": float64(len(slots[slot])), "total": total,
			"times_the_average": about{total / (float64(len(a.csv)) / 1024), 0.05}})
	}
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		total, largest := 0.0, 0.0
		for _, carrier := range shards[shard] {
			total, largest = total+float64(len(byCarrier[carrier])), max(largest, float64(len(byCarrier[carrier])))
		}
		add("Skew of shards", answer{"shard": shard, "tenants": float64(len(shards[shard])), "flights": total, "largest": largest})
	}
	first("Top tenants", 20, down("total"))
	first("Tenants that grew or shrank most", 20, down("abs"))
	for _, row := range all["Tenants that grew or shrank most"] {
		delete(row, "abs")
	}
	first("Cancellations", len(carriers), down("percent"))
	first("Days that stand out", 20, down("gone"))
	first("Tenants that fell silent", len(carriers), down("days_ago"))
	first("Skew of slots", 20, down("total"))
	return all
}

var question = regexp.MustCompile("(?s)\n## ([^\n]*)\n[^#]*?```sql\n(.*?)```")

// checkAnswers asks every question of the page.
func (a *analytics) checkAnswers() {
	a.t.Helper()
	want := a.wanted()
	doc, _, _ := strings.Cut(a.doc, "\n## In Doris\n")
	asked := question.FindAllStringSubmatch(doc, -1)
	if n := strings.Count(doc, "```sql"); len(asked) != n {
		a.t.Errorf("%d of %d questions were asked", len(asked), n)
	}
	for _, m := range asked {
		if _, known := want[m[1]]; !known && m[1] != "Tenants that fell silent" {
			a.t.Errorf("%s: no answer was computed from the CSV", m[1])
		}
		a.same(m[1], a.ask(m[2]), want[m[1]])
	}
}

// mislead emits images of all flights that leave from where they go to: the life that follows changes a dimension of
// every slice.
func (a *analytics) mislead(flights []nyc.Flight) {
	a.t.Helper()
	p := producer.New(a.cfg)
	rows := producer.MustRegister[nyc.Row](p, "flights")
	for list := range slices.Chunk(flights, 100) {
		var events []producer.Event
		for i := range list {
			f := &list[i]
			events = append(events, rows.Upsert(nyc.Row{Carrier: f.Carrier, FlightID: f.ID, SchedDep: f.SchedDep, Origin: f.Dest, Dest: f.Origin,
				Status: "planned", Distance: 7}))
		}
		if err := p.Run(a.t.Context(), a.outbox, func(tx *producer.Tx) error { return p.Emit(a.t.Context(), tx, events...) }); err != nil {
			a.t.Fatal(err)
		}
	}
}

// P9: flights go through the whole line, with updates, a changed dimension of each, deletes, and a replay of the whole
// topic: every row of the rollups that the sink's process keeps, and every answer of docs/analytics.md, is that of the CSV.
func TestP9_AnalyticsAnswersAreThoseOfTheCSV(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/analytics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rollups, _ := strings.Cut(string(doc), "```yaml\n")
	rollups, _, _ = strings.Cut(rollups, "```")
	keep := func(id uint64) bool { return id%997 == 0 }
	a := &analytics{wholeLine: newLine(t, sharedServers(t), rollups), t: t, doc: string(doc), csv: csvFlights(t, keep), sink: "clickhouse"}
	a.play(keep)
	a.checkAnswers()
}

// P9: the same where Doris keeps the rollups.
func TestP9_DorisAnalyticsAreThoseOfTheCSV(t *testing.T) {
	harness.Proof(t)
	doc, err := os.ReadFile("../docs/analytics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rollups, _ := strings.Cut(string(doc), "```yaml\n")
	rollups, _, _ = strings.Cut(rollups, "```")
	server, name := newDoris(t), harness.Name(t)
	server.newDatabase(t, name)
	w := newLineAt(t, sharedServers(t), name, rollups)
	w.file = w.write(t, regexp.MustCompile(`(?m)^  clickhouse: .*$`).ReplaceAllLiteralString(w.text(t), "  "+server.yaml(t, name, 2)))
	if w.cfg, err = config.Load(w.file); err != nil {
		t.Fatal(err)
	}
	w.run(t, 0, "apply")
	keep := func(id uint64) bool { return id%997 == 5 }
	a := &analytics{wholeLine: w, t: t, doc: string(doc), csv: csvFlights(t, keep), sink: "doris"}
	a.play(keep)
	months, byMonth := a.groups(func(f *csvFlight) string { return f.month })
	var want []answer
	before := 0.0
	for _, month := range months {
		total := float64(len(byMonth[month]))
		want = append(want, answer{"month": month, "total": total, "more": total - before})
		before = total
	}
	inDoris := regexp.MustCompile("(?s)\n## In Doris\n.*?```sql\n(.*?)```").FindStringSubmatch(string(doc))
	if inDoris == nil {
		t.Fatal("docs/analytics.md asks nothing of Doris")
	}
	a.same("In Doris", a.ask(inDoris[1]), want)
}

// play emits the flights, each first in the other direction, and has the whole topic applied a second time.
func (a *analytics) play(keep func(uint64) bool) {
	t := a.t
	t.Helper()
	flights, err := nyc.Flights(keep)
	if err != nil {
		t.Fatal(err)
	}
	a.mislead(flights)
	run := a.start(t, "run")
	a.waitDrained(t, time.Minute)
	a.waitRolledUp()
	if n := a.ask("SELECT count(*) AS n FROM flights_by_day_now WHERE origin = 'LAX'"); n[0]["n"] == 0.0 {
		t.Error("the rollups have no flight of the other direction: no dimension will change")
	}
	a.emit(t, flights, seedOf(t))
	a.waitDrained(t, time.Minute)
	a.waitRolledUp()
	a.checkRollups("once")

	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
	reached := a.reached()
	if _, err := a.outbox.Exec("UPDATE slotline_progress SET next_off = 0, applied_off = 0 WHERE sink = ?", a.sink); err != nil {
		t.Fatal(err)
	}
	run = a.start(t, "run")
	for deadline := harness.Deadline(time.Minute); a.reached() < reached; {
		if time.Now().After(deadline) {
			t.Fatalf("replayed up to %d of %d offsets", a.reached(), reached)
		}
		time.Sleep(200 * time.Millisecond) // a poll: the loop ends by the state it reads
	}
	a.waitRolledUp()
	a.checkRollups("replayed")
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("slotline run ended with status %d", r.Code)
	}
}
