// Package outboxtest lets a service test what it emits without a server.
//
//	out := outboxtest.New(t, cfg)
//	s := newService(cfg, out.DB)       // the code under test: producer.New(cfg), p.Run(ctx, db, …), p.Emit(ctx, tx, …)
//	s.depart(ctx, "UA", 1545)
//	out.Want(t, s.flights.Upsert(Flight{Carrier: "UA", FlightID: 1545, Status: "departed"}))
//
// What it promises: DB is a *sql.DB whose transactions are real to the producer: the producer's own checks, admission
// and INSERTs run as in production, and an event counts once its transaction commits, never after a rollback. What the
// real thing refuses (a value that does not fit, an unknown table, an event that is too large, a *sql.DB in place of a
// transaction, a backlog) is refused here by the same code.
//
// What it assumes: the service's own statements need no server to be tested. They succeed, change one row and find
// none, unless Answer says otherwise; they are not parsed.
//
// How it fails: through the test, with the columns that differ. A transaction that is open when the test ends, and an
// event outside of a transaction, are errors of the test too.
//
// It imports package testing: only tests import it.
package outboxtest
