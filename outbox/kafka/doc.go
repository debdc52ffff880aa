// Package kafka is the relay's Kafka writer over franz-go: an outbox.Writer for one lane and one ownership.
//
// What it promises: records go to the partitions that the relay names, with acks=all and idempotence, in the order of
// Produce within each partition, retried without end while Kafka says that trying again may help. Every record is
// answered once. After Close nothing more is sent. Its buffers are bounded (P10).
//
// With outbox.transactional records go in transactions instead, and are answered when theirs is committed. Fence makes the
// broker refuse the producers of earlier owners. A producer that is refused, or that does not know whether a transaction
// was committed, is of no use any more and says so (ErrProducerLost).
//
// What it assumes: topics exist with as many partitions as the layout says, which apply and the relay's start check; a
// relay that bounds what it hands over.
//
// How it fails: a record that Kafka refuses for good is answered with the reason, together with all that were buffered
// behind it for the same partition; the relay parks or drops it. A partition that is without a leader is waited for.
package kafka
