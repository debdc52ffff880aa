package producer

import (
	"errors"
	"fmt"

	"github.com/slotline/slotline/fault"
)

// The errors that callers branch on, with errors.Is.
var (
	// ErrBacklogged: relay or Kafka is behind. Nothing was written; answer 503 and let the client come again.
	ErrBacklogged = errors.New("the outbox is backlogged")
	// ErrCommitUnknown: the connection was lost in COMMIT. The transaction, and with it the events, may have been
	// committed or not: read your own row, then decide.
	ErrCommitUnknown = errors.New("it is not known whether the transaction committed")
	// ErrTooLarge: an event is larger than outbox.event_bytes_max.
	ErrTooLarge = errors.New("event too large")
	// ErrInvalidValue: a value does not fit its column; the text names it.
	ErrInvalidValue = errors.New("invalid value")
	// ErrUnknownTable: the file has no such table.
	ErrUnknownTable = errors.New("unknown table")
	// ErrNotInTransaction: Emit was given something that is not an open transaction.
	ErrNotInTransaction = errors.New("not in a transaction")
)

// invalid is ErrInvalidValue with what is wrong.
func invalid(err error) error { return fmt.Errorf("%w: %w", ErrInvalidValue, err) }

func notInTransaction(what, do string) error {
	return &fault.Error{Code: codeNotInTransaction, Class: fault.Usage, Err: ErrNotInTransaction, What: "Emit: " + what,
		Why: "an event that is not written by the transaction that it tells of may be published without it, or be missing",
		Do:  do}
}
