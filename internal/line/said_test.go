package line

import (
	"bytes"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// lineOf is the line of a file, for what asks no server.
func lineOf(t *testing.T, file string) *Line {
	t.Helper()
	cfg, err := config.Parse("slotline.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	l := New(cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { l.Close() })
	return l
}

// What a person typed stands in the message, not what became of it; and a missing argument is named.
func TestWhereSaysWhatWasTyped(t *testing.T) {
	t.Setenv("OUTBOX_PASSWORD", "x")
	l := lineOf(t, config.Example())
	for _, c := range []struct {
		entity Entity
		says   string
	}{
		{Entity{Table: "orders", Tenant: "UA", ID: "abc"}, `"abc" is no id of table orders`},
		{Entity{Table: "orders", ID: "UA"}, "slotline where orders TENANT ID"},
	} {
		if _, err := l.entityTable(&c.entity); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; wanted %q", c.entity, err, c.says)
		}
	}
}

// Statements for a DBA need no password: they are printed before there is one, and where nobody may know it. A variable in
// a user's name is another thing: the statements would name another user.
func TestGrantsNeedNoPassword(t *testing.T) {
	grants := func(file string) (string, error) {
		t.Helper()
		var out bytes.Buffer
		err := lineOf(t, file).WriteGrants(&out)
		return out.String(), err
	}
	for name, file := range map[string]string{"example": config.Example(), "full": config.ExampleFull()} {
		out, err := grants(file)
		if err != nil {
			t.Errorf("%s, without a password: %v", name, err)
		}
		wanted := []string{"CREATE USER", "CREATE DATABASE", "TO 'app'@", "TO 'slotline_s1'@", "TO 'slotline_s2'@"}
		if name == "full" {
			wanted = append(wanted, "TO `slotline`;", "SELECT_PRIV")
		}
		for _, has := range wanted {
			if !strings.Contains(out, has) {
				t.Errorf("%s: no %q in\n%s", name, has, out)
			}
		}
	}
	for _, user := range []string{"app", "slotline_s2"} {
		out, err := grants(strings.Replace(config.Example(), user+":", "${SLOTLINE_TEST_UNSET}:", 1))
		if err == nil || !strings.Contains(err.Error(), "SLOTLINE_TEST_UNSET") || out != "" {
			t.Errorf("without the name of %s: %v\n%s", user, err, out)
		}
	}
}

// A tenant, an id or a spread value that its column cannot hold is refused with the bound: it would be found nowhere.
func TestWhatAColumnCannotHold(t *testing.T) {
	l := lineOf(t, strings.Replace(config.Example(), "tables:\n", `tables:
  seats: { tenant: plane, id: seat, spread: seat, columns: { plane: int32, seat: string(3) } }
  notes: { tenant: owner, id: note, columns: { owner: string(40), note: int64 } }
`, 1))
	for _, c := range []struct {
		entity Entity
		says   string // "": it is taken
		tenant string // as it is then
	}{
		{Entity{Table: "orders", Tenant: "UA", ID: "18446744073709551615"}, "", "UA"},
		{Entity{Table: "orders", Tenant: "ÜÄ", ID: "+5"}, "", "ÜÄ"},
		{Entity{Table: "orders", Tenant: "UAL", ID: "5"}, `"UAL" is no tenant of table orders: column carrier is string(2), and that has 3 characters`, ""},
		{Entity{Table: "orders", Tenant: "UA", ID: "-1"}, "column order_id is uint64, and that is less than 0", ""},
		{Entity{Table: "orders", Tenant: "UA", ID: "18446744073709551616"}, "outside the range of uint64", ""},
		{Entity{Table: "orders", Tenant: "UA", ID: "1e3"}, "no whole number", ""},
		{Entity{Table: "orders", Tenant: "UA", ID: "1", Spread: "x"}, "no spread column", ""},
		{Entity{Table: "seats", Tenant: "007", ID: "12A"}, "", "7"},
		{Entity{Table: "seats", Tenant: "2147483648", ID: "12A"}, "outside -2147483648 to 2147483647", ""},
		{Entity{Table: "seats", Tenant: "7", ID: "112A"}, "4 characters", ""},
		{Entity{Table: "notes", Tenant: strings.Repeat("ü", 40), ID: "1"}, "that has 80 bytes, and a tenant has 64 at most", ""},
	} {
		given := c.entity
		_, err := l.entityTable(&c.entity)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && c.entity.Tenant != c.tenant {
			t.Errorf("%+v: tenant %q, %v; wanted %q", given, c.entity.Tenant, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "strconv") {
			t.Errorf("%v", err)
		}
	}
	cfg := l.Config
	cfg.Tables = slices.DeleteFunc(cfg.Tables, func(t *event.Table) bool { return t.Name == "notes" })
	for text, want := range map[string]string{"UA": "UA", "007": "7", "7000000": "7000000", "-07": "-7", "07": "07"} { // in orders as it is
		if got, err := tenantOf(cfg, text); err != nil || got != want {
			t.Errorf("tenant %q is %q, %v; wanted %q", text, got, err, want)
		}
	}
	for _, text := range []string{"Lufthansa", "\x00", "99999999999", strings.Repeat("1", 65), ""} {
		_, err := tenantOf(cfg, text)
		if err == nil || strings.Contains(err.Error(), "strconv") {
			t.Errorf("tenant %q: %v", text, err)
		} else if text == "Lufthansa" && !strings.Contains(err.Error(), "orders.carrier is string(2): that has 9 characters") {
			t.Errorf("tenant %q: %v", text, err)
		}
	}
}

// A secret that cannot be resolved is said of its shard, with what to do, and stops neither the others nor the command.
func TestAnUnsetVariableHidesNoOtherShard(t *testing.T) {
	t.Setenv("OUTBOX_PASSWORD", "x")
	t.Setenv("S1_PASSWORD", "x")
	l := lineOf(t, config.Example())
	l.layout = layoutOf(t, l.Config.Layout, l.Config.Kafka.Partitions)
	stores := l.sinkStores()
	if len(stores) < 2 || stores[0].silent != "" || stores[0].db == nil {
		t.Fatalf("%+v", stores)
	}
	for _, k := range l.sinkRows(t.Context(), stores[1:2]) {
		if k.Name != "mysql/s2" || !strings.Contains(k.Unreachable, "S2_PASSWORD") || !strings.Contains(k.Unreachable, "do: ") {
			t.Errorf("%+v", k)
		}
	}
	cfg, errs := l.openedShards()
	if len(cfg.Shards) != 1 || cfg.Shards[0].Name != "s1" || errs[0] != nil || errs[1] == nil || len(l.Config.Shards) != 2 {
		t.Errorf("%d shards, %v", len(cfg.Shards), errs)
	}
	asked := []string{}
	stage := func(name string, err error) bool {
		if err != nil {
			asked = append(asked, name)
		}
		return err != nil
	}
	if where, err := l.whereStores(l.Config.Tables[0], []string{"s1", "s2"}, stage); err != nil || len(where) == 0 || !slices.Contains(asked, "mysql/s2") {
		t.Errorf("%d stores, not asked %v, %v", len(where), asked, err)
	}
}

var reasonMade = regexp.MustCompile(`(?m)^\s*Reason\w+\s*= "(\w+)"|Reason: +"(\w+)"|^\s*return "(\w+)"$`)

// Every reason that the code gives a dead letter can be asked for, and nothing else.
func TestDeadReasonsAreAllOfThem(t *testing.T) {
	made := map[string]bool{}
	for _, file := range []string{"event/dataerror.go", "outbox/deadletter.go", "internal/intake/intake.go", "sinks/mysql/reject.go", "sinks/olap/doris/badrows.go"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reasonMade.FindAllStringSubmatch(string(text), -1) {
			made[m[1]+m[2]+m[3]] = true
		}
	}
	for _, known := range DeadReasons {
		if !made[known] {
			t.Errorf("no code gives the reason %q", known)
		}
		delete(made, known)
	}
	if len(made) > 0 {
		t.Errorf("%v cannot be asked for", made)
	}
	for _, f := range []DeadFilter{{Reason: "nope"}, {Sink: "mysq"}, {Sink: "mysql", Reason: "too-long"}} {
		if err := f.Check(); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "write one of: ") {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if err := (&DeadFilter{Sink: "outbox", Reason: "lost_commit"}).Check(); err != nil {
		t.Error(err)
	}
}
