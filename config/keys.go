package config

import (
	"strings"
	"time"
)

// kind is the form of a key's value.
type kind uint8

const (
	section   kind = iota + 1 // a map of the keys below it
	names                     // a map whose keys are names that the file chooses
	scalar                    // one text
	count                     // a whole number, underscores allowed
	size                      // a number of bytes with a unit
	span                      // a duration with a unit
	choice                    // one of a few words
	listOf                    // a list of texts
	address                   // a mysql:// or clickhouse:// URL
	slotsOf                   // slots and ranges of slots
	placement                 // a map of placed slots to shards
	monthRole                 // a column, or a map of snowflake and epoch
	indexList                 // a list of lists of columns
)

func (k kind) String() string {
	return [...]string{section: "map", names: "map", scalar: "text", count: "count", size: "size", span: "duration",
		choice: "choice", listOf: "list", address: "URL", slotsOf: "slots", placement: "slots: shard",
		monthRole: "column", indexList: "list of lists"}[k]
}

// keySpec describes one key of the file. The table below is the whole file: what it does not name is an unknown key,
// and docs/configuration.md lists it.
type keySpec struct {
	path     string // "outbox.lanes"; <shard>, <table> and the like stand for names that the file chooses
	kind     kind
	def      string // the default as one would write it; "" if there is none
	required bool
	min, max int64    // bounds of a count, of a size in bytes, of a duration in nanoseconds
	choices  []string // of a choice
	later    string   // why the key is refused today; "" for a key that works
	example  string   // what an error tells to write
	meaning  string
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	day = 24 * time.Hour
)

const saslExample = `scram-sha-512: { user: slotline, password: "${KAFKA_PASSWORD}" }`

func nanoseconds(d time.Duration) int64 { return int64(d) }

