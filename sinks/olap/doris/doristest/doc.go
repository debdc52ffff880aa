// Package doristest is a server for tests that behaves like Apache Doris where the Doris sink meets it: a frontend that
// redirects loads and tells the state of labels, a backend that takes Stream Loads, and the frontend's MySQL protocol
// for the few statements that apply and the tests need. It is no database: a SELECT that is more than reading columns is
// carried out by a MySQL that the test lends it (SelectBy), so that the sink's own SQL is run by an engine.
//
// It does what a client can get wrong: the frontend refuses a load without Expect, answers refusals with status 200 in
// either of its two shapes, puts user and password into the address that it redirects to, and closes without reading
// the body; the backend has another host name, checks in Doris's order, asks for the body only once the label is taken,
// and answers as text/html. Labels are of the database, free again once aborted, and forgotten on demand. A unique-key
// table keeps, per key, the row with the greatest sequence; rows that lose count as loaded.
//
// What goes wrong is chosen by the test, load by load (Inject). Nothing here was compared with a running Doris: make
// test-doris does that.
package doristest
