// Package sinktest is the conformance suite that every sink passes: one list of promises, the same for MySQL,
// ClickHouse and the in-memory sink that lies here too ([Memory]), which is the plain statement of what a sink does.
//
// A sink's own test calls [Run] with a [Factory]. The suite feeds batches straight through consumers.Owned, as the
// consumers would, and reads the rows back through [Store]; no Kafka is needed. Each case is a subtest, named after
// what it shows, over a fresh Store. Random cases print their seed; SINKTEST_SEED repeats one.
//
// What a case never does is look inside: progress is asked of TakeOver and Positions, rows of Store.Rows.
package sinktest
