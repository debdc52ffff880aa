package line

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/slotline/slotline/config"
)

// What a person typed stands in the message, not what became of it; and a missing argument is named.
func TestWhereSaysWhatWasTyped(t *testing.T) {
	t.Setenv("OUTBOX_PASSWORD", "x")
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example()))
	if err != nil {
		t.Fatal(err)
	}
	l := New(cfg, slog.New(slog.DiscardHandler))
	defer l.Close()
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

// A password that is not set is said: the statements would name another user.
func TestGrantsNeedTheUsersName(t *testing.T) {
	for _, name := range []string{"OUTBOX_PASSWORD", "S1_PASSWORD", "S2_PASSWORD"} {
		t.Setenv(name, "x")
	}
	cfg, err := config.Parse("slotline.yaml", []byte(config.Example()))
	if err != nil {
		t.Fatal(err)
	}
	l := New(cfg, slog.New(slog.DiscardHandler))
	defer l.Close()
	var out bytes.Buffer
	if err := l.WriteGrants(&out); err != nil || !strings.Contains(out.String(), "CREATE USER") {
		t.Errorf("%v\n%s", err, out.String())
	}
	os.Unsetenv("OUTBOX_PASSWORD") // as it was, when the test ends
	out.Reset()
	if err := l.WriteGrants(&out); err == nil || !strings.Contains(err.Error(), "OUTBOX_PASSWORD") || out.Len() > 0 {
		t.Errorf("without the outbox's password: %v\n%s", err, out.String())
	}
}
