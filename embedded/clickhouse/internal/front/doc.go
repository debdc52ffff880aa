// Package front speaks the ClickHouse native protocol, revision 54460, before an engine that is a library.
//
// It promises: one engine session per connection, with its own settings and current database; what the engine
// acknowledged is what the client is told, in particular an INSERT is answered only when its rows are part of the
// table; an error of the engine reaches the client with its code and leaves the connection usable, as the server
// does; a cancel or a lost connection stops the running statement; nothing that a client sends ends the process or
// makes it take unbounded memory.
//
// It assumes a trusted network: there are no users (any name and password are taken), no TLS, no quotas.
//
// How it differs from clickhouse-server: no replication, ON CLUSTER, users, TLS; async_insert runs synchronously;
// no progress packets while a query runs; WITH TOTALS and extremes come as ordinary rows; external tables are
// refused; a DateTime column of a result has lost its time zone's name; columns of the types AggregateFunction,
// Variant, Dynamic and JSON cannot be carried.
package front
