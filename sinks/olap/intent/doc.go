// Package intent is what OLAP sinks share: fixed groups of partitions, each under a lease, and for each group the exact
// content of the batch that is on its way. All of it is in MySQL, in the database that sinks.state names: one row per
// group in slotline_intent (the lease and the intent), one row per partition in slotline_progress.
//
// An engine that cannot commit rows and progress in one transaction is given a batch in four steps:
//
//	store    the intent: ranges and excluded offsets, by compare on the owner epoch          (Group.Begin)
//	send     the rows, under a token that is a hash of the intent                            (the engine's own)
//	confirm  the intent, and advance the progress, in one transaction, by the same compare   (Group.Commit)
//
// What it promises:
//
//   - Progress moves only from where it stands, by the owner of the newest epoch, in the transaction that confirms. A
//     crash between any two steps leaves either nothing stored, or an intent that the next owner is told of
//     (Group.Pending) and sends again with exactly its ranges, exclusions and tokens. An intent fixes the rows of a
//     batch, so an engine that forgets nothing within its window drops what it has already.
//   - A paused owner that was replaced stores, confirms and advances nothing when it wakes. What it may still send is an
//     intent that was stored, so rows that its successor sends too.
//   - An accepted gap, or progress that somebody set back, makes a stored intent void: it is not sent again.
//
// What it assumes: rows carry versions and the engine keeps the greatest, so that tokens only save work; the sessions of
// package mysqldb; rows seeded by Plan.
//
// How it fails: fault.Fenced when another owner has the group, or took it; *event.Rewound when the state database went
// back; fault.Fatal for rows that nobody but this package could have written and did not; otherwise as the database
// did. After an unknown COMMIT the rows are read again on another connection, and they decide.
//
// rules.go holds the decisions, without I/O; group.go runs them over a store; sql.go is the store; table.go and plan.go
// are what apply does.
package intent
