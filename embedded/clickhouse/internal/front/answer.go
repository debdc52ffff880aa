package front

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"

	"github.com/ClickHouse/ch-go/compress"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
)

// Codes of ClickHouse exceptions that this front itself raises.
const (
	codeNoSuchColumn      = 16
	codeNotImplemented    = 48
	codeSyntax            = 62
	codeUnknownPacket     = 99
	codeUnexpectedPacket  = 101
	codeIncorrectData     = 117
	codeTooManyQueries    = 202
	codeCancelled         = 394
	codeStandardException = 1001
)

// refusal is an error that the client is told with a code of its own.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code int, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// engineError is how the engine's text begins: "Code: 60. DB::Exception: Table x does not exist. (UNKNOWN_TABLE)".
var engineError = regexp.MustCompile(`(?s)^Code: (\d+)\. (.*)$`)

// exception turns an error into the packet's body.
func exception(err error) proto.Exception {
	e := proto.Exception{Code: codeStandardException, Name: "DB::Exception"}
	var r *refusal
	var engine *chdb.Error
	switch {
	case errors.As(err, &r):
		e.Code = proto.Error(r.code)
		e.Message = "DB::Exception: " + r.text
	case errors.As(err, &engine):
		e.Message = engine.Text
		if m := engineError.FindStringSubmatch(engine.Text); m != nil {
			if code, err := strconv.ParseInt(m[1], 10, 32); err == nil {
				e.Code = proto.Error(code)
			}
			e.Message = m[2]
		}
	default:
		e.Message = "DB::Exception: " + err.Error()
	}
	return e
}

// answer gathers packets and writes them to the client.
type answer struct {
	conn       net.Conn
	buf        proto.Buffer
	compressor *compress.Writer
}

// frameBytes is how much of a block goes into one compressed frame, as the server does.
const frameBytes = 1 << 20

func newAnswer(conn net.Conn) *answer {
	return &answer{conn: conn, compressor: compress.NewWriter(compress.LevelZero, compress.LZ4)}
}

// flush writes what was gathered.
func (a *answer) flush() error {
	if len(a.buf.Buf) == 0 {
		return nil
	}
	_, err := a.conn.Write(a.buf.Buf)
	a.buf.Reset()
	if err != nil {
		return &lostClient{err}
	}
	return nil
}

// block begins a packet with a block, calls body to append it, and compresses it if the query asked for that.
func (a *answer) block(code proto.ServerCode, compressed bool, body func([]byte) ([]byte, error)) error {
	code.Encode(&a.buf)
	a.buf.PutString("") // temporary table
	start := len(a.buf.Buf)
	proto.BlockInfo{BucketNum: -1}.Encode(&a.buf)
	out, err := body(a.buf.Buf)
	if err != nil {
		a.buf.Buf = a.buf.Buf[:start]
		return err
	}
	a.buf.Buf = out
	if !compressed {
		return nil
	}
	plain := append([]byte(nil), out[start:]...)
	a.buf.Buf = out[:start]
	for len(plain) > 0 {
		part := plain[:min(len(plain), frameBytes)]
		plain = plain[len(part):]
		if err := a.compressor.Compress(part); err != nil {
			return fmt.Errorf("compress a block: %w", err)
		}
		a.buf.Buf = append(a.buf.Buf, a.compressor.Data...)
	}
	return nil
}

// exception sends an error. A half-made packet before it is dropped by the caller.
func (a *answer) exception(err error) error {
	proto.ServerCodeException.Encode(&a.buf)
	e := exception(err)
	e.EncodeAware(&a.buf, revision)
	return a.flush()
}

// noProfileEvents sends the packet that clients expect after each block of an INSERT and before the end of each
// statement, without events in it.
func (a *answer) noProfileEvents() error {
	return a.block(proto.ServerProfileEvents, false, func(b []byte) ([]byte, error) {
		return append(b, 0, 0), nil
	})
}

// end sends the totals of a statement and the end of the stream.
func (a *answer) end(profile *proto.Profile, progress proto.Progress) error {
	if profile != nil {
		profile.EncodeAware(&a.buf, revision)
	}
	proto.ServerCodeProgress.Encode(&a.buf)
	progress.EncodeAware(&a.buf, revision)
	if err := a.noProfileEvents(); err != nil {
		return err
	}
	proto.ServerCodeEndOfStream.Encode(&a.buf)
	return a.flush()
}
