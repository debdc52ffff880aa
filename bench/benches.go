package main

// benchmark is one name of `make bench BENCH=…`. It may give several results; the first has its name.
type benchmark struct {
	name  string
	about string
	run   func(b *bench) []Result
}

var benches = []benchmark{
	{"emit_overhead", "a transaction of one INSERT with and without Emit, at 1 and at 16 connections", emitOverhead},
	{"relay_drain", "the relay drains a backlog of one lane; bare: reading alone, producing alone", relayDrain},
	{"relay_latency", "commit to broker ack through the relay; bare: producing after the commit", relayLatency},
	{"mysql_text_insert", "new rows from Kafka to a shard, from four partitions and from one; bare: prebuilt statements of the same shape", mysqlTextInsert},
	{"mysql_text_update", "the same for rows that are there", mysqlTextUpdate},
	{"mysql_staging_insert", "new rows by LOAD DATA LOCAL; bare: prebuilt statements of 1000 rows, one a transaction", mysqlStagingInsert},
	{"mysql_staging_update", "the same for rows that are there", mysqlStagingUpdate},
	{"mysql_hot_entity", "updates, half of them of one entity; bare: rows at random, by the same sink", mysqlHotEntity},
	{"mysql_two_shards", "new rows to two shards on two servers; bare: to one, by the same sink", mysqlTwoShards},
	{"clickhouse_insert", "rows from Kafka to ClickHouse; bare: prebuilt blocks", clickhouseInsert},
	{"clickhouse_over_mysql", "the same rows from Kafka to ClickHouse; bare: to one MySQL shard", clickhouseOverMySQL},
	{"rebuild", "a rebuild from the log; bare: a dump of the same table, restored; the live sink", rebuild},
	{"rebuild_updated", "the same where each row has three events, far apart; bare: the live sink", rebuildUpdated},
	{"rollup_refresh", "a refresh of touched days in a table of 2 million rows; bare: of 200,000", rollupRefresh},
}
