package mysql

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	gsql "github.com/dolthub/go-mysql-server/sql"
	vitess "github.com/dolthub/vitess/go/mysql"
	"github.com/sirupsen/logrus"
)

// Options of a Server.
type Options struct {
	Databases []string // at least one; there are no others, and none can be created
}

// Server is a running server.
type Server struct {
	addr   string
	server *server.Server
	done   chan struct{}
	conns  *connections
}

// The engine logs each failed statement on a logger of the whole process. Clients get the same as errors.
var quiet = sync.OnceFunc(func() {
	logrus.SetOutput(io.Discard)
	logrus.SetLevel(logrus.PanicLevel)
})

// Start starts a server with empty databases on a free port of loopback.
func Start(o Options) (*Server, error) { return start(o, newLock()) }

func start(o Options, l locker) (*Server, error) {
	quiet()
	if len(o.Databases) == 0 {
		return nil, errors.New("embedded mysql: Options.Databases is empty")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("embedded mysql: %w", err)
	}
	// Statements go to our databases, COMMIT to the engine's own: it knows no others.
	var databases, inner []gsql.Database
	for _, name := range o.Databases {
		db := memory.NewDatabase(name)
		db.EnablePrimaryKeyIndexes()
		databases, inner = append(databases, &database{db}), append(inner, db)
	}
	engine := sqle.NewDefault(memory.NewDBProvider(databases...))
	s := &Server{addr: listener.Addr().String(), done: make(chan struct{}), conns: &connections{}}
	s.server, err = server.NewServerWithHandler(
		server.Config{Protocol: "tcp", Address: s.addr, Listener: listener},
		engine, gsql.NewContext, memory.NewSessionBuilder(memory.NewDBProvider(inner...)), nil,
		func(h vitess.Handler) (vitess.Handler, error) {
			return &handler{Handler: h, lock: l, rewrite: &rewriter{}, conns: s.conns}, nil
		})
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("embedded mysql: %w", err)
	}
	go func() { // ends with Close
		defer close(s.done)
		_ = s.server.Start()
	}()
	return s, nil
}

// Addr is HOST:PORT.
func (s *Server) Addr() string { return s.addr }

// URL is the dsn of a database, as slotline.yaml writes it.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("mysql://root@%s/%s", s.addr, database)
}

// Close closes the listener and every connection.
func (s *Server) Close() error {
	err := s.server.Close()
	s.conns.closeAll()
	<-s.done
	s.conns.wait()
	return err
}