// keys is in the order of the file.
var keys = []keySpec{
	{path: "line", kind: scalar, required: true, example: "line: flights",
		meaning: "Name of the line: it names topics, consumer groups and state rows, and never changes. A letter a-z, then at most 31 of a-z 0-9 _ -"},

	{path: "kafka", kind: section, required: true, example: "kafka: { brokers: [kafka1:9092] }", meaning: "The Kafka cluster and the line's topic"},
	{path: "kafka.brokers", kind: listOf, required: true, example: "brokers: [kafka1:9092]",
		meaning: "Brokers to begin with, host:port each"},
	{path: "kafka.topic", kind: scalar, def: "<line>.events", meaning: "Topic of all tables that name none of their own"},
	{path: "kafka.partitions", kind: count, def: "16", min: 1, max: 10_000,
		meaning: "Partitions of each topic of events. Part of the layout: on a running line it can grow, and never shrink"},
	{path: "kafka.replication", kind: count, def: "3", min: 1, max: 15, meaning: "Copies of each partition. 1 for a single broker"},
	{path: "kafka.retention", kind: choice, def: "forever", choices: []string{"forever"},
		later:   "brokers that delete by age know of no archive and no sink; slotline archive trim removes what is archived and applied",
		meaning: "How long events are kept in the topics. Compaction is refused as well: a late repeat would remove the newer event"},
	{path: "kafka.compression", kind: choice, def: "lz4", choices: []string{"none", "lz4", "zstd"},
		meaning: "Compression of the records"},
	{path: "kafka.tls", kind: section, example: "tls: {}",
		meaning: "TLS to the brokers: [Kafka over TLS](#kafka-over-tls). Off unless set; `tls: {}` trusts the system's authorities"},
	{path: "kafka.tls.ca", kind: scalar, example: "ca: /etc/ssl/kafka-ca.pem",
		meaning: "PEM file of the authorities that may have signed the brokers' certificates, in place of the system's"},
	{path: "kafka.tls.cert", kind: scalar, example: "cert: /etc/ssl/slotline.pem",
		meaning: "PEM file of this client's certificate, for brokers that ask for one (mutual TLS); with kafka.tls.key"},
	{path: "kafka.tls.key", kind: scalar, example: "key: /etc/ssl/slotline-key.pem",
		meaning: "PEM file of that certificate's private key, without a passphrase. Both are read again for each connection"},
	{path: "kafka.tls.server_name", kind: scalar, example: "server_name: kafka.internal",
		meaning: "Name that every broker's certificate holds, where it is not the one in its address"},
	{path: "kafka.sasl", kind: section, example: saslExample,
		meaning: "The login of the brokers, by one of the mechanisms below: [Kafka over TLS](#kafka-over-tls). Off unless set"},
	{path: "kafka.sasl.scram-sha-512", kind: section, example: saslExample, meaning: "SCRAM-SHA-512: the password itself is not sent"},
	{path: "kafka.sasl.scram-sha-512.user", kind: scalar, required: true, example: "user: slotline",
		meaning: "The user; `${ENV}` and `${file:PATH}` are put in, as in a dsn"},
	{path: "kafka.sasl.scram-sha-512.password", kind: scalar, required: true, example: `password: "${KAFKA_PASSWORD}"`,
		meaning: "The user's password, the same way. Both are read again for each connection"},
	{path: "kafka.sasl.scram-sha-256", kind: section, example: saslExample, meaning: "SCRAM-SHA-256"},
	{path: "kafka.sasl.scram-sha-256.user", kind: scalar, required: true, example: "user: slotline", meaning: "The user"},
	{path: "kafka.sasl.scram-sha-256.password", kind: scalar, required: true, example: `password: "${KAFKA_PASSWORD}"`, meaning: "The user's password"},
	{path: "kafka.sasl.plain", kind: section, example: `plain: { user: slotline, password: "${KAFKA_PASSWORD}" }`,
		meaning: "PLAIN: the password is sent as it is, so it needs kafka.tls"},
	{path: "kafka.sasl.plain.user", kind: scalar, required: true, example: "user: slotline", meaning: "The user"},
	{path: "kafka.sasl.plain.password", kind: scalar, required: true, example: `password: "${KAFKA_PASSWORD}"`, meaning: "The user's password"},

	{path: "layout", kind: section, meaning: "Which slot is where. `apply` changes it on a running line as long as nothing with rows moves: docs/layout.md"},
	{path: "layout.epoch", kind: count, def: "1", min: 1, max: 1 << 53,
		meaning: "Number of the layout: raise it with each change of layout, of shards or their slots, or of kafka.partitions"},
	{path: "layout.slots", kind: count, def: "1024", min: 1, max: 65_536, meaning: "Number of hash slots; never changes"},
	{path: "layout.hash", kind: choice, def: "xxh64", choices: []string{"xxh64", "crc32", "murmur2", "java"},
		meaning: "Hash of the tenant; never changes. murmur2 (Kafka's) and java (String.hashCode) need slots to be a power of two"},
	{path: "layout.tenants", kind: names, meaning: "Tenants with slots of their own; all others are placed by hash. Part of the layout: a tenant that has rows stays as it is"},
	{path: "layout.tenants.<tenant>", kind: section, meaning: "One tenant, at most 64 bytes"},
	{path: "layout.tenants.<tenant>.slots", kind: placement, required: true, example: "slots: { 100000: s1 }",
		meaning: "Its placed slots, numbered from 100000 and never reused, and the shard of each. One is dedicated; several spread its rows by each table's spread column"},

	{path: "shards", kind: names, required: true, example: `shards: { s1: { dsn: "mysql://slotline:${S1_PASSWORD}@db1/flights_s1", slots: 0-1023 } }`,
		meaning: "One MySQL database each; several may share a server"},
	{path: "shards.<shard>", kind: section, meaning: "One shard"},
	{path: "shards.<shard>.dsn", kind: address, required: true, example: `dsn: "mysql://slotline:${S1_PASSWORD}@db1/flights_s1"`,
		meaning: "Its database"},
	{path: "shards.<shard>.slots", kind: slotsOf, example: "slots: 0-511",
		meaning: "The hash slots that it owns: `0-511`, or a list `[0-255, 300]`. Each slot is in exactly one shard. Without it the shard holds placed slots only. Part of the layout: a slot that has rows stays where it is"},

	{path: "tables", kind: names, required: true, example: "tables: { orders: { tenant: carrier, id: order_id, columns: { … } } }",
		meaning: "The logical tables"},
	{path: "tables.<table>", kind: section, meaning: "One table"},
	{path: "tables.<table>.tenant", kind: scalar, meaning: "Column of the tenant. Without it the table is broadcast: every shard has all of it"},
	{path: "tables.<table>.id", kind: scalar, required: true, example: "id: order_id", meaning: "Column that names the entity within its tenant"},
	{path: "tables.<table>.month", kind: monthRole,
		meaning: "Immutable column that says in which month table a row is: a date or datetime, or `{ snowflake: id_column, epoch: 2020-01-01T00:00:00Z }`. Without it there is one table per shard"},
	{path: "tables.<table>.spread", kind: scalar, meaning: "Immutable column that spreads the rows of a tenant with several slots"},
	{path: "tables.<table>.version", kind: scalar, def: "auto",
		meaning: "`auto`, or a column that the service increases with each change of an entity"},
	{path: "tables.<table>.columns", kind: names, required: true, example: "columns: { carrier: string(2), order_id: uint64 }",
		meaning: "The columns, in the order of the row image"},
	{path: "tables.<table>.columns.<column>", kind: scalar,
		meaning: "bool int32 int64 uint64 float64 decimal(p,s) string(n) text bytes(n) date datetime json; a trailing ? allows NULL"},
	{path: "tables.<table>.indexes", kind: indexList,
		meaning: "Secondary indexes, a list of columns each; each begins with the tenant. UNIQUE is not offered"},
	{path: "tables.<table>.topic", kind: scalar, def: "kafka.topic", meaning: "Topic of this table alone"},

	{path: "months", kind: section, meaning: "Month tables"},
	{path: "months.from", kind: scalar, def: "2000-01", meaning: "Earliest month. Absolute, so that replay never depends on the day"},
	{path: "months.ahead", kind: count, def: "2", min: 0, max: 24, meaning: "Month tables made ahead of the present one"},
	{path: "months.keep", kind: scalar, def: "forever", min: 1, max: 1200,
		meaning: "How many months before this one the shards keep, 1 to 1200, or `forever`. `slotline tables retire` drops those that are older; nothing else does"},

	{path: "outbox", kind: section, required: true, example: `outbox: { dsn: "mysql://app:${OUTBOX_PASSWORD}@db0/flights" }`, meaning: "The service's own database, where events are appended"},
	{path: "outbox.dsn", kind: address, required: true, example: `dsn: "mysql://app:${OUTBOX_PASSWORD}@db0/flights"`, meaning: "Its database"},
	{path: "outbox.lanes", kind: count, def: "4", min: 1, max: 64,
		meaning: "Append-only tables, each with one writer to Kafka. Fixed for the life of the database"},
	{path: "outbox.backlog_age_max", kind: span, def: "10m", min: nanoseconds(time.Second), max: nanoseconds(30 * day),
		meaning: "Past this age of a lane's oldest unpublished event, Emit returns ErrBacklogged for the lane's tenants"},
	{path: "outbox.backlog_events_max", kind: count, def: "5_000_000", min: 1, max: 1e12,
		meaning: "Past this number of unpublished events in a lane, Emit returns ErrBacklogged for the lane's tenants"},
	{path: "outbox.event_bytes_max", kind: size, def: "900KiB", min: kib, max: 8 * mib,
		meaning: "Largest event; past it Emit returns ErrTooLarge. apply sets the topics' max.message.bytes above it"},
	{path: "outbox.purge_rows", kind: count, def: "1_000_000", min: 100, max: 1e10,
		meaning: "Ids per partition of a lane table. Partitions behind the cursor are purged whole ([outbox.md](outbox.md#partitions-of-a-lane-table)). At 20,000 events/s a million is a partition every 50 s. A change holds for partitions made after it"},
	{path: "outbox.lease_time", kind: span, def: "5s", min: nanoseconds(200 * time.Millisecond), max: nanoseconds(10 * time.Minute),
		meaning: "How long the lease of a relay lane or OLAP group runs; a dead owner is replaced after it"},
	{path: "outbox.transactional", kind: choice, def: "false", choices: []string{"false", "true"},
		meaning: "Each lane publishes in Kafka transactions: a relay that wakes after it was replaced adds nothing to the topic. Latency and throughput pay for it"},

	{path: "sinks", kind: section, meaning: "Where events are applied"},
	{path: "sinks.mysql", kind: section, meaning: "The sink that fills the shards"},
	{path: "sinks.mysql.batch_rows", kind: count, def: "4000", min: 1, max: 100_000, meaning: "A batch is cut at this many events"},
	{path: "sinks.mysql.batch_bytes", kind: size, def: "4MiB", min: 64 * kib, max: gib, meaning: "or at this size"},
	{path: "sinks.mysql.batch_age", kind: span, def: "20ms", min: nanoseconds(time.Millisecond), max: nanoseconds(time.Minute), meaning: "or at this age"},
	{path: "sinks.mysql.connections_per_shard", kind: count, def: "8", min: 1, max: 256, meaning: "Connections to each shard"},
	{path: "sinks.clickhouse", kind: section, meaning: "The ClickHouse sink; off unless set"},
	{path: "sinks.clickhouse.dsn", kind: address, required: true, example: `dsn: "clickhouse://slotline:${CH_PASSWORD}@ch1:9000/flights"`,
		meaning: "Its database, native protocol; several hosts are tried in turn; secure=true for TLS, settings of the server as parameters"},
	{path: "sinks.clickhouse.groups", kind: count, def: "4", min: 1, max: 256,
		meaning: "Fixed sets of partitions, one batch in flight each; at most kafka.partitions"},
	{path: "sinks.clickhouse.batch_rows", kind: count, def: "100_000", min: 1, max: 10_000_000, meaning: "A batch is cut at this many events"},
	{path: "sinks.clickhouse.batch_bytes", kind: size, def: "32MiB", min: 64 * kib, max: gib, meaning: "or at this size"},
	{path: "sinks.clickhouse.batch_age", kind: span, def: "1s", min: nanoseconds(time.Millisecond), max: nanoseconds(10 * time.Minute), meaning: "or at this age"},
	{path: "sinks.clickhouse.cluster", kind: scalar, example: "cluster: main",
		meaning: "Cluster of the server on which tables are [Replicated and Distributed](clickhouse-sink.md#on-a-cluster); one server unless set"},
	{path: "sinks.doris", kind: section, meaning: "The Apache Doris sink; off unless set"},
	{path: "sinks.doris.fe", kind: listOf, required: true, example: `fe: ["http://fe1:8030"]`,
		meaning: "Its frontends, `http://host:port` or `https://host:port` each; they are tried in turn"},
	{path: "sinks.doris.query_port", kind: count, def: "9030", min: 1, max: 65_535,
		meaning: "Port of the frontends' MySQL protocol, for apply and for the check of the tables"},
	{path: "sinks.doris.database", kind: scalar, required: true, example: "database: flights", meaning: "Its database"},
	{path: "sinks.doris.user", kind: scalar, required: true, example: "user: slotline", meaning: "The user that loads"},
	{path: "sinks.doris.password", kind: scalar, required: true, example: `password: "${DORIS_PASSWORD}"`,
		meaning: "The user's password: `${ENV}` or `${file:PATH}` are put in, as in a dsn"},
	{path: "sinks.doris.replication", kind: count, def: "3", min: 1, max: 15,
		meaning: "Copies of each tablet of the tables that apply makes. 1 for a single backend"},
	{path: "sinks.doris.groups", kind: count, def: "4", min: 1, max: 256,
		meaning: "Fixed sets of partitions, one batch in flight each; at most kafka.partitions"},
	{path: "sinks.doris.batch_rows", kind: count, def: "200_000", min: 1, max: 10_000_000, meaning: "A batch is cut at this many events"},
	{path: "sinks.doris.batch_bytes", kind: size, def: "16MiB", min: 64 * kib, max: gib, meaning: "or at this size"},
	{path: "sinks.doris.batch_age", kind: span, def: "5s", min: nanoseconds(time.Millisecond), max: nanoseconds(10 * time.Minute), meaning: "or at this age"},
	{path: "sinks.state", kind: address, def: "outbox", meaning: "Where OLAP epochs and intents live: `outbox`, or a mysql:// URL"},

	{path: "dead_letters", kind: section, meaning: "The topic of events that a sink cannot take"},
	{path: "dead_letters.topic", kind: scalar, def: "<line>.dead", meaning: "Its name"},
	{path: "dead_letters.retention", kind: span, def: "90d", min: nanoseconds(time.Hour), max: nanoseconds(36_500 * day), meaning: "How long they are kept"},
	{path: "dead_letters.halt_per_minute", kind: count, def: "1000", min: 1, max: 1e9,
		meaning: "Past this many a minute it is a fault of a release, not of rows: the partition halts"},

	{path: "rollups", kind: names, meaning: "Figures by tenant, day or month, and dimensions, kept in ClickHouse and in Doris: [rollups](clickhouse-sink.md#rollups)"},
	{path: "rollups.<rollup>", kind: section, meaning: "One rollup; it names a table and a view `<rollup>_now`"},
	{path: "rollups.<rollup>.table", kind: scalar, required: true, example: "table: orders", meaning: "Its table, which has a tenant and a month"},
	{path: "rollups.<rollup>.by", kind: listOf, meaning: "Columns that are its dimensions, besides the tenant, which is always one"},
	{path: "rollups.<rollup>.bucket", kind: choice, def: "day", choices: []string{"day", "month"},
		meaning: "Of the table's month column, in UTC; also the name of the column that holds it"},
	{path: "rollups.<rollup>.measures", kind: names, required: true, example: "measures: { orders: count, revenue: sum(total) }",
		meaning: "Its figures"},
	{path: "rollups.<rollup>.measures.<measure>", kind: scalar,
		meaning: "count, or sum min max avg distinct of a column: `sum(total)`"},
	{path: "archive", kind: section, meaning: "Where `slotline archive` keeps closed parts of the log as Parquet files: [archive.md](archive.md). Off unless set; dir or s3"},
	{path: "archive.dir", kind: scalar, example: "dir: /srv/archive/flights",
		meaning: "Absolute path of a directory that whoever archives or reads the archive can reach"},
	{path: "archive.s3", kind: section, meaning: "A bucket in place of a directory"},
	{path: "archive.s3.endpoint", kind: scalar, required: true, example: `endpoint: "https://s3.eu-central-1.amazonaws.com"`,
		meaning: "Address of the service, `https://host` or `http://host:port`"},
	{path: "archive.s3.bucket", kind: scalar, required: true, example: "bucket: archive", meaning: "A bucket that is there"},
	{path: "archive.s3.prefix", kind: scalar, def: "<line>", meaning: "What the names of all objects begin with, before a `/`"},
	{path: "archive.s3.region", kind: scalar, def: "us-east-1", meaning: "Region that requests are signed for"},
	{path: "archive.s3.access_key", kind: scalar, example: "access_key: AKIDEXAMPLE",
		meaning: "The user; without it the machine's own role is asked for (IAM: of an instance, a container or a service account)"},
	{path: "archive.s3.secret_key", kind: scalar, example: `secret_key: "${S3_SECRET_KEY}"`,
		meaning: "The user's secret: `${ENV}` or `${file:PATH}` are put in, as in a dsn"},
	{path: "archive.older_than", kind: span, def: "1d", min: nanoseconds(time.Second), max: nanoseconds(3650 * day),
		meaning: "Events are archived when they are older than this, by their records' own time"},
	{path: "archive.file_bytes", kind: size, def: "256MiB", min: mib, max: 4 * gib,
		meaning: "A file is closed at this many bytes of keys, values and headers; they shrink to about a tenth. A file lies in the directory for temporary files while it is written or read"},

	{path: "limits", kind: section, meaning: "Of one process"},
	{path: "limits.memory_bytes_max", kind: size, def: "512MiB", min: 64 * mib, max: tib,
		meaning: "Memory of one process. Refused when the batches in flight cannot fit"},
	{path: "limits.drain_timeout", kind: span, def: "10s", min: nanoseconds(100 * time.Millisecond), max: nanoseconds(10 * time.Minute),
		meaning: "How long a process that was told to stop finishes what is under way"},

	{path: "http", kind: section, meaning: "Metrics and health"},
	{path: "http.listen", kind: scalar, def: "127.0.0.1:9464", meaning: "Address of /metrics, /healthz and /readyz"},
}

// keyNode is the same table as a tree.
type keyNode struct {
	*keySpec
	name  string // last part of the path
	kids  []*keyNode
	named *keyNode // the child that stands for every name
}

func (n *keyNode) kid(name string) *keyNode {
	for _, k := range n.kids {
		if k.name == name {
			return k
		}
	}
	return n.named
}

var keyTree = func() *keyNode {
	root := &keyNode{keySpec: &keySpec{kind: section}}
	for i := range keys {
		n, parts := root, strings.Split(keys[i].path, ".")
		for _, part := range parts[:len(parts)-1] {
			n = n.kid(part)
		}
		kid := &keyNode{keySpec: &keys[i], name: parts[len(parts)-1]}
		if strings.HasPrefix(kid.name, "<") {
			n.named = kid
		} else {
			n.kids = append(n.kids, kid)
		}
	}
	return root
}()
