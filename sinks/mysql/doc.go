// Package mysql is the sink that keeps each entity's newest image in the MySQL shard and month table that own it.
//
// It promises: rows and progress commit together, so that in every committed state of a shard its rows equal the fold
// of the events below applied_off (P4). A writer whose owner epoch is not the row's changes nothing (P5). The greatest
// version of an entity wins in any order of arrival (P3). A row goes to the shard of its slot, recomputed from the
// layout, and to the month table of its own immutable field (P6). A value is stored as it is or its event is rejected,
// never altered (P12). An outage is never an event's fault, and one bad event never another's (P7).
//
// It assumes: sessions as package mysqldb opens them (READ COMMITTED, strict, UTC, clientFoundRows); rows of
// slotline_progress seeded by apply; month tables that nobody but the sinks and apply writes or alters. Tables are
// compared with the schema once, when a shard is first used and when a table is made: that, with the ranges that
// package event checks, is why strict mode has nothing left to round or cut in silence.
//
// It fails by class: Data is returned per message as event.Rejected with nothing committed; Transient leaves the same
// Prepared to be applied again; Fenced ends the ownership; Fatal names table and column and what to do.
//
// How a batch goes: Prepare decodes each record into one SQL tuple in a shared buffer, keeps the greatest version per
// entity and sorts by shard, table, month and primary key (prepare.go, batch.go). Apply sends, per shard and in
// parallel, START TRANSACTION, the move of the progress row and the upserts as multi-statement packets, looks at the
// one count that matters, and commits (apply.go). Many rows of one table are loaded into a temporary table before it,
// where the server lets them (staging.go). reject.go finds the bad rows of a refused batch, takeover.go is the fence,
// months.go makes tables, ddl.go and schema.go and plan.go are what apply does.
package mysql
