package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// secureLine is a line on a broker that knows its users: the relay, each sink and the operator are users of their own,
// with no more rights than docs/operations.md gives them.
type secureLine struct {
	*wholeLine
	k         *harness.SecureKafka
	passwords map[string]string
	dir       string
	keys      string // of kafka, as the file has them
}

// as is the line's file for a user.
func (s *secureLine) as(t *testing.T, user string) (file string) {
	return s.with(t, s.k.Login, fmt.Sprintf("tls: { ca: %s }, sasl: { scram-sha-512: { user: %s, password: %q } }", s.k.CA.File, user,
		"${file:"+filepath.Join(s.dir, user)+"}"))
}

// with is the file with other keys of kafka.
func (s *secureLine) with(t *testing.T, broker, keys string) (file string) {
	t.Helper()
	text := s.text(t)
	if !strings.Contains(text, s.keys) {
		t.Fatalf("the file does not hold %q:\n%s", s.keys, text)
	}
	if keys != "" {
		keys = ", " + keys
	}
	text = strings.Replace(text, s.keys, fmt.Sprintf("brokers: [%q]%s", broker, keys), 1)
	return s.write(t, text)
}

func (s *secureLine) user(t *testing.T, name string, rights ...string) {
	t.Helper()
	s.passwords[name] = "pw/" + name + `:@"${x}`
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.passwords[name]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.k.User(t, name, s.passwords[name])
	for _, r := range rights {
		s.k.Grant(t, "--allow-principal User:"+name+" "+r)
	}
}

func command(t *testing.T, file string, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Args: append([]string{"-c", file}, args...), Name: strings.Join(args, "-")}.Run(t, time.Minute)
}

func process(t *testing.T, file string, args ...string) *harness.Process {
	t.Helper()
	return harness.Command{Args: append([]string{"-c", file}, args...), Name: strings.Join(args, "-")}.Start(t)
}

