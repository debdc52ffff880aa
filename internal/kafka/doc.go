// Package kafka is what every Kafka client of a line has in common: options from the file, topics (made, checked,
// refused), dead letters (written and read), and errors turned into package fault's.
//
// What it promises:
//
//   - Topics are made once, by [Topic.Create], which returns only when every partition has a leader that the client
//     can see: a first record sent to a partition without one can be lost (KAFKA-15591).
//   - [Check] refuses a topic that would lose or misplace events: missing, of another partition count, compacted,
//     with limited retention, or too narrow for the largest event. It changes nothing.
//   - [Dead.Produce] returns nil only when every dead letter is acknowledged by all in-sync replicas.
//   - No error text holds a secret, and each names the broker, topic or partition that it is about.
//
// What it assumes: brokers of Kafka 3.1 or later (topic ids in fetches and metadata).
//
// How it fails: with *fault.Error. Outages are Transient, also a topic that is missing while the line runs: a loop
// retries them. Refused topics are Fatal.
package kafka
