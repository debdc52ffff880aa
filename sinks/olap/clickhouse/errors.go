package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/fault"
)

const (
	codeLogin    = "SL4001" // user or password refused
	codeDatabase = "SL4002" // the database is not there
	codeDenied   = "SL4003" // a privilege is missing
	codeTable    = "SL4004" // a table or view is not as the file says
	codeDDL      = "SL4005" // apply could not make or alter a table
	codeQuery    = "SL4006" // a control statement failed
	codeRollup   = "SL4008" // a rollup could not be computed
	codeAsk      = "SL4009" // a person's query failed
	codeShadow   = "SL4010" // a table cannot be exchanged with one that is made anew
	codeWaits    = "SL4101" // an outage: the batch waits
	codeFatal    = "SL4102" // the server refuses the batch for good
)

// known says what an error number of the server means. docs/clickhouse-errors.md is made from it.
type known struct {
	class   fault.Class
	name    string
	meaning string
	do      string
}

const (
	doNothing = "nothing if it passes; else see the server's log"
	doApply   = "slotline apply --dry-run"
)

var codes = map[proto.Error]known{
	// An outage.
	proto.ErrUnexpectedEndOfFile:               {fault.Transient, "UNEXPECTED_END_OF_FILE", "the block was cut short on its way", doNothing},
	proto.ErrAttemptToReadAfterEOF:             {fault.Transient, "ATTEMPT_TO_READ_AFTER_EOF", "the block was cut short on its way", doNothing},
	proto.ErrCannotReadAllData:                 {fault.Transient, "CANNOT_READ_ALL_DATA", "the block was cut short on its way", doNothing},
	proto.ErrChecksumDoesntMatch:               {fault.Transient, "CHECKSUM_DOESNT_MATCH", "the block was damaged on its way", "see the network, and the memory of both machines"},
	proto.ErrCannotReadFromFileDescriptor:      {fault.Transient, "CANNOT_READ_FROM_FILE_DESCRIPTOR", "the server's disk", "see the server's disk"},
	proto.ErrCannotWriteToFileDescriptor:       {fault.Transient, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", "the server's disk", "see the server's disk"},
	proto.ErrCannotReadFromSocket:              {fault.Transient, "CANNOT_READ_FROM_SOCKET", "network", doNothing},
	proto.ErrCannotWriteToSocket:               {fault.Transient, "CANNOT_WRITE_TO_SOCKET", "network", doNothing},
	proto.ErrTimeoutExceeded:                   {fault.Transient, "TIMEOUT_EXCEEDED", "max_execution_time of the user's profile", "raise it if it lasts"},
	proto.ErrTooSlow:                           {fault.Transient, "TOO_SLOW", "the server expects to need longer than it may", "raise max_execution_time if it lasts"},
	proto.ErrCannotAllocateMemory:              {fault.Transient, "CANNOT_ALLOCATE_MEMORY", "the server's machine is out of memory", doNothing},
	proto.ErrDNSError:                          {fault.Transient, "DNS_ERROR", "the server does not find another", doNothing},
	proto.ErrQuotaExceeded:                     {fault.Transient, "QUOTA_EXCEEDED", "the user's quota", "wait for its next interval, or raise it"},
	proto.ErrTooManySimultaneousQueries:        {fault.Transient, "TOO_MANY_SIMULTANEOUS_QUERIES", "the server is busy", doNothing},
	proto.ErrNoFreeConnection:                  {fault.Transient, "NO_FREE_CONNECTION", "the server is busy", doNothing},
	proto.ErrSocketTimeout:                     {fault.Transient, "SOCKET_TIMEOUT", "network", doNothing},
	proto.ErrNetworkError:                      {fault.Transient, "NETWORK_ERROR", "network", doNothing},
	proto.ErrNoZookeeper:                       {fault.Transient, "NO_ZOOKEEPER", "the replicas' keeper is not there", doNothing},
	proto.ErrAborted:                           {fault.Transient, "ABORTED", "the server is shutting down", doNothing},
	proto.ErrMemoryLimitExceeded:               {fault.Transient, "MEMORY_LIMIT_EXCEEDED", "the server's or the user's memory limit", "if it lasts, smaller sinks.clickhouse.batch_rows, or more memory"},
	proto.ErrTableIsReadOnly:                   {fault.Transient, "TABLE_IS_READ_ONLY", "a replica without its keeper, or a disk gone read-only", doNothing},
	proto.ErrNotEnoughSpace:                    {fault.Transient, "NOT_ENOUGH_SPACE", "the server's disk is full", "make room"},
	proto.ErrTooManyParts:                      {fault.Transient, "TOO_MANY_PARTS", "merging lags behind inserts", "nothing if it passes; else greater sinks.clickhouse.batch_age and batch_rows, or fewer groups"},
	proto.ErrNoActiveReplicas:                  {fault.Transient, "NO_ACTIVE_REPLICAS", "replicas", doNothing},
	proto.ErrTooFewLiveReplicas:                {fault.Transient, "TOO_FEW_LIVE_REPLICAS", "replicas", doNothing},
	proto.ErrUnsatisfiedQuorumForPreviousWrite: {fault.Transient, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", "replicas", doNothing},
	proto.ErrReplicaIsNotInQuorum:              {fault.Transient, "REPLICA_IS_NOT_IN_QUORUM", "replicas", doNothing},
	proto.ErrUnknownStatusOfInsert:             {fault.Transient, "UNKNOWN_STATUS_OF_INSERT", "whether the block was taken is not known; its token tells", doNothing},
	proto.ErrUnfinished:                        {fault.Transient, "UNFINISHED", "a change of the table is under way", doNothing},
	proto.ErrQueryWasCancelled:                 {fault.Transient, "QUERY_WAS_CANCELLED", "somebody killed the query, or the server is shutting down", doNothing},
	proto.ErrSystemError:                       {fault.Transient, "SYSTEM_ERROR", "the server's operating system", doNothing},
	proto.ErrCannotScheduleTask:                {fault.Transient, "CANNOT_SCHEDULE_TASK", "the server has no thread left", doNothing},
	proto.ErrDeadlockAvoided:                   {fault.Transient, "DEADLOCK_AVOIDED", "another query holds the table's lock", doNothing},
	proto.ErrS3Error:                           {fault.Transient, "S3_ERROR", "the server's object store", doNothing},
	proto.ErrCannotAssignAlter:                 {fault.Transient, "CANNOT_ASSIGN_ALTER", "another change of the table is under way", doNothing},
	proto.ErrServerOverloaded:                  {fault.Transient, "SERVER_OVERLOADED", "the server is busy", doNothing},
	proto.ErrKeeperException:                   {fault.Transient, "KEEPER_EXCEPTION", "the replicas' keeper", doNothing},

	// Halts: retrying cannot help.
	proto.ErrCannotParseText:                  {fault.Fatal, "CANNOT_PARSE_TEXT", "a value was converted on its way into the table: a column has another type than the file says", doApply},
	proto.ErrDuplicateColumn:                  {fault.Fatal, "DUPLICATE_COLUMN", "the table is not as the file says", doApply},
	proto.ErrNoSuchColumnInTable:              {fault.Fatal, "NO_SUCH_COLUMN_IN_TABLE", "the table lacks a column of the file", doApply},
	proto.ErrNumberOfColumnsDoesntMatch:       {fault.Fatal, "NUMBER_OF_COLUMNS_DOESNT_MATCH", "the table is not as the file says", doApply},
	proto.ErrIllegalColumn:                    {fault.Fatal, "ILLEGAL_COLUMN", "the table is not as the file says", doApply},
	proto.ErrUnknownIdentifier:                {fault.Fatal, "UNKNOWN_IDENTIFIER", "the table lacks a column of the file", doApply},
	proto.ErrNotImplemented:                   {fault.Fatal, "NOT_IMPLEMENTED", "the server lacks something that the sink needs", "see docs/clickhouse-sink.md for versions"},
	proto.ErrUnknownType:                      {fault.Fatal, "UNKNOWN_TYPE", "the server lacks a type that the sink needs", "see docs/clickhouse-sink.md for versions"},
	proto.ErrTypeMismatch:                     {fault.Fatal, "TYPE_MISMATCH", "a column has another type than the file says", doApply},
	proto.ErrUnknownTable:                     {fault.Fatal, "UNKNOWN_TABLE", "the table is not there", doApply},
	proto.ErrSyntaxError:                      {fault.Fatal, "SYNTAX_ERROR", "the server does not understand the sink", "see docs/clickhouse-sink.md for versions"},
	proto.ErrCannotConvertType:                {fault.Fatal, "CANNOT_CONVERT_TYPE", "a column has another type than the file says", doApply},
	proto.ErrUnknownSetting:                   {fault.Fatal, "UNKNOWN_SETTING", "the URL has a setting that this server does not know, or the server is older than the sink needs", "mend the URL; see docs/clickhouse-sink.md for versions"},
	proto.ErrIncorrectData:                    {fault.Fatal, "INCORRECT_DATA", "the block does not fit the table", doApply},
	proto.ErrTooLargeStringSize:               {fault.Fatal, "TOO_LARGE_STRING_SIZE", "a text is longer than the server takes", "raise the server's limit"},
	proto.ErrReadonly:                         {fault.Fatal, "READONLY", "the user's profile has readonly set", "give the sink's user a profile without readonly"},
	proto.ErrTableIsDropped:                   {fault.Fatal, "TABLE_IS_DROPPED", "somebody drops the table", doApply},
	proto.ErrCannotInsertNullInOrdinaryColumn: {fault.Fatal, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "a column is not Nullable, the file says that it is", doApply},
	proto.ErrSettingConstraintViolation:       {fault.Fatal, "SETTING_CONSTRAINT_VIOLATION", "the user's profile forbids a setting that the sink needs", "allow async_insert, insert_deduplicate and insert_deduplication_token"},
	proto.ErrViolatedConstraint:               {fault.Fatal, "VIOLATED_CONSTRAINT", "a CHECK constraint refuses a row: it would refuse whole blocks", "drop the constraint; events are checked before they are emitted"},

	// Of the address, user or privileges.
	proto.ErrUnknownDatabase:      {fault.Usage, "UNKNOWN_DATABASE", "the database is not there", "CREATE DATABASE by hand: slotline makes tables, not databases"},
	proto.ErrUnknownUser:          {fault.Usage, "UNKNOWN_USER", "the user is not known", "mend user and password in sinks.clickhouse.dsn"},
	proto.ErrWrongPassword:        {fault.Usage, "WRONG_PASSWORD", "the password is wrong", "mend user and password in sinks.clickhouse.dsn"},
	proto.ErrRequiredPassword:     {fault.Usage, "REQUIRED_PASSWORD", "the user needs a password", "mend user and password in sinks.clickhouse.dsn"},
	proto.ErrIPAddressNotAllowed:  {fault.Usage, "IP_ADDRESS_NOT_ALLOWED", "the user may not connect from this machine", "allow its address for the user"},
	proto.ErrAuthenticationFailed: {fault.Usage, "AUTHENTICATION_FAILED", "user or password is wrong", "mend user and password in sinks.clickhouse.dsn"},
	proto.ErrAccessDenied:         {fault.Fatal, "ACCESS_DENIED", "a privilege is missing", "GRANT it; slotline apply --grants prints all that are needed"},
}

// Classify says how a caller must treat an error: by a fault inside it, by the server's number, and by Go's types where
// no server answered. It is fault.Unknown for what it does not know, and for nil.
func Classify(err error) fault.Class {
	if err == nil {
		return fault.Unknown
	}
	if c := fault.ClassOf(err); c != fault.Unknown {
		return c
	}
	if e, ok := ch.AsException(err); ok {
		return codes[e.Code].class
	}
	if _, ok := errors.AsType[*typeError](err); ok {
		return fault.Fatal
	}
	// A certificate that is not trusted, and a port that does not speak TLS, stay so.
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fault.Usage
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fault.Usage
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

// goErrors are what the client returns when no server answered.
var goErrors = []error{io.EOF, io.ErrUnexpectedEOF, ch.ErrClosed, net.ErrClosed, os.ErrDeadlineExceeded,
	context.DeadlineExceeded, context.Canceled, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNREFUSED}

// wrap makes err a fault.Error with a code: "<where>: <what the server said> (code 252)". It returns nil for nil, and
// err itself if a fault is in it already.
func wrap(err error, code, where string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	e := &fault.Error{Code: code, Class: Classify(err), What: where + ": " + err.Error(), Err: err}
	if t, ok := errors.AsType[*typeError](err); ok {
		e.What, e.Do = where+": "+t.Error(), doApply
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		e.Why = "the port answers, and not as TLS does"
		e.Do = "name the server's secure native port (9440 unless set), or take secure out of sinks.clickhouse.dsn"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.Do = "give the server a certificate for this name, of an authority that this host trusts; secure=skip-verify encrypts without knowing with whom"
	}
	if x, ok := ch.AsException(err); ok {
		k := codes[x.Code]
		e.What = fmt.Sprintf("%s: %s (code %d)", where, message(x), x.Code)
		e.Why, e.Do = k.meaning, k.do
		switch {
		case x.Code == proto.ErrUnknownDatabase:
			e.Code = codeDatabase
		case x.Code == proto.ErrAccessDenied:
			e.Code = codeDenied
		case k.class == fault.Usage:
			e.Code = codeLogin
		}
	} else if e.Class == fault.Transient {
		e.Do = "see whether the server is up, and host and port in sinks.clickhouse.dsn; nothing is lost meanwhile"
		timeout, isNet := errors.AsType[net.Error](err)
		switch {
		case errors.Is(err, context.Canceled):
			e.What, e.Do = where+": interrupted before it had answered", ""
		case isNet && timeout.Timeout():
			e.What, e.Why = where+": no answer in time", "nothing takes connections there, or what does says nothing: a server that is paused or overloaded, or another one"
		}
	}
	return e
}

// message is what the server said, without its name for the error, its version and its stack.
func message(x *ch.Exception) string {
	const messageBytesMax = 500
	m := strings.TrimSpace(strings.TrimPrefix(x.Message, x.Name+":"))
	m, _, _ = strings.Cut(m, "Stack trace:")
	m = strings.TrimSpace(m)
	if at := strings.LastIndex(m, " (version "); at > 0 {
		m = m[:at]
	}
	if len(m) > messageBytesMax {
		m = strings.ToValidUTF8(m[:messageBytesMax], "") + "…"
	}
	return m
}
