package config

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/partitioner"
)

// Load reads and validates a file. Variables stay unresolved: a command needs only the secrets that it uses.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, &fault.Error{Code: codeUnreadable, Class: fault.Usage, Err: err,
			What: path + " cannot be read: " + reason(err), Do: "slotline init writes one; -c names another"}
	}
	return Parse(path, data)
}

// readFile reads no more than Parse would refuse: a path may lead to a device without end.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, fileBytesMax+1))
}

// Parse validates the text of a file; name is what errors call it. The error is Problems: all that is wrong at once.
func Parse(name string, data []byte) (*Config, error) {
	l := loader{report: newReport(name, data)}
	root := readTree(l.report, data)
	if root == nil {
		return nil, l.err()
	}
	cfg := l.config(root)
	if err := l.err(); err != nil {
		return nil, err
	}
	cfg.File = name
	return cfg, nil
}

// loader turns a checked tree into a Config. What it cannot read it reports, and goes on with the default.
type loader struct{ *report }

var (
	linePattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	clusterName  = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)
	topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
)

// cluster is the name of a cluster of the ClickHouse server.
func (l loader) cluster(e *entry) string {
	name := l.text(e)
	if e.present() && !clusterName.MatchString(name) {
		l.add(codeName, e.example, []*yaml.Node{e.key}, "%s cannot name a cluster: at most 64 of a-z A-Z 0-9 . _ -", quoteKey(name))
		return ""
	}
	return name
}

func (l loader) config(root *entry) *Config {
	kafka, months, outbox := root.get("kafka"), root.get("months"), root.get("outbox")
	mysql, clickhouse, doris := root.get("sinks").get("mysql"), root.get("sinks").get("clickhouse"), root.get("sinks").get("doris")
	dead, limits := root.get("dead_letters"), root.get("limits")

	cfg := &Config{Line: l.text(root.get("line"))}
	if line := root.get("line"); line.present() && !linePattern.MatchString(cfg.Line) {
		l.add(codeName, "line: flights", []*yaml.Node{line.key},
			"line %s cannot name topics, groups and rows: a letter a-z, then at most 31 of a-z 0-9 _ -", quoteKey(cfg.Line))
		cfg.Line = ""
	}
	cfg.Kafka = Kafka{
		Brokers:     l.brokers(kafka.get("brokers")),
		Topic:       l.topic(kafka.get("topic"), cfg.Line+".events"),
		Partitions:  int(l.number(kafka.get("partitions"))),
		Replication: int(l.number(kafka.get("replication"))),
		Compression: l.choice(kafka.get("compression")),
	}
	cfg.Kafka.TLS = l.tls(kafka.get("tls"))
	cfg.Kafka.SASL = l.sasl(kafka.get("sasl"), cfg.Kafka.Brokers)
	l.choice(kafka.get("retention"))
	cfg.Shards = l.shards(root.get("shards"))
	cfg.Layout = l.layout(root, cfg.Kafka.Partitions)
	engines := []*event.Limits{&event.LimitsMySQL}
	if clickhouse.present() {
		engines = append(engines, &event.LimitsClickHouse)
	}
	if doris.present() {
		engines = append(engines, &event.LimitsDoris)
	}
	cfg.Tables = l.tables(root.get("tables"), engines)
	cfg.Months = Months{From: l.month(months.get("from")), Ahead: int(l.number(months.get("ahead"))), Keep: l.keep(months.get("keep"))}
	cfg.Outbox = Outbox{
		DSN:              l.dsn(outbox.get("dsn"), mysqlScheme),
		Lanes:            int(l.number(outbox.get("lanes"))),
		BacklogAgeMax:    l.duration(outbox.get("backlog_age_max")),
		BacklogEventsMax: l.number(outbox.get("backlog_events_max")),
		EventBytesMax:    l.number(outbox.get("event_bytes_max")),
		PurgeRows:        l.number(outbox.get("purge_rows")),
		LeaseTime:        l.duration(outbox.get("lease_time")),
		Transactional:    l.choice(outbox.get("transactional")) == "true",
	}
	cfg.Sinks.MySQL = MySQLSink{
		BatchRows:           int(l.number(mysql.get("batch_rows"))),
		BatchBytes:          l.number(mysql.get("batch_bytes")),
		BatchAge:            l.duration(mysql.get("batch_age")),
		ConnectionsPerShard: int(l.number(mysql.get("connections_per_shard"))),
	}
	if clickhouse.present() {
		cfg.Sinks.ClickHouse = &ClickHouseSink{
			DSN:        l.dsn(clickhouse.get("dsn"), clickhouseScheme),
			Groups:     l.groups(clickhouse.get("groups"), cfg.Kafka.Partitions),
			BatchRows:  int(l.number(clickhouse.get("batch_rows"))),
			BatchBytes: l.number(clickhouse.get("batch_bytes")),
			BatchAge:   l.duration(clickhouse.get("batch_age")),
			Cluster:    l.cluster(clickhouse.get("cluster")),
		}
	}
	if doris.present() {
		dsn, https := l.doris(doris)
		cfg.Sinks.Doris = &DorisSink{
			DSN:         dsn,
			HTTPS:       https,
			QueryPort:   int(l.number(doris.get("query_port"))),
			Replication: int(l.number(doris.get("replication"))),
			Groups:      l.groups(doris.get("groups"), cfg.Kafka.Partitions),
			BatchRows:   int(l.number(doris.get("batch_rows"))),
			BatchBytes:  l.number(doris.get("batch_bytes")),
			BatchAge:    l.duration(doris.get("batch_age")),
		}
	}
	cfg.Sinks.State = cfg.Outbox.DSN
	if state := root.get("sinks").get("state"); state.present() && state.node.Value != state.def {
		cfg.Sinks.State = l.dsn(state, mysqlScheme)
	}
	cfg.Dead = DeadLetters{
		Topic:         l.topic(dead.get("topic"), cfg.Line+".dead"),
		Retention:     l.duration(dead.get("retention")),
		HaltPerMinute: int(l.number(dead.get("halt_per_minute"))),
	}
	cfg.Limits = Limits{MemoryBytesMax: l.number(limits.get("memory_bytes_max")), DrainTimeout: l.duration(limits.get("drain_timeout"))}
	cfg.HTTP.Listen = l.listen(root.get("http").get("listen"))

	cfg.Rollups = l.rollups(root.get("rollups"), cfg)
	cfg.Archive = l.archive(root.get("archive"), cfg.Line)
	l.databases(root, cfg)
	l.topics(root, cfg)
	l.locals(root, cfg)
	l.memory(root, cfg)
	return cfg
}

