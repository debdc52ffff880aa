package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/line"
)

// doctorIn is what slotline doctor says of a file's servers when all but the silent ones have answered: others may need
// longer than doctor waits, where all CPUs are busy.
func doctorIn(t *testing.T, file string, silent ...string) line.Checkup {
	t.Helper()
	for deadline := harness.Deadline(20 * time.Second); ; {
		found := doctorOnce(t, file)
		late := slices.ContainsFunc(found.Servers, func(s *checkup.Server) bool {
			return s.NotAsked != "" && !slices.ContainsFunc(silent, func(heading string) bool { return strings.HasPrefix(s.Where, heading) })
		})
		if !late || time.Now().After(deadline) {
			return found
		}
	}
}

// doctorOnce runs it, and compares its exit status with what it says.
func doctorOnce(t *testing.T, file string) (found line.Checkup) {
	t.Helper()
	r := harness.Command{Args: []string{"-c", file, "doctor", "-o", "json"}, Name: "doctor"}.Run(t, time.Minute)
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatalf("exit status %d: %v\n%s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	want := 0
	switch {
	case found.Found():
		want = 3
	case found.Partial():
		want = 1
	}
	if r.Code != want || r.Stderr != "" {
		t.Errorf("exit status %d, want %d\n%s%s", r.Code, want, r.Stdout, r.Stderr)
	}
	return found
}

// at are the findings on the server whose heading begins so.
func at(t *testing.T, c line.Checkup, heading string) *checkup.Server {
	t.Helper()
	i := slices.IndexFunc(c.Servers, func(s *checkup.Server) bool { return strings.HasPrefix(s.Where, heading) })
	if i < 0 {
		t.Fatalf("no server %q: %+v", heading, c)
	}
	return c.Servers[i]
}

func signs(s *checkup.Server) string {
	var list []string
	for _, f := range s.Findings {
		list = append(list, f.Sign+" "+f.What)
	}
	return strings.Join(list, "; ")
}

// On servers that are as the tests have them, doctor finds what is true and no more: a crash of the machine may lose commits.
func TestDoctorOnTheTestsServers(t *testing.T) {
	t.Parallel()
	w := newLineAt(t, sharedServers(t), harness.Name(t), "")
	var flush, binlog int // a server that the environment names has its own
	if err := w.outbox.QueryRow("SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog").Scan(&flush, &binlog); err != nil {
		t.Fatal(err)
	}
	var lossy []string
	if binlog != 1 {
		lossy = append(lossy, fmt.Sprintf("! sync_binlog is %d", binlog))
	}
	if flush != 1 {
		lossy = append(lossy, fmt.Sprintf("! innodb_flush_log_at_trx_commit is %d", flush))
	}
	for range 2 { // before and after the first apply
		c := doctorIn(t, w.file)
		if len(c.Servers) != 5 {
			t.Fatalf("%d servers: %+v", len(c.Servers), c)
		}
		for _, s := range c.Servers {
			want := ""
			if !strings.HasPrefix(s.Where, "kafka ") && !strings.HasPrefix(s.Where, "clickhouse ") {
				want = strings.Join(lossy, "; ")
			}
			if got := signs(s); got != want || s.NotAsked != "" || len(s.Unchecked) != 0 {
				t.Errorf("%s: %q, want %q; %+v", s.Where, got, want, s)
			}
		}
		w.run(t, 0, "apply")
	}
	if len(lossy) == 2 {
		if out := w.run(t, 3, "doctor"); !strings.Contains(out, "\n  ok\n") || !strings.Contains(out, "    do: SET PERSIST sync_binlog = 1\n") ||
			!strings.Contains(out, "Doctor: 0 to mend (x), 6 worth mending (!). Nothing was changed.") {
			t.Errorf("doctor prints\n%s", out)
		}
	}
}

var (
	addConfig    = regexp.MustCompile(`--entity-name (\S+) --add-config ([^=]+)=(\S+)$`)
	sqlStatement = regexp.MustCompile(`(SET PERSIST [^;,]+('[^']*')?|GRANT .*|ALTER USER .*)`)
)

// Each of many things that are set wrong is named on its server, with what mends it; once that is done, as it is said,
// nothing is found.
func TestDoctorNamesWhatIsWrongAndWhatMendsIt(t *testing.T) {
	harness.Proof(t)
	my := harness.PrivateMySQL(t)
	my.MakeDurable(t)
	w := newLineAt(t, lineServers{kafka: harness.Kafka(t), outbox: my, s1: my, s2: my, ch: harness.ClickHouse(t)}, harness.Name(t), "")
	root := my.Open(t, "")
	exec := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := root.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	// An account with what apply --grants prints, and nothing else.
	exec("CREATE USER 'doc'@'%' IDENTIFIED BY 'secret'", "CREATE ROLE doctored, other", "GRANT doctored, other TO 'doc'@'%'", "SET DEFAULT ROLE ALL TO 'doc'@'%'")
	as := func(file, user, password string) string {
		return w.write(t, strings.ReplaceAll(file, url.UserPassword(my.User, my.Password).String()+"@", url.UserPassword(user, password).String()+"@"))
	}
	text := w.text(t)
	w.file = as(text, "doc", "secret")
	for grant := range strings.SplitSeq(w.run(t, 0, "apply", "--grants"), "\n") {
		grant, _, _ = strings.Cut(grant, "; --")
		if strings.HasPrefix(grant, "GRANT") && strings.Contains(grant, "@'%'") {
			if strings.HasPrefix(grant, "GRANT DELETE, DROP, LOCK TABLES") { // a privilege by a role is as good
				grant = strings.Replace(grant, "'doc'@'%'", "doctored", 1)
			}
			exec(strings.TrimSuffix(grant, ";"))
		}
	}
	w.run(t, 0, "apply")
	sound := func() {
		t.Helper()
		for _, s := range doctorIn(t, w.file).Servers {
			if len(s.Findings) != 0 || len(s.Unchecked) != 0 || s.NotAsked != "" {
				t.Errorf("%+v", s)
			}
		}
	}
	sound()

	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	topic := w.name + ".events"
	setTopic := func(key, value string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience*10*time.Second)
		defer cancel()
		adm := kadm.NewClient(cl)
		if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic); err != nil {
			t.Fatal(err)
		}
		for { // a broker knows it some milliseconds later
			configs, err := adm.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(configs[0].Configs, func(c kadm.Config) bool { return c.Key == key && c.Value != nil && *c.Value == value }) {
				return
			}
			time.Sleep(20 * time.Millisecond) // a poll: the loop ends by the state it reads, or with ctx
		}
	}
	exec("SET GLOBAL sync_binlog = 0, GLOBAL innodb_flush_log_at_trx_commit = 2, GLOBAL local_infile = OFF, GLOBAL sql_mode = '', "+
		"GLOBAL auto_increment_increment = 2, GLOBAL max_execution_time = 1000, GLOBAL max_allowed_packet = 1048576, GLOBAL max_connections = 43, "+
		"GLOBAL innodb_lock_wait_timeout = 100, GLOBAL sql_require_primary_key = ON, GLOBAL max_heap_table_size = 16384",
		"REVOKE INSERT ON `"+namedDatabase(t, w.shards["s1"])+"`.* FROM 'doc'@'%'",
		"REVOKE DELETE ON `"+namedDatabase(t, w.outbox)+"`.* FROM 'doc'@'%'",
		"ALTER USER 'doc'@'%' WITH MAX_USER_CONNECTIONS 33",
		"SET GLOBAL init_connect = 'SET timestamp = 1000000000'") // another clock for whoever is not root
	if format(t, root) != "" {
		exec("SET GLOBAL binlog_format = STATEMENT")
	}
	setTopic("cleanup.policy", "compact")
	setTopic("max.message.bytes", "100000")
	setTopic("min.insync.replicas", "2")
	exec("SET GLOBAL read_only = ON")

	c := doctorIn(t, w.file)
	shared := []string{"x the server is read-only", "! innodb_flush_log_at_trx_commit is 2", "! sync_binlog is 0", "! max_allowed_packet is 1024 KiB",
		"! max_user_connections is 33 for ", "! max_connections is 43", "! max_execution_time is 1000 ms", "! innodb_lock_wait_timeout is 100 s"}
	if format(t, root) != "" {
		shared = append(shared, "x binlog_format is STATEMENT")
	}
	staged := append(slices.Clone(shared), "! local_infile is OFF", "! sql_require_primary_key is ON", "! max_heap_table_size is 16 KiB", "! its clock is ")
	for heading, want := range map[string][]string{
		"kafka ": {"x topic " + topic + " has cleanup.policy=compact", "x topic " + topic + " is too narrow: max.message.bytes 100000 -> ",
			"! topic " + topic + " has min.insync.replicas=2 and 1 replicas"},
		"outbox ":     append(slices.Clone(shared), "x outbox ", "x 'doc'@'%' lacks DELETE on ", "x its clock is ", "! sql_mode is not strict"),
		"shard s1 ":   append(slices.Clone(staged), "x 'doc'@'%' lacks INSERT on "),
		"shard s2 ":   staged,
		"clickhouse ": nil,
	} {
		s := at(t, c, heading)
		for _, begins := range want {
			if !slices.ContainsFunc(s.Findings, func(f checkup.Finding) bool { return strings.HasPrefix(f.Sign+" "+f.What, begins) }) {
				t.Errorf("%s: %q is not found: %s", s.Where, begins, signs(s))
			}
		}
		if len(s.Findings) != len(want) {
			t.Errorf("%s: %d findings, want %d: %s", s.Where, len(s.Findings), len(want), signs(s))
		}
	}
	if t.Failed() {
		return
	}

	// Each remedy is carried out as it is written.
	remedies := map[string]bool{}
	for _, s := range c.Servers {
		for _, f := range s.Findings {
			remedies[f.Do] = true
		}
	}
	exec("SET GLOBAL init_connect = ''") // "synchronise both clocks"
	applies := false
	for _, do := range slices.Sorted(maps.Keys(remedies)) {
		switch {
		case strings.HasPrefix(do, "slotline apply"):
			applies = true
		case strings.Contains(do, "NTP"):
		case addConfig.MatchString(do):
			m := addConfig.FindStringSubmatch(do)
			if m[1] != topic {
				t.Errorf("%q is of another topic than %s", do, topic)
			}
			setTopic(m[2], m[3])
		case sqlStatement.MatchString(do):
			exec(sqlStatement.FindString(do))
		default:
			t.Errorf("how is that done? %q", do)
		}
	}
	if !applies {
		t.Error("no remedy is slotline apply")
	}
	w.run(t, 0, "apply")
	sound()

	exec("SET GLOBAL transaction_read_only = ON")
	if s := at(t, doctorIn(t, w.file), "outbox "); len(s.Findings) != 1 || signs(s) != "! transaction_read_only is ON for new sessions" {
		t.Fatalf("with read-only sessions: %+v", s)
	} else {
		remedies[s.Findings[0].Do] = true
	}
	if do := "SET PERSIST transaction_read_only = OFF"; !remedies[do] {
		t.Errorf("remedies: %v", remedies)
	} else {
		exec(do)
	}
	sound()

	// A login that is refused is an answer; a server that says nothing is named, and hides none of the others.
	wrong := w.write(t, strings.Replace(w.text(t), "doc:secret@"+my.Addr+"/"+namedDatabase(t, w.shards["s2"]), "doc:wrong@"+my.Addr+"/"+namedDatabase(t, w.shards["s2"]), 1))
	if s := at(t, doctorIn(t, wrong), "shard s2 "); len(s.Findings) != 1 || s.Findings[0].Code != "SL9026" || !strings.Contains(s.Findings[0].What, "Access denied") {
		t.Errorf("with a wrong password: %+v", s)
	}
	silent := silence(t)
	for heading, address := range map[string]string{
		"kafka ": w.kafka.Brokers[0] + `"`, "outbox ": my.Addr + "/" + namedDatabase(t, w.outbox), "shard s1 ": my.Addr + "/" + namedDatabase(t, w.shards["s1"]),
		"clickhouse ": w.ch.Addr + "/",
	} {
		t.Run("silent "+heading, func(t *testing.T) {
			t.Parallel()
			_, rest, _ := strings.Cut(address, w.kafka.Brokers[0])
			if rest != `"` {
				rest = address[strings.Index(address, "/"):]
			}
			text := strings.Replace(w.text(t), address, silent+rest, 1)
			if text == w.text(t) {
				t.Fatalf("the file does not name %s", address)
			}
			file := w.write(t, text)
			began := time.Now()
			doctorOnce(t, file)
			if took := time.Since(began); took > harness.Patience*8*time.Second { // a statement is waited for for 70 s
				t.Errorf("it took %v", took)
			}
			for _, s := range doctorIn(t, file, heading).Servers {
				if down := strings.HasPrefix(s.Where, heading); down != strings.Contains(s.NotAsked, "no answer ") || len(s.Findings) != 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// What the file's Kafka user may not do is named before it is tried, with the command that grants it.
func TestDoctorNamesMissingRightsOfKafka(t *testing.T) {
	harness.Proof(t)
	k := harness.StartSecureKafka(t, nil)
	servers := sharedServers(t)
	servers.kafka = &harness.KafkaServer{Brokers: []string{k.Plain}}
	w := newLine(t, servers, "") // as a superuser
	k.User(t, "few", "pw")
	for _, topic := range []string{w.name + ".events", w.name + ".dead"} {
		k.Grant(t, "--allow-principal User:few --operation DescribeConfigs --operation Describe --topic "+topic)
	}
	secure := func(user string) string {
		return w.write(t, strings.Replace(w.text(t), `brokers: ["`+k.Plain+`"]`, `brokers: ["`+k.Login+`"], tls: { ca: `+k.CA.File+` }, sasl: { scram-sha-512: { user: "`+user+`", password: pw } }`, 1))
	}
	user := w.write(t, "few\n")
	if s := at(t, doctorIn(t, secure("${file:"+user+"}")), "kafka "); len(s.Findings) != 0 || !slices.ContainsFunc(s.Unchecked, func(u string) bool {
		return strings.HasPrefix(u, "rights: this user may not Read, Write on topic ")
	}) {
		t.Errorf("of a user that is one of several: %+v", s)
	}
	file := secure("few")
	s := at(t, doctorIn(t, file), "kafka ")
	for _, want := range []string{"x this user may not Read, Write on topic " + w.name + ".events", "x this user may not Read, Write on topic " + w.name + ".dead",
		"x this user may not Read on groups slotline." + w.name + ".*"} {
		if !strings.Contains(signs(s), want) {
			t.Errorf("%q is not found: %+v", want, s)
		}
	}
	for _, f := range s.Findings {
		k.Grant(t, f.Do)
	}
	whole := func(file string) {
		t.Helper()
		s := at(t, doctorIn(t, file), "kafka ")
		for deadline := harness.Deadline(20 * time.Second); len(s.Unchecked) > 1 && time.Now().Before(deadline); { // brokers make the topic of the groups
			s = at(t, doctorIn(t, file), "kafka ")
		}
		if len(s.Findings) != 0 || len(s.Unchecked) != 1 ||
			!strings.Contains(s.Unchecked[0], "replicas of __consumer_offsets: shown to a user with Describe on topic __consumer_offsets;") {
			t.Errorf("when all was granted: %+v", s)
		}
	}
	whole(file)

	// One that does not see a topic, nor the settings of the other, is told of both.
	k.User(t, "less", "pw")
	k.Grant(t, "--allow-principal User:less --operation Describe --topic "+w.name+".events")
	file = secure("less")
	for _, want := range []string{"x this user may not Read, Write, DescribeConfigs on topic " + w.name + ".events; x this user may not Read, Write on topic " + w.name +
		".dead; x this user may not Read on groups slotline." + w.name + ".*", "x this user may not DescribeConfigs on topic " + w.name + ".dead"} {
		s := at(t, doctorIn(t, file), "kafka ")
		if signs(s) != want {
			t.Fatalf("want %s: %+v", want, s)
		}
		for _, f := range s.Findings {
			k.Grant(t, f.Do)
		}
	}
	whole(file)

	// A login that is refused is an answer.
	refused := w.write(t, strings.Replace(w.text(t), `brokers: ["`+k.Plain+`"]`, `brokers: ["`+k.Login+`"], tls: { ca: `+k.CA.File+` }, sasl: { scram-sha-512: { user: "less", password: wrong } }`, 1))
	if s := at(t, doctorIn(t, refused), "kafka "); len(s.Findings) != 1 || s.Findings[0].Code != "SL2014" || s.Findings[0].Do == "" {
		t.Errorf("with a wrong password: %+v", s)
	}
}

// A shard may be MariaDB, whose server has no server_uuid and other rules; the outbox may not.
func TestDoctorAndApplyOfAMariaDBShard(t *testing.T) {
	harness.Proof(t)
	servers := sharedServers(t)
	servers.s2 = harness.PrivateMariaDB(t)
	servers.s2.MakeDurable(t)
	w := newLine(t, servers, "")
	if s := at(t, doctorIn(t, w.file), "shard s2 "); len(s.Findings) != 0 || len(s.Unchecked) != 0 || !strings.Contains(s.Where, "(MariaDB 1") {
		t.Errorf("%+v", s)
	}
	root := servers.s2.Open(t, "")
	for _, statement := range []string{"CREATE ROLE doctored", "CREATE USER 'doc'@'%' IDENTIFIED BY 'secret'", "GRANT doctored TO 'doc'@'%'", "SET DEFAULT ROLE doctored FOR 'doc'@'%'",
		"GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, INDEX, CREATE TEMPORARY TABLES, DELETE, DROP ON `" + namedDatabase(t, w.shards["s2"]) + "`.* TO doctored",
		"SET GLOBAL max_statement_time = 20"} {
		if _, err := root.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	file := w.write(t, strings.Replace(w.text(t), url.UserPassword(servers.s2.User, servers.s2.Password).String()+"@"+servers.s2.Addr, "doc:secret@"+servers.s2.Addr, 1))
	s := at(t, doctorIn(t, file), "shard s2 ")
	for _, f := range s.Findings {
		do, _, _ := strings.Cut(f.Do, ", and in the server's configuration")
		if _, err := root.Exec(do); err != nil {
			t.Errorf("%s: %v", do, err)
		}
	}
	if got := signs(s); !strings.Contains(got, "max_statement_time is 20") || !strings.Contains(got, "lacks LOCK TABLES on ") || !strings.Contains(got, "lacks PROCESS on *.*") || len(s.Findings) != 3 {
		t.Errorf("%s", got)
	}
	if s := at(t, doctorIn(t, file), "shard s2 "); len(s.Findings) != 0 {
		t.Errorf("when all is done as it was said: %+v", s)
	}
	c := doctorIn(t, w.write(t, strings.Replace(w.text(t), "outbox: { dsn: \""+servers.outbox.URL(namedDatabase(t, w.outbox)), "outbox: { dsn: \""+servers.s2.URL("mysql"), 1)))
	if got := signs(at(t, c, "outbox ")); !strings.Contains(got, "x version 1") {
		t.Errorf("an outbox in MariaDB: %s; %+v", got, c)
	}
}

// format is the server's binlog_format, "" for a release that has none.
func format(t *testing.T, db *sql.DB) (value string) {
	t.Helper()
	var name string
	if err := db.QueryRow("SHOW GLOBAL VARIABLES LIKE 'binlog_format'").Scan(&name, &value); err != nil && err != sql.ErrNoRows {
		t.Fatal(err)
	}
	return value
}
