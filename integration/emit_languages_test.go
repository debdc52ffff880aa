package integration

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/languages"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

const languagesDir = "../examples/languages/"

// Go, plain SQL and Java append the rows of rows.jsonl, byte for byte; the relay publishes them, and the events that a
// reader decodes are the same whoever emitted them.
func TestEmitFromOtherLanguages(t *testing.T) {
	harness.Proof(t)
	jar := harness.JDBC(t)
	m := harness.MySQL(t)
	l := newOutboxLine(t, harness.Kafka(t), m, ", lanes: 4")
	database := l.cfg.Outbox.DSN.Database()
	// The same line with the tables of the example: neither topics nor outbox depend on them.
	yaml, err := os.ReadFile(languagesDir + "slotline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(yaml), "\ntables:")
	l.cfg, err = config.Parse("slotline.yaml", fmt.Appendf(nil, `line: %s
kafka: { brokers: [%s], partitions: 8, replication: 1 }
outbox: { dsn: "%s", lanes: 4 }
shards: { s1: { dsn: "%s", slots: 0-1023 } }
tables:%s`, l.cfg.Line, strings.Join(l.cfg.Kafka.Brokers, ", "), m.URL(database), m.URL(database+"_s1"), tables))
	if err != nil {
		t.Fatal(err)
	}

	script, err := os.ReadFile(languagesDir + "emit.sql")
	if err != nil {
		t.Fatal(err)
	}
	emitters := []struct {
		name string
		emit func()
	}{
		{"sql", func() {
			conn, err := m.Open(t, database).Conn(t.Context()) // one session, as the client has
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, statement := range statements(string(script)) {
				if _, err := conn.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%v in\n%s", err, statement)
				}
			}
		}},
		{"java", func() {
			url := fmt.Sprintf("jdbc:mysql://%s/%s?user=%s&password=%s&sslMode=PREFERRED&allowPublicKeyRetrieval=true", m.Addr, database, m.User, m.Password)
			r := harness.Command{Path: "java", Args: []string{"-XX:TieredStopAtLevel=1", "-cp", jar, languagesDir + "Emit.java", url, "4"}, Name: "Emit.java"}.Run(t, time.Minute)
			if r.Code != 0 {
				t.Fatalf("java ended with %d\n%s", r.Code, r.Stderr)
			}
		}},
		{"go", func() {
			if err := languages.Emit(t.Context(), l.cfg, l.db); err != nil {
				t.Fatal(err)
			}
		}},
	}

	golden, err := os.ReadFile(languagesDir + "rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for lines := bufio.NewScanner(bytes.NewReader(golden)); lines.Scan(); {
		var row map[string]any
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		var text []string
		for _, column := range strings.Fields("lane tbl tenant entity_id op version month spread codec trace payload") {
			text = append(text, fmt.Sprintf("%s=%q", column, fmt.Sprint(row[column])))
		}
		want = append(want, strings.Join(text, " "))
	}

	emitter := map[event.ID]string{}
	seen := map[string]bool{} // lane and id
	for _, e := range emitters {
		before := time.Now().UTC()
		e.emit()
		var got []string
		for lane := range l.cfg.Outbox.Lanes {
			rows, err := l.db.Query("SELECT id, event_id, created_at, tbl, tenant, entity_id, op, version, month, spread, codec, trace, payload FROM " + outbox.LaneTable(lane) + " ORDER BY id")
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var id, at string
				var eventID []byte
				values := make([]sql.Null[string], 10)
				dest := []any{&id, &eventID, &at}
				for i := range values {
					dest = append(dest, &values[i])
				}
				if err := rows.Scan(dest...); err != nil {
					t.Fatal(err)
				}
				if key := fmt.Sprint(lane, "/", id); seen[key] {
					continue
				} else {
					seen[key] = true
				}
				text := []string{fmt.Sprintf("lane=%q", fmt.Sprint(lane))}
				for i, column := range strings.Fields("tbl tenant entity_id op version month spread codec trace payload") {
					v := "<nil>"
					if values[i].Valid {
						v = values[i].V
					}
					text = append(text, fmt.Sprintf("%s=%q", column, v))
				}
				got = append(got, strings.Join(text, " "))
				if _, twice := emitter[event.ID(eventID)]; twice || len(eventID) != 16 {
					t.Errorf("%s: event id %x is not 16 bytes of its own", e.name, eventID)
				}
				emitter[event.ID(eventID)] = e.name
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s, row %d is\n%s\nrows.jsonl has\n%s", e.name, i+1, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
			}
		}
		// created_at is UTC, whatever the emitter's zone: it becomes the event's time.
		var late int
		for lane := range l.cfg.Outbox.Lanes {
			var n int
			if err := l.db.QueryRow("SELECT COUNT(*) FROM "+outbox.LaneTable(lane)+" WHERE created_at > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE OR created_at < ?", before.Add(-time.Minute)).Scan(&n); err != nil {
				t.Fatal(err)
			}
			late += n
		}
		if late > 0 {
			t.Errorf("%s: %d rows were not created now", e.name, late)
		}
	}

	// A trigger may call the script's procedure; what it wrote goes with the transaction.
	conn, err := l.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"CREATE TRIGGER airport_emits AFTER INSERT ON airport FOR EACH ROW CALL slotline_emit('airports', '', NEW.code, 1, NULL, NULL, NULL, NULL, '{}')",
		"START TRANSACTION", "INSERT INTO airport VALUES ('LAX', 'Los Angeles')",
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%v in %s", err, statement)
		}
	}
	var triggered int
	if err := conn.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM slotline_outbox_00 WHERE entity_id = 'LAX'").Scan(&triggered); err != nil || triggered != 1 {
		t.Errorf("the trigger wrote %d events, %v", triggered, err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}

	// The page shows what is tested: its first SQL is the script's, its second answers how far a lane is behind.
	page, err := os.ReadFile("../docs/emit-from-other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Split(string(page), "```sql\n")[1:]
	if len(shown) != 2 {
		t.Fatalf("docs/emit-from-other-languages.md shows %d times SQL, wanted 2", len(shown))
	}
	for i := range shown {
		shown[i], _, _ = strings.Cut(shown[i], "```")
	}
	if !strings.Contains(string(script), shown[0]) {
		t.Errorf("emit.sql does not hold what the page shows:\n%s", shown[0])
	}
	java, err := os.ReadFile(languagesDir + "Emit.java")
	if err != nil {
		t.Fatal(err)
	}
	_, call, _ := strings.Cut(string(page), "```java\n")
	call, _, _ = strings.Cut(call, "```")
	if plain := func(s string) string { return strings.Join(strings.Fields(s), " ") }; call == "" || !strings.Contains(plain(string(java)), plain(call)) {
		t.Errorf("Emit.java does not hold what the page shows:\n%s", call)
	}
	behind := func() (oldest sql.Null[int64], events int64) {
		t.Helper()
		if err := l.db.QueryRow(shown[1]).Scan(&oldest, &events); err != nil {
			t.Fatalf("%v\n%s", err, shown[1])
		}
		return oldest, events
	}
	if oldest, events := behind(); !oldest.Valid || oldest.V < 0 || oldest.V > 600 || events != 9 {
		t.Errorf("lane 0 is behind by %v s and %d events, wanted 9", oldest, events)
	}

	r := l.start()
	l.waitPublished(len(emitters)*len(want), 20*time.Second)
	r.stop()
	if oldest, events := behind(); oldest.Valid || events != 0 {
		t.Errorf("lane 0 is behind by %v s and %d events, wanted none", oldest, events)
	}
	decoded := map[string][]string{} // by emitter
	for _, e := range l.topic() {
		decoded[emitter[e.ID]] = append(decoded[emitter[e.ID]], describeEvent(t, l.cfg, &e.Event))
	}
	for _, list := range decoded {
		slices.Sort(list)
	}
	for _, e := range emitters {
		if len(decoded[e.name]) != len(want) || !slices.Equal(decoded[e.name], decoded["go"]) {
			t.Errorf("%s: the reader gets\n  %s\nand of Go's\n  %s", e.name, strings.Join(decoded[e.name], "\n  "), strings.Join(decoded["go"], "\n  "))
		}
	}
	var dead int
	if err := l.db.QueryRow("SELECT COUNT(*) FROM slotline_dead").Scan(&dead); err != nil || dead != 0 {
		t.Errorf("%d dead letters, %v", dead, err)
	}
}

