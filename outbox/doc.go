// Package outbox is the transactional outbox: lane tables in the service's own MySQL, the SQL that appends to them, and
// the relay that publishes their rows to Kafka. It links no Kafka client: the relay is given a [Writer].
//
// What it promises:
//
//   - P1: the relay publishes the rows of committed transactions and no others; each is in the topic or in
//     slotline_dead before the lane's stored state counts it as passed.
//   - P2: no committed row is skipped, whatever the order of commits. Ids that were passed and not seen are gaps: asked
//     for in every read (hot) or swept for (cold), never timed out. A transaction held open delays only its own rows.
//   - None is published twice unless a relay died, and then only if it died with records under way that a scan of the
//     topic's tail could not yet see.
//   - Rows of one lane are sent in the order of their ids within each read, so that the events of an entity keep the
//     order of its commits where the service locks the entity before it emits.
//   - One partition that refuses holds up its own rows; a broker that is away holds up all and loses none.
//   - Memory: a lane holds at most batchesMax batches of batchRows rows; those of all lanes take half of
//     limits.memory_bytes_max at most.
//
// What it assumes: MySQL 8.0 or later with InnoDB, auto_increment_increment = 1, row ids drawn by the table itself,
// rows never updated or deleted, connections to the primary. Only the database's clock is compared with its own
// stamps; leases are judged by the monotonic clock.
//
// Several relays know of each other by the table slotline_relay alone, and spread the lanes evenly (assign). It only says
// who should run a lane; who does is the lease's decision.
//
// How it fails: Relay.Run retries outages for ever and says so; a lane whose state cannot be read, or that meets a
// flood of dead letters, halts, and the others go on. All errors are package fault's (SL50nn).
//
// The files: assign, idset, gaps, flow, generations, tail and batch decide and do no I/O; ddl, insert, lanestate, readsql,
// deadletter hold the SQL; relay, session and reader act.
package outbox
