package doris

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
)

const (
	// statementTimeout bounds a statement that reads or defines.
	statementTimeout = time.Minute
	// connections are enough for apply, the check of the tables and a person's query; each rollup has one more.
	connections = 2
)

// openCatalog is a pool of the frontends' MySQL protocol. It does no I/O.
func openCatalog(c *config.DorisSink, most int) *sql.DB {
	db := sql.OpenDB(catalogConnector{c})
	db.SetMaxOpenConns(most)
	db.SetConnMaxIdleTime(45 * time.Second) // shorter than boxes on the way allow
	return db
}

// catalogConnector tries the frontends in turn.
type catalogConnector struct{ c *config.DorisSink }

func (catalogConnector) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (k catalogConnector) Connect(ctx context.Context) (driver.Conn, error) {
	a, err := k.c.DSN.Resolve()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, host := range a.Hosts {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			return nil, err
		}
		m := mysql.NewConfig()
		m.Net, m.Addr = "tcp", net.JoinHostPort(name, strconv.Itoa(k.c.QueryPort))
		m.User, m.Passwd, m.DBName = a.User, a.Password, a.Database
		m.Timeout, m.ReadTimeout, m.WriteTimeout = dialTimeout, queryTimeout, statementTimeout // statements have shorter ones of their own
		m.InterpolateParams = true
		m.Logger = &mysql.NopLogger{} // what it would print comes back as an error
		inner, err := mysql.NewConnector(m)
		if err != nil {
			return nil, err
		}
		conn, err := inner.Connect(ctx)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Addr, err))
		if _, refused := errors.AsType[*mysql.MySQLError](err); refused || ctx.Err() != nil {
			break // the next frontend would refuse as well
		}
	}
	return nil, errors.Join(errs...)
}

// exec runs a statement that returns nothing.
func (s *Sink) exec(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := s.catalog.ExecContext(ctx, statement)
	return err
}

// rows runs a query and returns its rows as texts, "" for NULL. Columns beyond those asked for are left out: servers
// add some at the end.
func (s *Sink) rows(ctx context.Context, query string, columns int) (list [][]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.each(ctx, s.catalog, query, func(f []sql.RawBytes) error {
		if len(f) < columns {
			return fmt.Errorf("%s: %d columns, wanted %d", query, len(f), columns)
		}
		row := make([]string, columns)
		for i := range row {
			row[i] = string(f[i])
		}
		list = append(list, row)
		return nil
	})
	return list, err
}

// querier is a pool or a connection of it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each runs a query that reads much and passes on each row's values as texts, nil for NULL, which are good until it returns.
func (s *Sink) each(ctx context.Context, q querier, query string, row func(f []sql.RawBytes) error) error {
	return s.eachNamed(ctx, q, query, func(_ []string, f []sql.RawBytes) error { return row(f) })
}

// eachNamed is each, with the columns' names.
func (s *Sink) eachNamed(ctx context.Context, q querier, query string, row func(names []string, f []sql.RawBytes) error) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	fields, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range fields {
		into[i] = &fields[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(names, fields); err != nil {
			return err
		}
	}
	return rows.Err()
}