// describeEvent is what a reader decodes: all but id, time, place and automatic version.
func describeEvent(t *testing.T, cfg *config.Config, e *event.Event) string {
	t.Helper()
	table := cfg.Table(e.Table)
	var row event.Row
	if err := table.DecodeRow(e.Body, e.Op, &row); err != nil {
		t.Errorf("%s: %v", e.Body, err)
		return ""
	}
	version := int64(0)
	if table.Version != event.None {
		version = e.Version
	}
	return fmt.Sprintf("%v %s/%q/%q version %d trace %q %+v", e.Op, e.Table, e.Tenant, e.EntityID, version, e.TraceParent, row.Values)
}

// statements splits a script as the mysql client does: at the delimiter at the end of a line, which DELIMITER changes.
func statements(script string) (list []string) {
	delimiter, statement := ";", ""
	for line := range strings.Lines(script) {
		if to, ok := strings.CutPrefix(line, "DELIMITER "); ok {
			delimiter = strings.TrimSpace(to)
			continue
		}
		code, _, _ := strings.Cut(line, " -- ")
		if strings.HasPrefix(code, "-- ") || strings.TrimSpace(code) == "" && statement == "" {
			continue
		}
		statement += code
		if !strings.HasSuffix(code, "\n") {
			statement += "\n"
		}
		if text, ended := strings.CutSuffix(strings.TrimSpace(statement), delimiter); ended {
			list = append(list, text)
			statement = ""
		}
	}
	return list
}