// wrong reports a value that cannot be read.
func (l loader) wrong(code string, e *entry, why, write string) {
	if write != "" {
		write = e.name + ": " + write
	}
	l.add(code, write, []*yaml.Node{e.key}, "%s: %s %s", e.path, quoteKey(e.node.Value), why)
}

// text is the value as written, or the default.
func (l loader) text(e *entry) string {
	if !e.present() {
		return e.def
	}
	return e.node.Value
}

// number reads a count, a size or a duration within its bounds.
func (l loader) number(e *entry) int64 {
	standard, _, _ := e.read(e.def)
	if !e.present() {
		return standard
	}
	n, wrong, write := e.read(e.node.Value)
	if wrong != "" {
		if guess := e.node.Value + strings.TrimLeft(e.def, "0123456789_"); e.fits(guess) {
			write = guess // the unit that the default has
		} else if !e.fits(write) {
			write = e.def
		}
		l.wrong(codeValue, e, wrong, write)
		return standard
	}
	if n < e.min || n > e.max {
		l.wrong(codeRange, e, "is not within "+e.bounds(), e.format(min(max(n, e.min), e.max)))
		return standard
	}
	return n
}

func (l loader) duration(e *entry) time.Duration { return time.Duration(l.number(e)) }

func (l loader) choice(e *entry) string {
	text := l.text(e)
	switch {
	case slices.Contains(e.choices, text):
		return text
	case e.later != "":
		l.add(codeLater, e.name+": "+e.def, []*yaml.Node{e.key}, "%s: %s is not taken: %s", e.path, quoteKey(text), e.later)
	default:
		write := nearest(text, e.choices)
		if write == "" {
			write = e.def
		}
		l.wrong(codeValue, e, "is not "+orList(e.choices), write)
	}
	return e.def
}

