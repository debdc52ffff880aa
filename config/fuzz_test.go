package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

// FuzzParse: whatever the file, there is a Config or problems that a person can read; never a panic.
func FuzzParse(f *testing.F) {
	f.Add(Example())
	f.Add(ExampleFull())
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Parse("slotline.yaml", []byte(text))
		if (cfg == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", cfg, err)
		}
		if err != nil {
			ps, ok := errors.AsType[Problems](err)
			if !ok || len(ps) == 0 || !fault.Is(err, fault.Usage) {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range ps {
				if !strings.HasPrefix(p.What, "slotline.yaml:") || !strings.HasPrefix(p.Code, "SL1") {
					t.Fatalf("%+v", p)
				}
			}
			return
		}
		if cfg.Line == "" || len(cfg.Tables) == 0 || len(cfg.Shards) == 0 || cfg.Kafka.Partitions < 1 || cfg.Outbox.DSN.IsZero() {
			t.Fatalf("a good file gave %+v", cfg)
		}
		if _, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions); err != nil {
			t.Fatalf("a good file has no layout: %v", err)
		}
	})
}

// FuzzDSN: the parts of a good URL, put together again, are the URL; a bad one never shows its password.
func FuzzDSN(f *testing.F) {
	for _, text := range []string{"mysql://app:${P}@db0:3306/flights?tls=true", "clickhouse://a:b@c,d:9/e", "mysql://a:p%2F@[::1]/d", "x", "mysql://a:${file:/x@:}@b/c"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDSN("outbox.dsn", text)
		if err != nil {
			return
		}
		if d.user == "" || len(d.hosts) == 0 || d.database == "" || d.IsZero() {
			t.Fatalf("%q gave %#v", text, d)
		}
		if p := d.password; len(p) > 3 && !strings.Contains(p, "${") && !strings.Contains(d.user+d.Place()+d.scheme, p) && strings.Contains(d.String(), p) {
			t.Fatalf("%q shows its password: %v", text, d)
		}
	})
}