// The whole line over TLS: first as users with passwords and the fewest rights, with transactional lanes, then with
// certificates in place of passwords, and the rights that apply --grants prints. What does not go together is said.
func TestKafkaOverTLSWithLogins(t *testing.T) {
	harness.Proof(t)
	k := harness.StartSecureKafka(t, map[string]string{"support": "pw/plain"})
	servers := sharedServers(t)
	servers.kafka = &harness.KafkaServer{Brokers: []string{k.Plain}}
	s := &secureLine{wholeLine: newLineAt(t, servers, harness.Name(t), ""), k: k, passwords: map[string]string{}, dir: t.TempDir(),
		keys: fmt.Sprintf("brokers: [%q]", k.Plain)}
	s.edit(t, "lease_time: 1s", "lease_time: 1s, transactional: true")

	events, dead := "--topic "+s.cfg.Kafka.Topic, "--topic "+s.cfg.Dead.Topic
	const all = "--operation Create --operation Alter --operation AlterConfigs "
	s.user(t, "operator", all+events)
	s.user(t, "support", "--operation Read "+events, "--operation Read --operation Write "+dead)
	s.user(t, "relay", "--operation Read --operation Write "+events,
		"--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id slotline-"+s.name+"-lane-")
	s.user(t, "sinks", "--operation Read --operation DescribeConfigs "+events, "--operation Write --operation DescribeConfigs "+dead,
		"--operation Read --resource-pattern-type prefixed --group slotline."+s.name+".")

	s.user(t, "replayer", "--operation Read --operation DescribeConfigs "+events, "--operation Read --operation DescribeConfigs "+dead)

	operator := s.as(t, "operator")
	if r := command(t, operator, "apply"); r.Code != 1 || !strings.Contains(r.Stderr, "[SL2006]") || !strings.Contains(r.Stderr, s.cfg.Dead.Topic) {
		t.Fatalf("apply without a right: exit status %d\n%s", r.Code, r.Stderr)
	}
	k.Grant(t, "--allow-principal User:operator "+all+dead)
	flights, want := reference(t, func(id uint64) bool { return id%1000 == 7 })
	third := len(flights) / 3
	if r := command(t, operator, "apply"); r.Code != 0 {
		t.Fatalf("apply: exit status %d\n%s", r.Code, r.Stderr)
	}
	running := []*harness.Process{process(t, s.as(t, "relay"), "relay"), process(t, s.as(t, "sinks"), "sink", "mysql"), process(t, s.as(t, "sinks"), "sink", "clickhouse")}
	s.append(t, rawEvent("AA", 11, 201302, flightBody("AA", 11, "2013-02-03T04:05:06.000000Z", `"LAXX"`, "1"))) // a dead letter of each sink
	s.emit(t, flights[:third], 1)
	s.waitDrained(t, time.Minute)
	for _, c := range []struct{ command, want string }{
		{"where flights AA 11", "too_long"}, {"dlq list", "too_long"}, {"dlq discard --reason too_long --why test --yes", "2 "},
	} {
		if r := command(t, s.as(t, "support"), strings.Fields(c.command)...); r.Code > 1 || !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%s: exit status %d\n%s%s", c.command, r.Code, r.Stdout, r.Stderr)
		}
	}

	// Passwords are changed while all run: nothing goes on, and says why, until the files hold the new ones.
	for _, user := range []string{"relay", "sinks"} {
		k.User(t, user, "pw/new of "+user)
	}
	s.emit(t, flights[third:2*third], 2)
	for _, p := range running {
		p.WaitOutput(t, "SL2014", time.Minute)
	}
	for _, user := range []string{"relay", "sinks"} {
		if err := os.WriteFile(filepath.Join(s.dir, user), []byte("pw/new of "+user), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all goes on", time.Minute, func() bool {
		status, parked := s.statusOf(t, 0), 0
		for _, l := range status.Lanes {
			parked += int(l.Parked) + int(l.Backlog)
		}
		return parked == 0
	})
	s.waitDrained(t, time.Minute)

	said := ""
	for _, p := range running {
		if r := p.Stop(t, time.Minute); r.Code != 0 {
			t.Errorf("exit status %d", r.Code)
		}
		said += p.Stderr()
	}

	cert, key := k.CA.Files(t, s.name)
	mutual := s.with(t, k.Mutual, fmt.Sprintf("tls: { ca: %s, cert: %s, key: %s }", k.CA.File, cert, key))
	grants := command(t, mutual, "apply", "--grants")
	printed := 0
	for line := range strings.SplitSeq(grants.Stdout, "\n") {
		if strings.Contains(line, "kafka-acls.sh") {
			k.Grant(t, strings.Replace(line, "CN=… (the subject of kafka.tls.cert)", "CN="+s.name, 1))
			printed++
		}
	}
	if printed != 4 {
		t.Fatalf("apply --grants prints %d lines for Kafka:\n%s", printed, grants.Stdout)
	}
	if r := command(t, mutual, "apply"); r.Code != 0 || !strings.Contains(r.Stdout, "0 created, 0 altered") {
		t.Errorf("a second apply, as another user: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	run := process(t, mutual, "run")
	s.emit(t, flights[2*third:], 3)
	s.waitDrained(t, time.Minute)
	if r := run.Stop(t, time.Minute); r.Code != 0 {
		t.Errorf("exit status %d", r.Code)
	}
	compare(t, "shards", s.shardFigures(t), want)
	compare(t, "ClickHouse", s.clickhouseFigures(t), want)

	replay := process(t, s.as(t, "replayer"), "replay", "rebuild", "--shard", "s1", "--yes")
	replay.WaitOutput(t, "observe ", time.Minute)
	replay.Stop(t, time.Minute)

	// Who may read may archive; it takes another right to shorten the topic, and that alone.
	s.user(t, "trimmer", "--operation Delete "+events)
	dir := t.TempDir()
	archiving := func(user string) string {
		text, err := os.ReadFile(s.as(t, user))
		if err != nil {
			t.Fatal(err)
		}
		return s.write(t, fmt.Sprintf("%s\narchive: { dir: %q, older_than: 1s }\n", text, dir))
	}
	relay := process(t, s.as(t, "relay"), "relay")
	if r := command(t, archiving("support"), "archive", "run"); r.Code != 0 {
		t.Errorf("archive run: exit status %d\n%s", r.Code, r.Stderr)
	}
	trim := []string{"archive", "trim", "--older-than", "1s", "--yes", "-o", "json"}
	if r := command(t, archiving("support"), trim...); r.Code != 1 || !strings.Contains(r.Stderr, "cannot remove records of topic "+s.cfg.Kafka.Topic+" (Delete)") || !strings.Contains(r.Stderr, "[SL2006]") {
		t.Errorf("archive trim without the right: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	until(t, "the topic is shortened", time.Minute, func() bool { // when the lanes have recorded its ends
		r := command(t, archiving("trimmer"), trim...)
		if r.Code != 0 {
			t.Fatalf("archive trim: exit status %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		return strings.Contains(r.Stdout, `"removed": true`)
	})
	if r := relay.Stop(t, time.Minute); r.Code != 0 {
		t.Errorf("exit status %d", r.Code)
	}

	// The other two mechanisms know the same user.
	for mechanism, password := range map[string]string{"scram-sha-256": s.passwords["support"], "plain": "pw/plain"} {
		file := s.with(t, k.Login, fmt.Sprintf("tls: { ca: %s }, sasl: { %s: { user: support, password: %q } }", k.CA.File, mechanism, strings.ReplaceAll(password, "$", "${DOLLAR}")))
		r := harness.Command{Args: []string{"-c", file, "dlq", "list", "--all"}, Env: []string{"DOLLAR=$"}, Name: mechanism}.Run(t, time.Minute)
		if r.Code != 0 || !strings.Contains(r.Stdout, "too_long") {
			t.Errorf("%s: exit status %d\n%s%s", mechanism, r.Code, r.Stdout, r.Stderr)
		}
	}

	other := harness.NewAuthority(t)
	otherCert, otherKey := other.Files(t, s.name)
	login := func(password string) string {
		return fmt.Sprintf("sasl: { scram-sha-512: { user: operator, password: %q } }", password)
	}
	trust := "tls: { ca: " + k.CA.File + " }"
	for _, c := range []struct{ name, broker, keys, want string }{
		{"a wrong password", k.Login, trust + ", " + login("pw/wrong"), "Kafka refuses user or password [SL2014]"},
		{"another authority", k.Login, "tls: { ca: " + other.File + " }, " + login("pw/x"), "an authority that is not trusted [SL2015]"},
		{"the system's authorities", k.Login, "tls: {}, " + login("pw/x"), "an authority that is not trusted [SL2015]"},
		{"another name", k.Login, "tls: { ca: " + k.CA.File + ", server_name: kafka.internal }", "not kafka.internal [SL2015]"},
		{"plain text to a port with TLS", k.Login, login("pw/x"), "this port of the broker speaks TLS [SL2015]"},
		{"TLS to a port without", k.Plain, trust, "the broker does not answer as TLS does"},
		{"no login, with TLS", k.Login, trust, "it wants a login: write kafka.sasl"},
		{"no login, without TLS", k.Bare, "", "it wants a login: write kafka.sasl"},
		{"a login where none is asked for", k.Plain, login("pw/x"), "takes no login [SL2014]"},
		{"no certificate", k.Mutual, trust, "write kafka.tls.cert and kafka.tls.key"},
		{"a certificate of another authority", k.Mutual, fmt.Sprintf("tls: { ca: %s, cert: %s, key: %s }", k.CA.File, otherCert, otherKey), "write kafka.tls.cert and kafka.tls.key"},
		{"a file that is not there", k.Login, "tls: { ca: /nowhere/ca.pem }", "kafka.tls.ca: file /nowhere/ca.pem cannot be read"},
	} {
		began := time.Now()
		r := command(t, s.with(t, c.broker, c.keys), "dlq", "list")
		if r.Code == 0 || !strings.Contains(r.Stderr, c.want) || !strings.Contains(r.Stderr, "do: ") {
			t.Errorf("%s: exit status %d after %v, not %q\n%s", c.name, r.Code, time.Since(began), c.want, r.Stderr)
		}
		said += r.Stdout + r.Stderr
	}
	if strings.Contains(said, "pw/") {
		t.Errorf("a password is printed:\n%s", said)
	}
}