func (l loader) month(e *entry) partitioner.Month {
	m, err := partitioner.ParseMonth(l.text(e))
	if err != nil {
		l.wrong(codeValue, e, "is not a month", e.def)
	}
	return m
}

// keep is a number of months, or 0 for ever.
func (l loader) keep(e *entry) int {
	text := l.text(e)
	if text == e.def {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || int64(n) < e.min || int64(n) > e.max {
		l.wrong(codeValue, e, fmt.Sprintf("is no number of months, %d to %d, and not %s", e.min, e.max, e.def), "24")
		return 0
	}
	return n
}

func (l loader) dsn(e *entry, scheme string) DSN {
	if !e.present() {
		return DSN{} // reported as missing
	}
	d, wrong := parseDSN(e.node.Value)
	if wrong == nil && d.scheme != scheme {
		wrong = &dsnError{"here stands a " + scheme + ":// URL", `"` + scheme + `://user:${PASSWORD}@host:` + defaultPorts[scheme] + `/database"`}
	}
	if wrong != nil {
		write := wrong.write
		if strings.HasPrefix(write, `"`) {
			write = e.name + ": " + write
		}
		l.add(codeDSN, write, []*yaml.Node{e.key}, "%s: %s", e.path, wrong.what)
		return DSN{}
	}
	d.key, d.where = e.path, l.at(e.key)
	return d
}

// doris makes an address of the keys fe, database, user and password: its hosts are the frontends.
func (l loader) doris(e *entry) (d DSN, https bool) {
	d = DSN{scheme: dorisScheme, key: e.path, where: l.at(e.key), hasPass: true}
	if fe := e.get("fe"); fe.present() {
		scheme := ""
		for _, n := range fe.node.Content {
			s, hosts, found := strings.Cut(n.Value, "://")
			host, err := hostPort(strings.TrimSuffix(hosts, "/"), "8030")
			switch {
			case strings.Contains(n.Value, "${"):
				l.add(codeValue, "the frontend itself", []*yaml.Node{n}, "%s: %s: variables are put into the password only", fe.path, quoteKey(maskUserinfo(n.Value)))
			case strings.Contains(hosts, "@"):
				l.add(codeValue, fe.example, []*yaml.Node{n}, "%s: a frontend's address holds no user: user and password are keys of their own", fe.path)
			case !found || s != "http" && s != "https" || err != nil || strings.Contains(host, "/"):
				l.add(codeValue, fe.example, []*yaml.Node{n}, "%s: %s is not http://host:port", fe.path, quoteKey(n.Value))
			case scheme != "" && s != scheme:
				l.add(codeConflict, "http:// for all, or https:// for all", []*yaml.Node{n}, "%s has http:// and https://", fe.path)
			case slices.Contains(d.hosts, host):
				l.add(codeValue, "it once", []*yaml.Node{n}, "%s: %s stands twice", fe.path, quoteKey(n.Value))
			default:
				scheme = s
				d.hosts = append(d.hosts, host)
			}
		}
		if len(fe.node.Content) == 0 {
			l.add(codeValue, fe.example, []*yaml.Node{fe.key}, "%s is empty", fe.path)
		}
		https = scheme == "https"
	}
	if database := e.get("database"); database.present() {
		d.database = database.node.Value
		if why := badDatabase(d.database); why != "" || d.database == "" {
			l.wrong(codeName, database, "cannot name a database: 1 to 64 letters, digits, _ - and $", "flights")
		}
	}
	if user := e.get("user"); user.present() {
		if d.user = user.node.Value; d.user == "" || strings.ContainsAny(d.user, ":${") {
			l.wrong(codeName, user, "cannot name a user: no colon, no variable", "slotline")
		}
	}
	if password := e.get("password"); password.present() {
		d.password = password.node.Value
		d.key, d.where = password.path, l.at(password.key)
		if _, _, err := maskVariables(d.password); err != nil {
			l.add(codeValue, password.example, []*yaml.Node{password.key}, "%s: %s", password.path, err.Error())
		}
	}
	return d, https
}

func (l loader) brokers(e *entry) []string {
	if !e.present() {
		return nil
	}
	var brokers []string
	for _, n := range e.node.Content {
		host, port, err := net.SplitHostPort(n.Value)
		number, perr := strconv.ParseUint(port, 10, 16)
		switch {
		case strings.Contains(n.Value, "${"):
			l.add(codeValue, "the broker itself", []*yaml.Node{n}, "%s: %s: variables are put into dsn values only", e.path, quoteKey(n.Value))
		case err != nil || host == "" || perr != nil || number == 0 || strings.ContainsAny(host, "/ "):
			l.add(codeValue, "brokers: [kafka1:9092]", []*yaml.Node{n}, "%s: %s is not host:port", e.path, quoteKey(n.Value))
		case slices.Contains(brokers, n.Value):
			l.add(codeValue, "it once", []*yaml.Node{n}, "%s: %s stands twice", e.path, quoteKey(n.Value))
		default:
			brokers = append(brokers, n.Value)
		}
	}
	if len(e.node.Content) == 0 {
		l.add(codeValue, "brokers: [kafka1:9092]", []*yaml.Node{e.key}, "%s is empty", e.path)
	}
	return brokers
}

func (l loader) topic(e *entry, standard string) string {
	if !e.present() {
		return standard
	}
	if t := e.node.Value; !topicPattern.MatchString(t) || t == "." || t == ".." {
		l.wrong(codeName, e, "cannot name a topic: 1 to 249 of a-z A-Z 0-9 . _ -", "")
		return standard
	}
	return e.node.Value
}

func (l loader) listen(e *entry) string {
	text := l.text(e)
	_, port, err := net.SplitHostPort(text)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		l.wrong(codeValue, e, "is not host:port", e.def)
		return e.def
	}
	return text
}

