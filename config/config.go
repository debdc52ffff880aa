package config

import (
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// Config is one validated line: slotline.yaml with every default filled in and every bound kept. The key that a field
// comes from, its unit and its bounds stand beside it; docs/configuration.md says what they are for.
type Config struct {
	File    string // path it was read from, for errors
	Line    string // line: 1 to 32 of a-z 0-9 _ -
	Kafka   Kafka
	Layout  partitioner.Spec // from layout, shards and kafka.partitions; Spec.Partitions is nil (apply computes and stores it)
	Shards  []Shard          // in file order; a partitioner.Layout has its own: find one by name
	Tables  []*event.Table   // in file order
	Months  Months
	Outbox  Outbox
	Sinks   Sinks
	Dead    DeadLetters
	Rollups []*Rollup // in file order; kept by each OLAP sink
	Archive *Archive  // nil: off
	Limits  Limits
	HTTP    HTTP
}

// Kafka is the section kafka: the cluster, and what its topics are made with.
type Kafka struct {
	Brokers     []string // kafka.brokers: host:port each, one at least
	Topic       string   // kafka.topic, of all tables that name none; default <line>.events
	Partitions  int      // kafka.partitions, of each topic of events: 1 to 10,000, at most the number of hash slots
	Replication int      // kafka.replication, copies of each partition: 1 to 15
	Compression string   // kafka.compression: none, lz4 or zstd
	TLS         *TLS     // nil: plain text
	SASL        *SASL    // nil: no login
}

// TLS is kafka.tls. Nothing is read before Client.
type TLS struct {
	CA         string // kafka.tls.ca, a PEM file; "": the authorities of the system
	Cert       string // kafka.tls.cert, a PEM file; "" without a certificate of the client's own
	Key        string // kafka.tls.key, a PEM file; "" with Cert
	ServerName string // kafka.tls.server_name; "": the host of each broker's address
	where      [3]string
}

// SASL is kafka.sasl: the login, by one mechanism.
type SASL struct {
	Mechanism string // the key below kafka.sasl: scram-sha-512, scram-sha-256 or plain
	// Account holds the brokers and of the mechanism the keys kafka.sasl.scram-sha-512.user and
	// kafka.sasl.scram-sha-512.password, kafka.sasl.scram-sha-256.user and kafka.sasl.scram-sha-256.password, or
	// kafka.sasl.plain.user and kafka.sasl.plain.password.
	Account DSN
}

// Shard is one entry of shards. The slots that it owns are in Config.Layout.
type Shard struct {
	Name string // its key
	DSN  DSN    // shards.<shard>.dsn: mysql, no other shard's and not the outbox's database
}

// Months is the section months.
type Months struct {
	From  partitioner.Month // months.from, the earliest month that an event may have; default 200001
	Ahead int               // months.ahead, month tables made ahead of the present one: 0 to 24
	Keep  int               // months.keep, months before this one that shards keep: 1 to 1200; 0 for ever
}

// Outbox is the section outbox: the service's own database.
type Outbox struct {
	DSN              DSN           // outbox.dsn: mysql
	Lanes            int           // outbox.lanes: 1 to 64, fixed for the life of the database
	BacklogAgeMax    time.Duration // outbox.backlog_age_max: 1s to 30 days; past either limit Emit returns ErrBacklogged
	BacklogEventsMax int64         // outbox.backlog_events_max, unpublished events of one lane: 1 to 10^12
	EventBytesMax    int64         // outbox.event_bytes_max, bytes of one event's body: 1 KiB to 8 MiB; past it ErrTooLarge
	PurgeRows        int64         // outbox.purge_rows, ids per partition of a lane table: 100 to 10^10
	Transactional    bool          // outbox.transactional: each lane publishes in Kafka transactions; default false
	LeaseTime        time.Duration // outbox.lease_time, how long a dead relay or OLAP owner is waited for: 200ms to 10m
}

// Sinks is the section sinks. The MySQL sink is always there: it fills the shards.
type Sinks struct {
	MySQL      MySQLSink
	ClickHouse *ClickHouseSink // nil: off
	Doris      *DorisSink      // nil: off
	State      DSN             // sinks.state: mysql; the outbox's unless the file names another
}

// MySQLSink is sinks.mysql. A batch ends at whichever of its limits is met first.
type MySQLSink struct {
	BatchRows           int           // sinks.mysql.batch_rows, events: 1 to 100,000
	BatchBytes          int64         // sinks.mysql.batch_bytes, bytes of their records: 64 KiB to 1 GiB
	BatchAge            time.Duration // sinks.mysql.batch_age: 1ms to 1m
	ConnectionsPerShard int           // sinks.mysql.connections_per_shard, of one process: 1 to 256
}

// ClickHouseSink is sinks.clickhouse. A batch ends at whichever of its limits is met first.
type ClickHouseSink struct {
	DSN        DSN           // sinks.clickhouse.dsn: clickhouse, native protocol, several hosts are tried in turn
	Groups     int           // sinks.clickhouse.groups, sets of partitions with one batch in flight each: 1 to Kafka.Partitions, at most 256
	BatchRows  int           // sinks.clickhouse.batch_rows, events: 1 to 10,000,000
	BatchBytes int64         // sinks.clickhouse.batch_bytes, bytes of their records: 64 KiB to 1 GiB
	BatchAge   time.Duration // sinks.clickhouse.batch_age: 1ms to 10m
	Cluster    string        // sinks.clickhouse.cluster: tables are Replicated and Distributed on it; "" for one server
}

// DorisSink is sinks.doris. A batch ends at whichever of its limits is met first.
type DorisSink struct {
	DSN         DSN           // sinks.doris.fe, sinks.doris.database, sinks.doris.user and sinks.doris.password: its hosts are the frontends' HTTP addresses
	HTTPS       bool          // sinks.doris.fe begins with https://
	QueryPort   int           // sinks.doris.query_port, of the frontends: 1 to 65,535
	Replication int           // sinks.doris.replication, copies of each tablet: 1 to 15
	Groups      int           // sinks.doris.groups, sets of partitions with one batch in flight each: 1 to Kafka.Partitions, at most 256
	BatchRows   int           // sinks.doris.batch_rows, events: 1 to 10,000,000
	BatchBytes  int64         // sinks.doris.batch_bytes, bytes of their records: 64 KiB to 1 GiB
	BatchAge    time.Duration // sinks.doris.batch_age: 1ms to 10m
}

// DeadLetters is the section dead_letters.
type DeadLetters struct {
	Topic         string        // dead_letters.topic, no table's; default <line>.dead
	Retention     time.Duration // dead_letters.retention, of that topic: 1h to 36,500 days
	HaltPerMinute int           // dead_letters.halt_per_minute, of one partition or lane, past which it halts: 1 to 10^9
}

// Rollup is one entry of rollups.<rollup>: figures of a table by tenant, bucket and dimensions.
type Rollup struct {
	Name     string       // its key
	Table    *event.Table // rollups.<rollup>.table: has a tenant and a month
	Bucket   string       // rollups.<rollup>.bucket: day or month, of the table's month column, in UTC
	By       []int        // rollups.<rollup>.by: columns of Table, without the tenant, which is always a dimension
	Measures []Measure    // rollups.<rollup>.measures, in file order; one at least
}

// Measure is one entry of rollups.<rollup>.measures.<measure>.
type Measure struct {
	Name   string // its key
	Func   string // count, sum, min, max, avg or distinct
	Column int    // of Table; event.None for count
}

// Archive is the section archive: where closed parts of the log are kept. One of Dir and S3 is set.
type Archive struct {
	Dir       string        // archive.dir: an absolute path; "" with S3
	S3        *S3           // nil with Dir
	OlderThan time.Duration // archive.older_than, age of events that are archived: 1s to 3,650 days
	FileBytes int64         // archive.file_bytes, bytes of keys, values and headers at which a file is closed: 1 MiB to 4 GiB
}

// S3 is archive.s3: a bucket of a service that speaks S3.
type S3 struct {
	DSN    DSN    // archive.s3.endpoint is its host, archive.s3.bucket its database; archive.s3.access_key and archive.s3.secret_key, without a user: the machine's role
	HTTPS  bool   // archive.s3.endpoint begins with https://
	Prefix string // archive.s3.prefix, without slashes at its ends; default the line
	Region string // archive.s3.region; default us-east-1
}

// Limits is the section limits: of one process.
type Limits struct {
	MemoryBytesMax int64         // limits.memory_bytes_max: 64 MiB to 1 TiB, at least what the batches in flight need
	DrainTimeout   time.Duration // limits.drain_timeout, how long a stopping process finishes what is under way: 100ms to 10m
}

// HTTP is the section http.
type HTTP struct {
	Listen string // http.listen: host:port of /metrics, /healthz and /readyz
}
