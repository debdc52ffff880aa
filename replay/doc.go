// Package replay rebuilds tables of one shard from the topics while the shard serves, verifies them, and undoes it.
//
// A job is a row of slotline_job in the shard's own database. Its stages:
//
//	shadow    empty tables orders_202611__rb_<job> are made, with progress rows of sink mysql__rb_<job> at the log's start
//	replay    the sink's own apply code fills them from the log, bounded in rate, and yields to the live sink; events that
//	          have a newer version further on may be passed over (passover.go), after the log was read for them (reading.go);
//	          then the secondary indexes are made, which costs less in a full table
//	verify    they have caught up; each row is compared with the live one; a person says whether to swap
//	swap      LOCK TABLES, progress to the lesser of both, owner epochs + 1, RENAME: live becomes __old_<job>
//	observe   the old tables are fed as sink mysql__old_<job> and can be swapped back
//	accepted, undone, aborted   the tables that are not live any more are dropped
//
// When stage replay ends, each row of the tables is the greatest version below the progress that they did not refuse, whatever
// was passed over; from then on all events are applied.
//
// It promises: readers see nothing of it until the swap, and after it a table that holds the fold of the log; never one
// that is empty or half old (P11), also with a snapshot from before, which the swap waits for. No event is lost at the
// swap, whether all tables of the shard are swapped or some: the live progress goes back to the lesser of the two, and
// versions make what is applied again change nothing. Whoever wakes up after the swap, sink or job, finds its progress row
// with another owner epoch, or gone. Any process takes a job over when its lease has run out; each stage is resumed, and
// a process that was killed in the swap left either none of it done or all of it, since one RENAME is; or the progress
// alone, which whoever goes on takes back.
//
// It assumes: MySQL 8.0.13 or later (RENAME under LOCK TABLES, and atomic); a log that is complete from offset 0, in
// the topics or, below their start, in the archive; the privileges that Privileges names.
//
// Three commands need no job in a shard: VerifyAgainst compares shards with an OLAP store, Tenant writes one tenant's rows as
// they were, and RebuildOLAP makes a table of an OLAP store anew; the latter has a row of its own in the state database.
//
// It fails with fault.Error; the job stays at its stage, and is resumed or aborted.
package replay
