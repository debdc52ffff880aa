package mysqldb

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/fault"
)

// Classify says how a caller must treat an error of a database call: by a fault inside it, by MySQL's error number,
// by SQLSTATE where the number is in no table, and by Go's types where no server answered. It is fault.Unknown for
// what it does not know, and for nil.
func Classify(err error) fault.Class {
	if err == nil {
		return fault.Unknown
	}
	if c := fault.ClassOf(err); c != fault.Unknown {
		return c
	}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		if n, known := numbers[my.Number]; known {
			return n.class
		}
		return stateClass(string(my.SQLState[:]))
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return fault.Transient
	}
	for _, g := range goErrors {
		if errors.Is(err, g.err) {
			return g.class
		}
	}
	return fault.Unknown
}

// Number is MySQL's error number inside err; 0 if no server answered.
func Number(err error) uint16 {
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return my.Number
	}
	return 0
}

// Wrap makes err a fault.Error with the caller's code: "<where>: <what MySQL said> (error 1290)", its class from
// Classify, and what the table says to do. It returns nil for nil, and err itself if a fault is in it already.
func Wrap(err error, code, where string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	e := &fault.Error{Code: code, Class: Classify(err), What: where + ": " + err.Error(), Err: err}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		e.What = fmt.Sprintf("%s: %s (error %d)", where, my.Message, my.Number)
		if n, known := numbers[my.Number]; known {
			e.Why, e.Do = n.meaning, n.do
		}
	} else if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		e.Why, e.Do = "no server answers at that address", "start the server, or correct host and port in the DSN"
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			e.Why, e.Do = "the host's name cannot be looked up", "correct the host in the DSN, or mend the name service"
		}
	} else if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Do = "let the server have a certificate for this name, of an authority that this machine trusts (SSL_CERT_FILE names others), or write tls=skip-verify in the dsn"
	} else {
		for _, g := range goErrors {
			if errors.Is(err, g.err) {
				e.Why = g.meaning
				break
			}
		}
		for _, w := range inWords {
			if errors.Is(err, w.err) {
				e.What, e.Do = where+": "+cmp.Or(w.what, err.Error()), w.do
				break
			}
		}
	}
	return e
}

// inWords is what a person reads of errors whose own text says nothing of servers, or not what to do.
var inWords = []struct {
	err      error
	what, do string // what is "" where the error says it
}{
	{ErrNoAnswer, "", "see the server's log and process list, and what stands between; nothing is lost meanwhile"},
	{context.DeadlineExceeded, "no answer in time", "see whether the server is paused or overloaded"},
	{context.Canceled, "interrupted before it had answered", ""},
}

// goErrors are what the driver and database/sql return when no server answered, or none was asked.
var goErrors = []struct {
	err     error
	name    string
	class   fault.Class
	meaning string
}{
	{driver.ErrBadConn, "driver.ErrBadConn", fault.Transient, "the connection was closed before anything was sent"},
	{mysql.ErrInvalidConn, "mysql.ErrInvalidConn", fault.Transient, "the connection was lost; whether the statement was carried out is not known"},
	{mysql.ErrMalformPkt, "mysql.ErrMalformPkt", fault.Transient, "an answer was cut short"},
	{mysql.ErrPktSync, "mysql.ErrPktSync", fault.Transient, "an answer belongs to another statement; the connection is dropped"},
	{mysql.ErrPktSyncMul, "mysql.ErrPktSyncMul", fault.Transient, "as ErrPktSync"},
	{mysql.ErrBusyBuffer, "mysql.ErrBusyBuffer", fault.Transient, "the connection's last answer was not read to its end"},
	{io.EOF, "io.EOF", fault.Transient, "the connection was closed by the other side"},
	{io.ErrUnexpectedEOF, "io.ErrUnexpectedEOF", fault.Transient, "as io.EOF, within an answer"},
	{ErrNoAnswer, "mysqldb.ErrNoAnswer", fault.Transient, "something takes connections there and says nothing: a server that is paused, or that has no memory, disk or threads left, or a proxy before one that is gone"},
	{context.DeadlineExceeded, "context.DeadlineExceeded", fault.Transient, "the time for it ran out"},
	{context.Canceled, "context.Canceled", fault.Transient, "the caller gave up"},
	{sql.ErrConnDone, "sql.ErrConnDone", fault.Transient, "the connection went back to the pool"},
	{sql.ErrTxDone, "sql.ErrTxDone", fault.Transient, "the transaction ended; it is begun again"},
	{mysql.ErrPktTooLarge, "mysql.ErrPktTooLarge", fault.Fatal, "a statement is larger than the server's max_allowed_packet"},
	{mysql.ErrNoTLS, "mysql.ErrNoTLS", fault.Fatal, "the DSN asks for TLS, the server has none"},
	{mysql.ErrCleartextPassword, "mysql.ErrCleartextPassword", fault.Fatal, "the server asks for the password in clear text"},
	{mysql.ErrNativePassword, "mysql.ErrNativePassword", fault.Fatal, "the server asks for an old authentication that is off"},
	{mysql.ErrOldPassword, "mysql.ErrOldPassword", fault.Fatal, "the server asks for the authentication of MySQL 4.0"},
	{mysql.ErrUnknownPlugin, "mysql.ErrUnknownPlugin", fault.Fatal, "the user's authentication plugin is not supported"},
	{mysql.ErrOldProtocol, "mysql.ErrOldProtocol", fault.Fatal, "the server is older than MySQL 4.1"},
}

// stateClass classes a number that is in no table by the first two characters of its SQLSTATE.
func stateClass(state string) fault.Class {
	if len(state) >= 2 {
		for _, s := range states {
			if s.prefix == state[:2] {
				return s.class
			}
		}
	}
	return fault.Unknown
}

var states = []struct {
	prefix  string
	class   fault.Class
	meaning string
}{
	{"08", fault.Transient, "connection"},
	{"22", fault.Data, "a value that its type or function refuses"},
	{"23", fault.Fatal, "a constraint, other than those below: with one writer per row none can fail"},
	{"28", fault.Fatal, "authentication"},
	{"3D", fault.Fatal, "no database"},
	{"40", fault.Transient, "the transaction was rolled back"},
	{"42", fault.Fatal, "syntax, names and privileges"},
	{"70", fault.Transient, "interrupted"},
}
