// Package consumers reads a line's topics and has a sink apply them: it polls, cuts batches, retries, writes dead
// letters, halts. What a sink does with a batch (fence, rows, progress, intent) is the sink's.
//
// # What it promises
//
//   - Start offsets come from the sink's progress and from nowhere else. Two Kafka clients see to that: a member that
//     holds the group's assignment and fetches nothing, and a reader that consumes partitions directly, each from the
//     offset that the sink named when it took the partition over. Offsets committed to the broker are for lag tools.
//   - Progress is contiguous: one batch per owned unit is in flight, the next begins where it ends, and nothing passes
//     a batch that failed. The next batch is prepared while the present one is applied.
//   - P7: an event that the sink rejects is in the dead-letter topic, acknowledged, before progress passes it; the rest
//     of its batch is then prepared again without it. An outage is retried for ever and never sends an event there. More
//     than dead_letters.halt_per_minute of them halt the partition instead.
//   - P8: where the log does not continue what was applied (offsets expired, log cut, topic made again), the partition
//     halts and names the offsets. That is asked of the leader at each take-over and at each change of leader, because
//     the client library would go on from wherever it can. Offsets below the log's start that History has are not
//     missing: they are read from there.
//   - P10: raw records, the client's fetch buffers and prepared batches are bounded by the memory given.
//   - P13: a halted, stalled or slow partition holds up no other. It is paused once it has its share of the memory.
//   - Run ends only when everything it started has ended.
//
// # States of an owned unit
//
// A unit is one partition of a group, or one fixed group of an OLAP sink; one goroutine owns it.
//
//	taking over → verifying → applying ⇄ retrying (an outage) → released
//	                  ↓           ↓ fenced: take over again, if a fresh heartbeat says that it is still ours
//	                halted  ←─────┘ fatal: try again after halt_retry, since a person may have mended the cause
//
// # How it fails
//
// Run returns an error at once where the topics are not what the line needs. Later errors are logged when they change
// and counted; at its end Run returns *Halted if partitions are halted then.
package consumers
