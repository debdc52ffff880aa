// Package rollup keeps the rollups of an OLAP sink right: sums by tenant, day or month, and dimensions, in a table of
// the engine. A rollup is never added to. The sink stores which pairs of tenant and day its batches touched, in the
// transaction that advances the progress (Mark); a worker computes each touched slice, which is a tenant's bucket with
// all its dimensions, anew from the base table, writes it whole under a new version, and clears the pair. Readers see of
// each slice the greatest version alone.
//
// What it promises:
//
//   - Once no pair is marked and no fill is wanted, each rollup equals the same query over the base (P9), whatever was
//     updated, deleted, sent twice or replayed, and wherever a process crashed. A pair is cleared only if it was not
//     touched since it was read.
//   - Two workers that compute one slice end right. Each reads the marks, then takes a version, then reads the base. The
//     one that clears a mark took its version after it read the mark, so every greater version was read from a base
//     that has the mark's events; a lesser one loses, whenever it lands.
//   - Versions and the numbers of fills grow also when the state database is restored: they are at least its clock, in
//     microseconds.
//   - A new rollup, and every rollup when a group of the sink passes between processes whose files declare others, is
//     filled: all pairs of the base are marked.
//
// What it assumes: an engine that writes a slice whole or not at all; months and days that never change per entity; no
// process that sends a batch after a person gave its offsets up and the fill for that has ended; that the state database
// is away while it is restored, so that a fill that was under way fails and begins anew.
//
// How it fails: errors of the database or the engine are logged, shown by the lag, and tried again. A worker whose lease
// ran out does no harm.
//
// state.go is the tables in sinks.state; worker.go is the loop.
package rollup