// groups is at most the number of partitions; a default that is more shrinks, a written one is an error.
func (l loader) groups(e *entry, partitions int) int {
	n := int(l.number(e))
	if n > partitions && e.present() {
		l.wrong(codeConflict, e, "groups for "+strconv.Itoa(partitions)+" partitions: some would have none", strconv.Itoa(partitions))
	}
	return min(n, partitions)
}

// Table is the table of that name, or nil.
func (c *Config) Table(name string) *event.Table {
	for _, t := range c.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Topic is the topic of a table's events.
func (c *Config) Topic(t *event.Table) string {
	if t.Topic != "" {
		return t.Topic
	}
	return c.Kafka.Topic
}

// Topics are the topics that hold events, each once, in the order of the tables.
func (c *Config) Topics() []string {
	var topics []string
	for _, t := range c.Tables {
		if name := c.Topic(t); !slices.Contains(topics, name) {
			topics = append(topics, name)
		}
	}
	return topics
}

// Secrets are the passwords of all DSNs whose variables are set: what no log, error or output may hold.
func (c *Config) Secrets() []string {
	dsns := []DSN{c.Outbox.DSN, c.Sinks.State}
	for _, s := range c.Shards {
		dsns = append(dsns, s.DSN)
	}
	if c.Sinks.ClickHouse != nil {
		dsns = append(dsns, c.Sinks.ClickHouse.DSN)
	}
	if c.Sinks.Doris != nil {
		dsns = append(dsns, c.Sinks.Doris.DSN)
	}
	if c.Kafka.SASL != nil {
		dsns = append(dsns, c.Kafka.SASL.Account)
	}
	if c.Archive != nil && c.Archive.S3 != nil {
		dsns = append(dsns, c.Archive.S3.DSN)
	}
	var secrets []string
	for _, d := range dsns {
		if a, err := d.Resolve(); err == nil && a.Password != "" && !slices.Contains(secrets, a.Password) {
			secrets = append(secrets, a.Password)
		}
	}
	return secrets
}
