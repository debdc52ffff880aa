// Package doris is the sink that keeps each entity's newest image in Apache Doris, where questions across tenants are
// asked. It loads rows by Stream Load over HTTP; apply speaks the frontends' MySQL protocol.
//
// It promises: in the views `<table>_now` each entity counts once, by key and version (P9), and the greatest version
// wins in any order of arrival (P3). A batch is sent as one load per table, under a label that whoever sends it again
// repeats, so that Doris refuses what it has; it forgets labels after some two thousand loads, and then versions decide
// all the same. A paused writer that was replaced changes nothing that a reader of a view sees (P5). A value is stored as
// it is or its event is rejected, alone, and the next lower version of its entity is applied (P7, P12). An outage is
// never an event's fault.
//
// It assumes: the tables that Plan makes, UNIQUE KEY merge-on-write with the sequence column _ver; months that never
// change per entity; package intent's rows in MySQL, which say what is on its way and how far each partition is applied.
//
// It fails by class: Data per message as event.Rejected; Transient leaves the same Prepared to be applied again; Fenced
// ends the ownership; Fatal names table and column and what to do; Usage is an address, user or password that the server
// refuses.
//
// How a batch goes: Prepare encodes each record straight into the lines of JSON that are sent (prepare.go, block.go,
// encode.go). Apply stores the intent, loads the blocks and commits (apply.go). loader.go sends one load: to a frontend,
// which redirects to a backend. answer.go says, without I/O, what each answer means; badrows.go finds the rows that the
// server refused. ddl.go, schema.go, catalog.go and plan.go are what apply does; rowsum.go and shadow.go are what a
// comparison and a rebuild of a table ask.
package doris
