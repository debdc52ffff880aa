// Package mysql is a MySQL server inside the process, for the demo and for tests: go-mysql-server's in-memory engine
// behind a real socket on loopback.
//
//	server, err := mysql.Start(mysql.Options{Databases: []string{"flights"}})
//	defer server.Close()
//	dsn := server.URL("flights") // mysql://root@127.0.0.1:PORT/flights
//
// It promises that transactions are serializable and none loses another's rows: one lock per server is held from the
// first statement of a transaction, or of an autocommit statement, to its end. The engine alone does not promise that:
// its COMMIT writes back every table that the session has touched, as the session saw it (TestOverlappingTransactions
// fails without the lock). Servers share nothing, so a transaction on one may wait for a transaction on another.
//
// It assumes a trusted network: any user and password get in. Build with -tags gms_pure_go; without it a C library is
// needed.
//
// What it is not: durable, or fast. A statement costs time in proportion to the rows of its table: keep tables below
// some thousands of rows. There are no savepoints, no replicas and no privileges, rolled-back ids are given out again,
// partitions are accepted and ignored, a UNION whose parts each look up one row by its key fails, and lease times lose
// their fraction of a second. What slotline's statements need beyond the engine is in rewriter and numbers.
//
// How it fails: a statement that waits longer than lockWaitMax for another transaction's end gets error 1205, as
// MySQL's do. A connection that is closed or killed rolls its transaction back.
package mysql
