package front

import (
	"github.com/ClickHouse/ch-go/proto"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
	"github.com/slotline/slotline/embedded/clickhouse/internal/statement"
	"github.com/slotline/slotline/embedded/clickhouse/internal/wire"
)

// insert runs an INSERT: it tells the client the columns, feeds the engine with the client's blocks, and answers
// when the engine has made them part of the table.
func (s *session) insert(st statement.Statement, params []chdb.Param) error {
	columns, err := s.insertColumns(st, params)
	if err != nil {
		return err
	}
	into, err := s.engine.Insert(st.Head, "Native", params...)
	if err != nil {
		return err
	}
	defer into.Close()
	if err := s.sendHeader(columns); err != nil {
		return err
	}
	if err := s.answer.flush(); err != nil {
		return err
	}
	blocks, err := s.feed(into, columns)
	if err != nil {
		into.Cancel()
		return err
	}
	var rows uint64
	cancelled, err := s.watched(func() (err error) {
		rows, err = into.Done()
		return err
	})
	if err != nil {
		if cancelled {
			return refuse(codeCancelled, "Query was cancelled")
		}
		return err
	}
	if blocks == 0 {
		return s.answer.end(nil, proto.Progress{})
	}
	return s.answer.end(nil, proto.Progress{WroteRows: rows})
}

// feed passes the client's blocks on until its empty one.
func (s *session) feed(into *chdb.Insert, columns []wire.Column) (blocks int, err error) {
	known := make(map[string]bool, len(columns))
	for _, c := range columns {
		known[c.Name] = true
	}
	// An error of the engine or of a column leaves the position within a block: the rest of it is read and dropped,
	// so that the connection stays usable.
	var refused error
	carrier := wire.Carrier{
		Check: func(c wire.Column) error {
			if refused == nil && !known[c.Name] {
				refused = refuse(codeIncorrectData, "Unknown column with name %s found while reading data in Native format", c.Name)
			}
			return nil
		},
		Flush: func(part []byte) error {
			if refused == nil {
				refused = into.Append(part)
			}
			return nil
		},
	}
	for {
		code, err := s.raw.UVarInt()
		if err != nil {
			return blocks, err
		}
		switch proto.ClientCode(code) {
		case proto.ClientCodeData:
		case proto.ClientCodeCancel:
			return blocks, refuse(codeCancelled, "Query was cancelled")
		default:
			return blocks, &brokenStream{refuse(codeUnexpectedPacket, "Unexpected packet %d from client, expected Data", code)}
		}
		if _, err := s.raw.String("table name", tableNameBytes); err != nil {
			return blocks, &brokenStream{err}
		}
		shape, err := s.block(&carrier)
		if err != nil {
			return blocks, &brokenStream{err}
		}
		if refused != nil {
			return blocks, refused
		}
		if shape.Columns == 0 {
			return blocks, nil
		}
		blocks++
		if err := s.answer.noProfileEvents(); err != nil {
			return blocks, err
		}
		if err := s.answer.flush(); err != nil {
			return blocks, err
		}
	}
}

// insertColumns returns the columns that the client's blocks may have: those that the INSERT names, in its order,
// or all that a row can be given values for.
func (s *session) insertColumns(st statement.Statement, params []chdb.Param) ([]wire.Column, error) {
	if st.ColumnsText != "" {
		return nil, refuse(codeNotImplemented, "INSERT with the column list (%s): this front takes only names", st.ColumnsText)
	}
	described, err := s.describe(st.Target, params)
	if err != nil {
		return nil, err
	}
	if st.Columns == nil {
		var columns []wire.Column
		for _, c := range described {
			if c.defaultKind == "" || c.defaultKind == "DEFAULT" {
				columns = append(columns, c.Column)
			}
		}
		return columns, nil
	}
	byName := make(map[string]wire.Column, len(described))
	for _, c := range described {
		byName[c.Name] = c.Column
	}
	columns := make([]wire.Column, 0, len(st.Columns))
	for _, name := range st.Columns {
		c, ok := byName[name]
		if !ok {
			return nil, refuse(codeNoSuchColumn, "No such column %s in table %s", name, st.Target)
		}
		columns = append(columns, c)
	}
	return columns, nil
}
