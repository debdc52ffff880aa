package front

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
	"github.com/slotline/slotline/embedded/clickhouse/internal/wire"
)

// result sends the blocks of one answer.
type result struct {
	s       *session
	carrier wire.Carrier
	profile proto.Profile
}

// part sends the blocks that one part of the answer holds.
func (r *result) part(data []byte) error {
	src := wire.MemorySource(data)
	for src.Buffered() {
		if r.profile.Blocks == 0 {
			// The server tells names and types before any row.
			if err := r.header(data); err != nil {
				return err
			}
		}
		err := r.s.answer.block(proto.ServerCodeData, r.s.compressed, func(b []byte) ([]byte, error) {
			out, shape, err := r.carrier.FromEngine(src, b)
			r.profile.Rows += uint64(shape.Rows)
			return out, err
		})
		if err != nil {
			if errors.Is(err, wire.ErrType) {
				return refuse(codeNotImplemented, "%v", err)
			}
			return err
		}
		r.profile.Blocks++
		r.profile.Bytes += uint64(len(data))
		if err := r.s.answer.flush(); err != nil {
			return err
		}
	}
	return nil
}

// header sends a block without rows that has the columns of the first block in data.
func (r *result) header(data []byte) error {
	var columns []wire.Column
	c := wire.Carrier{Flush: discard, Check: func(column wire.Column) error {
		columns = append(columns, column)
		return nil
	}}
	if _, _, err := c.FromEngine(wire.MemorySource(data), nil); err != nil {
		if errors.Is(err, wire.ErrType) {
			return refuse(codeNotImplemented, "%v", err)
		}
		return err
	}
	return r.s.sendHeader(columns)
}

// sendHeader sends a block of columns without rows.
func (s *session) sendHeader(columns []wire.Column) error {
	return s.answer.block(proto.ServerCodeData, s.compressed, func(b []byte) ([]byte, error) {
		b = binary.AppendUvarint(b, uint64(len(columns)))
		b = binary.AppendUvarint(b, 0)
		for _, c := range columns {
			b = appendString(b, c.Name)
			b = appendString(b, c.Type)
			b = append(b, 0) // no custom serialization
		}
		return b, nil
	})
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// selectStream runs a SELECT and sends its blocks as the engine makes them.
func (s *session) selectStream(sql string, params []chdb.Param) error {
	r := result{s: s}
	cancelled, err := s.watched(func() error {
		stream, err := s.engine.Stream(sql, "Native", params...)
		if err != nil {
			return err
		}
		defer stream.Close()
		for {
			part, err := stream.Next()
			if err != nil {
				return err
			}
			if part == nil {
				break
			}
			err = r.part(part.Bytes())
			part.Close()
			if err != nil {
				stream.Cancel()
				return err
			}
		}
		return nil
	})
	if cancelled {
		return refuse(codeCancelled, "Query was cancelled")
	}
	if err != nil {
		return err
	}
	if r.profile.Blocks == 0 {
		s.emptyHeader(sql, params)
	}
	return s.answer.end(&r.profile, proto.Progress{Rows: r.profile.Rows, Bytes: r.profile.Bytes})
}

// emptyHeader tells the columns of a SELECT without rows: the engine writes nothing for it, the server names them.
// A SELECT that cannot be described goes without.
func (s *session) emptyHeader(sql string, params []chdb.Param) {
	columns, err := s.describe("("+sql+"\n)", params)
	if err != nil {
		s.server.cfg.Log.Debug("an empty result could not be described", "error", err)
		return
	}
	header := make([]wire.Column, len(columns))
	for i, c := range columns {
		header[i] = c.Column
	}
	_ = s.sendHeader(header)
}

// whole runs a statement that is no stream and sends what it returned.
func (s *session) whole(sql string, params []chdb.Param) error {
	r := result{s: s}
	progress := proto.Progress{}
	cancelled, err := s.watched(func() error {
		answer, err := s.engine.Query(sql, "Native", params...)
		if err != nil {
			return err
		}
		defer answer.Close()
		progress.WroteRows = answer.RowsWritten()
		return r.part(answer.Bytes())
	})
	if cancelled {
		return refuse(codeCancelled, "Query was cancelled")
	}
	if err != nil {
		return err
	}
	progress.Rows, progress.Bytes = r.profile.Rows, r.profile.Bytes
	if r.profile.Blocks == 0 {
		return s.answer.end(nil, progress)
	}
	return s.answer.end(&r.profile, progress)
}

// describedColumn is a line of DESCRIBE.
type describedColumn struct {
	wire.Column
	defaultKind string // DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL or none
}

// describe returns the columns of a table, a table function or a bracketed SELECT.
func (s *session) describe(what string, params []chdb.Param) ([]describedColumn, error) {
	r, err := s.engine.Query("DESCRIBE TABLE "+what, "JSONCompactEachRow", params...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var columns []describedColumn
	lines := json.NewDecoder(wire.MemorySource(r.Bytes()))
	for lines.More() {
		var line []string
		if err := lines.Decode(&line); err != nil {
			return nil, err
		}
		if len(line) < 3 {
			return nil, refuse(codeNotImplemented, "DESCRIBE returned %d fields", len(line))
		}
		columns = append(columns, describedColumn{
			Column: wire.Column{Name: line[0], Type: line[1]}, defaultKind: line[2],
		})
	}
	return columns, nil
}
