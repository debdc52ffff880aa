// Package mysqldb opens MySQL databases the one way that slotline uses them, and says what their errors mean.
//
// What it promises:
//
//   - Every session of a pool has the same rules, whatever the server's defaults: READ COMMITTED, autocommit, a strict
//     sql_mode, utf8mb4, UTC, and a wait_timeout of 60 s, so that a paused writer does not hold its locks for hours. A
//     connection whose session could not be set up so is never handed out. Idle connections are closed before the
//     server would do it.
//   - [Classify] is a total function of an error. Its table is docs/mysql-errors.md, which a test compares with the code.
//   - No error of this package, and nothing the driver logs, holds a password.
//
// What it assumes: MySQL 8.0 or later, MariaDB 10.6 or later, or a server that speaks their protocol. Tried on MySQL 9.7,
// MariaDB 10.11 and go-mysql-server v0.20.0.
//
// How it fails: [Open] does no I/O and fails only where a DSN's variable cannot be filled in. The first use of a pool
// fails with what [Classify] knows; with [ErrNoAnswer] where a server has not let it in within 8 s. An error number that is
// in no table is fault.Unknown: callers retry it, visibly.
package mysqldb
