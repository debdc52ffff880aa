// Package producer emits events inside a service's own MySQL transactions: published if and only if they commit.
//
//	p := producer.New(cfg)
//	orders := producer.MustRegister[Order](p, "orders")
//	err := p.Run(ctx, db, func(tx *producer.Tx) error {
//		if _, err := tx.ExecContext(ctx, "UPDATE orders SET total = ? WHERE id = ?", o.Total, o.OrderID); err != nil {
//			return err
//		}
//		return p.Emit(ctx, tx, orders.Upsert(o))
//	})
//
// With a transaction of the caller's own (database/sql, sqlx, sqlc, gorm) Emit inserts at once; docs/emit.md shows each.
// Package outbox/outboxtest tests what a service emits without a server.
//
// What it promises: an event is written by the caller's transaction and no other; Run commits nothing whose event could
// not be emitted, even if its function ignores the error; values are checked before anything is written; when relay or
// Kafka fall behind, Run and Emit return ErrBacklogged rather than fill the database.
//
// What it assumes: the outbox tables are in the database of the transaction, made by `slotline apply`; the row that an
// event is an image of was written, and so locked, earlier in the same transaction: then versions follow commits.
//
// How it fails: with the errors below, which errors.Is tells apart; their text names table and column and says what to
// do. A Producer has no goroutine and nothing to close. It links neither a Kafka client nor any other server's.
package producer
