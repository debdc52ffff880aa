package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// This file holds the checks that concern several keys at once.

// databases refuses shards that are one database, and shards in the outbox's database: a shard is written by its sink
// alone, and both hold a table slotline_layout.
func (l loader) databases(root *entry, cfg *Config) {
	shards := root.get("shards")
	for i, s := range cfg.Shards {
		if s.DSN.IsZero() {
			continue
		}
		at := shards.get(s.Name).get("dsn").at()
		if o := cfg.Outbox.DSN; !o.IsZero() && o.sameDatabase(s.DSN) {
			l.add(codeSameDB, "a database of its own for the shard", []*yaml.Node{root.get("outbox").get("dsn").at(), at},
				"shard %s is the outbox's database %s; a shard is written by its sink alone", s.Name, s.DSN.Place())
		}
		for _, o := range cfg.Shards[:i] {
			if !o.DSN.IsZero() && o.DSN.sameDatabase(s.DSN) {
				l.add(codeSameDB, "a database for each shard; they may be on one server", []*yaml.Node{shards.get(o.Name).get("dsn").at(), at},
					"shards %s and %s are one database, %s", o.Name, s.Name, s.DSN.Place())
			}
		}
	}
}

// locals refuses names that the tables of a cluster's shards have.
func (l loader) locals(root *entry, cfg *Config) {
	if cfg.Sinks.ClickHouse == nil || cfg.Sinks.ClickHouse.Cluster == "" {
		return
	}
	at := map[string]*entry{}
	for _, t := range cfg.Tables {
		at[t.Name] = root.get("tables").get(t.Name)
	}
	for _, r := range cfg.Rollups {
		at[r.Name] = root.get("rollups").get(r.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		if of, ok := strings.CutSuffix(name, "_local"); ok && at[of] != nil {
			l.add(codeConflict, "another name", []*yaml.Node{at[name].at(), root.get("sinks").get("clickhouse").get("cluster").at()},
				"%s is the name of %s's rows in a shard of the cluster", name, of)
		}
	}
}

// topics refuses a dead-letter topic that holds events too.
func (l loader) topics(root *entry, cfg *Config) {
	dead := root.get("dead_letters").get("topic")
	if cfg.Line == "" {
		return // names that hang on it are not known
	}
	if cfg.Dead.Topic == cfg.Kafka.Topic {
		l.add(codeConflict, "another topic", []*yaml.Node{root.get("kafka").get("topic").at(), dead.at()},
			"%s is the topic of events and of dead letters", cfg.Dead.Topic)
	}
	for _, t := range cfg.Tables {
		if t.Topic == cfg.Dead.Topic {
			l.add(codeConflict, "another topic", []*yaml.Node{root.get("tables").get(t.Name).get("topic").at(), dead.at()},
				"%s is the topic of table %s and of dead letters", t.Topic, t.Name)
		}
	}
}

// memory refuses batches that cannot fit: each group of an OLAP sink, and each partition of the MySQL sink as far as
// there are connections, has one batch in flight while the next is decoded.
func (l loader) memory(root *entry, cfg *Config) {
	mysqlBatches := int64(min(cfg.Kafka.Partitions, len(cfg.Shards)*cfg.Sinks.MySQL.ConnectionsPerShard))
	need := 2 * mysqlBatches * cfg.Sinks.MySQL.BatchBytes
	sinks := root.get("sinks")
	mysql := sinks.get("mysql")
	causes := []*entry{mysql.get("batch_bytes"), mysql.get("connections_per_shard"), mysql} // what may be changed, the likeliest first
	text := fmt.Sprintf("mysql 2 × %d × %s", mysqlBatches, formatSize(cfg.Sinks.MySQL.BatchBytes))
	largest := need
	olap := func(name string, groups int, batchBytes int64) {
		e, its := sinks.get(name), 2*int64(groups)*batchBytes
		ofIt := []*entry{e.get("batch_bytes"), e.get("groups"), e}
		if its > largest {
			causes, largest = append(ofIt, causes...), its
		} else {
			causes = append(causes, ofIt...)
		}
		need += its
		text += fmt.Sprintf(", %s 2 × %d × %s", name, groups, formatSize(batchBytes))
	}
	if ch := cfg.Sinks.ClickHouse; ch != nil {
		olap("clickhouse", ch.Groups, ch.BatchBytes)
	}
	if d := cfg.Sinks.Doris; d != nil {
		olap("doris", d.Groups, d.BatchBytes)
	}
	if limit := cfg.Limits.MemoryBytesMax; need > limit {
		whole := (need + mib - 1) / mib * mib
		at, write := root.get("limits").get("memory_bytes_max").key, "memory_bytes_max: "+formatSize(whole)
		if at == nil {
			write = "limits: { " + write + " }"
		}
		for _, cause := range causes {
			if at == nil {
				at = cause.key
			}
		}
		if at == nil {
			at = root.get("kafka").get("partitions").at()
		}
		l.add(codeMemory, write+", or smaller batches or fewer groups", []*yaml.Node{at},
			"limits.memory_bytes_max is %s; the batches in flight need %s (%s)", formatSize(limit), formatSize(whole), text)
	}
}
