// Package chdb binds the C interface of libchdb, the ClickHouse engine as a library.
//
// It promises: every call returns the engine's own error text; the memory of a result lives until its Close; the
// signal handlers of the Go runtime survive (the library resets some of them to their defaults whenever a
// connection is opened, so they are saved and put back around it).
//
// It assumes: one data directory per process, for the life of the process; each Conn is used by one goroutine at a
// time, which has locked itself to its thread (the engine keeps per-thread state); all connections but the first
// come and go, the first stays open until the end, because closing the last one stops the engine.
//
// How it fails: an engine crash or an abort ends the process. That is why this package is used only in a process
// of its own (see package clickhouse), never inside a program that has other work to do.
package chdb
