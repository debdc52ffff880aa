// Package clickhouse is the sink that keeps each entity's newest image in ClickHouse, where questions across tenants are
// asked. It speaks the native protocol.
//
// It promises: in the views `<table>_now` each entity counts once, by key and version (P9), and the greatest version
// wins in any order of arrival (P3). A batch is sent as one block per table and month, under a token that whoever sends
// it again repeats, so that the server drops what it has; should it have forgotten, versions decide all the same. A
// paused writer that was replaced changes nothing that a reader of a view sees (P5). A value is stored as it is or its
// event is rejected, before anything is sent (P12). An outage is never an event's fault (P7).
//
// It assumes: the tables that Plan makes, ReplacingMergeTree(_ver) with a deduplication window; months that never change
// per entity; package intent's rows in MySQL, which say what is on its way and how far each partition is applied.
//
// It fails by class: Data per message as event.Rejected with nothing stored or sent; Transient leaves the same Prepared
// to be applied again; Fenced ends the ownership; Fatal names table and column and what to do; Usage is an address,
// user or password that the server refuses.
//
// How a batch goes: Prepare decodes each record straight into columns in the form that is sent (prepare.go, block.go,
// column.go). Apply stores the intent, sends the blocks and commits (apply.go) over connections that are closed after
// any failure (connection.go). ddl.go, schema.go and plan.go are what apply does; errors.go says what the server's
// errors mean.
package clickhouse
