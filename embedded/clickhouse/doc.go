// Package clickhouse gives the demo and the tests a ClickHouse without a server: the real engine, as a library that
// is fetched once through npm, behind a small front that speaks the native protocol, in a process of its own.
//
//	path, err := clickhouse.EnsureLibrary(ctx, "", progress)  // fetch, check, cache
//	engine, err := clickhouse.Start(ctx, clickhouse.Options{Library: path, DataDir: dir})
//	defer engine.Stop(ctx)
//	client, err := ch.Dial(ctx, ch.Options{Address: engine.Addr()})
//
// The process is the caller's own binary started again: its main (or TestMain) calls RunIfChild first. Options.Binary
// names another one, such as the command clickhouse-engine.
//
// It promises: rows that an INSERT was acknowledged for are there after a SIGKILL and a restart on the same
// directory; one process per data directory, and a clear error for the second; the child ends when its parent does,
// however that ended; a library is used only when its digest is the pinned one.
//
// It assumes a trusted network (there are no users and no TLS: listen on loopback) and linux on amd64.
//
// What it is not: clickhouse-server. No replication, ON CLUSTER, users, TLS; async_insert runs synchronously. Say so
// wherever its results are shown.
//
// How it fails: an engine crash or out-of-memory ends the child, never the caller; clients see a lost connection and
// Engine.Done is closed.
package clickhouse
