package producer

// Codes of the faults that this package makes; docs/errors.md lists them.
const (
	codeBacklogged       = "SL5101" // the relay or Kafka is behind
	codeCommitUnknown    = "SL5102" // connection lost in COMMIT
	codeTooLarge         = "SL5103" // the row image is larger than outbox.event_bytes_max
	codeUnknownTable     = "SL5104" // the file has no such table
	codeNotInTransaction = "SL5105" // Emit was given a pool, or a transaction that has ended
	codeMonth            = "SL5106" // the event's month is outside the months that sinks take
	codeInsert           = "SL5107" // a lane table refuses the INSERT
	codeAdmission        = "SL5108" // the state of the outbox cannot be read
	codeEmptyEvent       = "SL5109" // Emit was given an Event that no Table made
)
