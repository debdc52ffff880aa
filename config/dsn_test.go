package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slotline/slotline/fault"
)

// The point of putting variables in late: whatever a secret holds, it is one password.
func TestSecretsNeedNoEscaping(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret:@?", "file")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"plain", "p@ss/w:rd?#&=%zz", "${OTHER}", "a b\tc", "@", "://", "ключ", "%41"} {
		t.Setenv("SLOTLINE_TEST_SECRET", secret)
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, variable := range []string{"${SLOTLINE_TEST_SECRET}", "${file:" + file + "}"} {
			d, err := ParseDSN("outbox.dsn", "mysql://app:"+variable+"@db0/flights")
			if err != nil {
				t.Fatal(err)
			}
			a, err := d.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			if a.Password != secret || a.User != "app" || !slices.Equal(a.Hosts, []string{"db0:3306"}) || a.Database != "flights" {
				t.Errorf("%s of %q gave user %q, password %q, hosts %q, database %q", variable, secret, a.User, a.Password, a.Hosts, a.Database)
			}
		}
	}
}

func TestDSN(t *testing.T) {
	t.Setenv("SLOTLINE_TEST_HOST", "db9")
	for text, want := range map[string]string{
		"mysql://app@db0/flights":                                     "mysql app  [db0:3306] flights",
		"mysql://app:@db0:3307/flights":                               "mysql app  [db0:3307] flights",
		"mysql://a%40b:p%2Fq%25@db0/flights":                          "mysql a@b p/q% [db0:3306] flights",
		"mysql://app:p:q@db0/flights":                                 "mysql app p:q [db0:3306] flights",
		"mysql://app:p@q@db0/flights":                                 "mysql app p@q [db0:3306] flights",
		"mysql://app:x${SLOTLINE_TEST_HOST}y@db0/flights":             "mysql app xdb9y [db0:3306] flights",
		"mysql://app@${SLOTLINE_TEST_HOST}:3307/flights":              "mysql app  [db9:3307] flights",
		"mysql://app@[::1]/flights":                                   "mysql app  [[::1]:3306] flights",
		"clickhouse://app:p@ch1,ch2:9001/d":                           "clickhouse app p [ch1:9000 ch2:9001] d",
		"clickhouse://app:p@ch1/d?secure=false":                       "clickhouse app p [ch1:9000] d",
		"clickhouse://app:p@ch1,ch2:9000/d?max_threads=2&secure=true": "clickhouse app p [ch1:9440 ch2:9000] d",
		"clickhouse://app:p@ch1/d?secure=skip-verify":                 "clickhouse app p [ch1:9440] d",
		"mysql://app@db0/flights?tls=true":                            "mysql app  [db0:3306] flights",
		"mysql://app@db0/${SLOTLINE_TEST_HOST}":                       "mysql app  [db0:3306] db9",
		"mysql://app:$x{y}$@db0/flights":                              "mysql app $x{y}$ [db0:3306] flights",
	} {
		d, err := ParseDSN("k", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		a, err := d.Resolve()
		if got := fmt.Sprintf("%s %s %s %s %s", a.Scheme, a.User, a.Password, a.Hosts, a.Database); err != nil || got != want {
			t.Errorf("%s gave %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "mysql://", "mysql:///flights", "mysql://app@db0", "mysql://app@db0/", "mysql://app@/flights",
		"mysql://app@db0:/flights", "mysql://app@db0:x/flights", "mysql://app@db0:65536/flights", "mysql://app@::1/flights",
		"mysql://app@[::1/flights", "mysql://app@db0,db1/flights", "mysql://app@db0/a/b", "mysql://app@db0/a b", "mysql://@db0/a",
		"mysql://db0/a", "mysql://app:p/q@db0/a", "mysql://app:p#q@db0/a", "mysql://app:p?q@db0/a", "mysql://app:%zz@db0/a",
		"mysql://app@db0/a?tls=maybe", "mysql://app@db0/a?tls=true&tls=true", "mysql://app@db0/a?x", "clickhouse://a@b/c?secure=maybe",
		"clickhouse://a@b/c?secure", "clickhouse://a@b/c?async_insert=1", "clickhouse://a@b/c?insert_deduplication_token=x", "clickhouse://a@b/c?Max=1", "clickhouse://a@b/c?x=",
		"MYSQL://app@db0/a", "tcp://app@db0/a", "app:p@tcp(db0)/a", "mysql://app:${}@db0/a", "mysql://app:${A-B}@db0/a", "mysql://app:${A@db0/a",
		"mysql://app:${1A}@db0/a", "mysql://app:${file:}@db0/a", "mysql://app@db0/" + strings.Repeat("x", 65), "mysql://app:a\nb@db0/a", "mysql://a:\x00b@c/d"} {
		if d, err := ParseDSN("k", text); err == nil {
			t.Errorf("%q was taken: %v", text, d)
		} else if fault.CodeOf(err) != "SL1010" || !strings.HasPrefix(err.Error(), "k: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestUnsetVariableIsNamed(t *testing.T) {
	cfg := parse(t, strings.ReplaceAll(Example(), "S1_PASSWORD", "SLOTLINE_TEST_UNSET"))
	_, err := cfg.Shards[0].DSN.Resolve()
	if fault.CodeOf(err) != "SL1011" || !fault.Is(err, fault.Usage) {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"slotline.yaml:5", "shards.s1.dsn", "SLOTLINE_TEST_UNSET", "do: set"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	d, err := ParseDSN("outbox.dsn", "mysql://app:${file:"+missing+"}@db0/flights")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.Resolve(); fault.CodeOf(err) != "SL1011" || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

// Whatever prints a Config, its DSNs or an Address prints no password, whether it stands in the file or comes from
// outside.
func TestNothingPrintsASecret(t *testing.T) {
	t.Setenv("S2_PASSWORD", "hunter-two")
	t.Setenv("OUTBOX_PASSWORD", "hunter-three")
	t.Setenv("CH_PASSWORD", "hunter-four")
	cfg := parse(t, strings.ReplaceAll(ExampleFull(), "${S1_PASSWORD}", "hunter-one"))
	secrets := cfg.Secrets()
	slices.Sort(secrets)
	if want := []string{"hunter-four", "hunter-one", "hunter-three", "hunter-two"}; !slices.Equal(secrets, want) {
		t.Fatalf("Secrets are %q", secrets)
	}
	var out bytes.Buffer
	text, structured := slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))
	var all []any
	for _, s := range cfg.Shards {
		a, err := s.DSN.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s, &s, s.DSN, &s.DSN, a, &a, []Address{a}, map[string]Address{"a": a})
	}
	all = append(all, cfg, *cfg, cfg.Outbox, cfg.Sinks, cfg.Sinks.ClickHouse, *cfg.Sinks.ClickHouse, cfg.Sinks.State)
	for _, v := range all {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%t"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
		text.Info("it", "it", v)
		structured.Info("it", "it", v)
	}
	for _, secret := range append(secrets, "hunter", fmt.Sprintf("%x", "hunter")) {
		if i := strings.Index(out.String(), secret); i >= 0 {
			t.Errorf("%s was printed: …%s…", secret, out.String()[max(0, i-200):min(out.Len(), i+100)])
		}
	}
	if !strings.Contains(out.String(), "mysql://slotline_s2:${S2_PASSWORD}@127.0.0.1:3306/flights_s2") {
		t.Error("a password's variable should be shown: it says where to look")
	}
}

func TestExcerptsHideSecrets(t *testing.T) {
	for line, want := range map[string]string{
		`  s1: { dsn: "mysql://a:hunter2@b/c", slots: 0-5 }`:   `  s1: { dsn: …, slots: 0-5 }`,
		`dsn: mysql//a:hunter2@b/c`:                            `dsn:…`,
		`  dsn: 'mysql://a:hun@ter2@b/c`:                       `  dsn: …`,
		`  password: hunter2`:                                  `  password: …`,
		`  "password" : "hunter2", user: x`:                    `  "password" : …, user: x`,
		`  passwort: hunter2`:                                  `  passwort: …`,
		`s3: { secret_access_key: hunter2, region: x }`:        `s3: { secret_access_key: …, region: x }`,
		`sinks: { state: "mysql://a:hunter2@b/c" }`:            `sinks: { state: … }`,
		`key: "mysql://a:hunter2@b/c" # mysql://a:hunter2@b/c`: `key: "mysql://a:…@b/c`,
		"line: \x1b[31mred\x07":                                `line: ?[31mred?`,
		"\tline: x":                                            `→line: x`,
	} {
		if got := hideSecrets(line); got != want {
			t.Errorf("%q is shown as %q, want %q", line, got, want)
		}
	}
	if got := []rune(hideSecrets(strings.Repeat("ä", 500))); len(got) != excerptRunesMax+1 {
		t.Errorf("%d runes", len(got))
	}
}
