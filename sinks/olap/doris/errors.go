package doris

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/fault"
)

const (
	codeLogin    = "SL4401" // user or password refused
	codeDatabase = "SL4402" // the database is not there
	codeDenied   = "SL4403" // a privilege is missing
	codeTable    = "SL4404" // a table or view is not as the file says
	codeDDL      = "SL4405" // apply could not make or alter a table
	codeQuery    = "SL4406" // a question to a frontend failed
	codeWaits    = "SL4408" // an outage: the batch waits
	codeFatal    = "SL4409" // the server refuses the batch for good
	codeRow      = "SL4410" // data: the server refuses this one row
	codeRollup   = "SL4412" // a rollup could not be computed
	codeShadow   = "SL4413" // a table cannot be exchanged with one that is made anew
)

// Classify says how a caller must treat an error: by a fault inside it, by what the server said, and by Go's types
// where no server answered. It is fault.Unknown for what it does not know, and for nil.
func Classify(err error) fault.Class {
	if err == nil {
		return fault.Unknown
	}
	if c := fault.ClassOf(err); c != fault.Unknown {
		return c
	}
	if e, ok := errors.AsType[*serverError](err); ok {
		return e.known.class
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return queryError(e).known.class
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return fault.Transient
	}
	for _, e := range goErrors {
		if errors.Is(err, e) {
			return fault.Transient
		}
	}
	return fault.Unknown
}

// goErrors are what the clients return when no server answered.
var goErrors = []error{io.EOF, io.ErrUnexpectedEOF, mysql.ErrInvalidConn, net.ErrClosed, os.ErrDeadlineExceeded,
	context.DeadlineExceeded, context.Canceled, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED}

// queryError is an error of a frontend's MySQL protocol: most have the number 1105, so that the text decides. What is
// not known there is a fault of the statement.
func queryError(e *mysql.MySQLError) *serverError {
	switch e.Number {
	case 1045:
		return &serverError{cut(e.Message), known{class: fault.Usage, code: codeLogin, meaning: "user or password is wrong", do: doUser}}
	case 1049:
		return &serverError{cut(e.Message), known{class: fault.Usage, code: codeDatabase, meaning: "the database is not there",
			do: "CREATE DATABASE by hand: slotline makes tables, not databases"}}
	case 1044, 1142, 1227:
		return &serverError{cut(e.Message), known{class: fault.Fatal, code: codeDenied, meaning: "a privilege is missing",
			do: "GRANT it; slotline apply --grants prints all that are needed"}}
	}
	v := decideText(&answer{Message: e.Message})
	if v.err.known == otherwise {
		v.err.known = known{class: fault.Fatal, do: "see docs/doris-sink.md for versions and privileges"}
	}
	return v.err
}

// wrap makes err a fault.Error with a code: "<where>: <what the server said>". It returns nil for nil, and err itself
// if a fault is in it already.
func wrap(err error, code, where string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	e := &fault.Error{Code: code, Class: Classify(err), What: where + ": " + cut(err.Error()), Err: err}
	s, ok := errors.AsType[*serverError](err)
	if m, isQuery := errors.AsType[*mysql.MySQLError](err); isQuery {
		s, ok = queryError(m), true
		e.What = fmt.Sprintf("%s: %s (error %d)", where, s.text, m.Number)
	}
	if ok {
		e.Why, e.Do = s.known.meaning, s.known.do
		if s.known.code != "" {
			e.Code = s.known.code
		}
	}
	return e
}
