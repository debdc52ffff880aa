// Package lease is the fenced row that the relay's lanes, the groups of OLAP sinks and jobs share: a row of a table
// in which one owner at a time is written, until when, and how often owners changed.
//
// The row has three states:
//
//	free     owner = ''                                  anyone may take it
//	held     owner <> '' and lease_until > the database's time   only the owner renews or releases it
//	expired  owner <> '' and lease_until <= the database's time  anyone may take it; nobody can renew it
//
// and one rule: each take-over adds exactly 1 to owner_epoch, nothing else changes it.
//
// What it promises:
//
//   - Owner and owner epoch are the fence. A writer that compares them with its own ([Guard]) in the statement that
//     changes other columns of the row, or in the transaction that changes other rows after it read this one FOR
//     UPDATE, changes nothing once another has taken over, however long it was paused, whatever the clocks say, and
//     even if the table was restored from a backup meanwhile.
//   - [Held.Alive] is false no later than the time at which the database lets another take over, as long as the
//     database's clock does not jump ahead of the monotonic clock here: the local deadline counts from before the
//     request was sent. So Alive is for what no database can fence (records for Kafka); it is a hint elsewhere.
//   - Only the database's time is compared with lease_until. The clocks of two processes are never compared.
//   - A row whose owner is dead can be taken over ttl after its last renewal.
//
// What it assumes: one primary, autocommit or READ COMMITTED, and owner ids that no two processes share ([NewOwner]).
// A database clock that jumps ahead ends leases early (the fence holds, Alive may overlap); one that jumps back
// delays take-overs by as much. The monotonic clock of Linux stands still while a virtual machine is suspended; the
// fence does not.
//
// How it fails: with a fault.Fenced when another owner has the row (SL7001 at Acquire, naming it; SL7002 later), with
// a fault.Fatal where the row is missing (SL7003), and otherwise with what the database said (SL7004). A take-over or
// renewal whose answer was lost changes nothing that matters: the next Acquire by the same owner takes the row again,
// under a new epoch.
package lease
