// Command flights is a small HTTP service on package producer. It keeps flights in a table of its own and emits each
// change in the transaction that makes it; README.md shows it in use.
//
// It promises that an answer of 200 means that the change and its event have both committed. It assumes that
// `slotline apply` has made the outbox tables in its database. It fails with 503 when the outbox is backlogged, and
// with 500 when the outcome of a commit is unknown: the client then asks for the flight and decides.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
)

const drainTimeout = 5 * time.Second // of requests under way at the end

func main() {
	file := flag.String("c", "slotline.yaml", "the line's `file`")
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve on")
	flag.Parse()
	if err := run(*file, *listen, os.Getenv("FLIGHTS_DSN")); err != nil {
		log.Fatal(err)
	}
}

func run(file, listen, dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	if dsn == "" {
		return errors.New(`FLIGHTS_DSN is not set; write FLIGHTS_DSN='app:secret@tcp(127.0.0.1:3306)/flights'`)
	}
	connector, err := connectorOf(dsn)
	if err != nil {
		return fmt.Errorf("FLIGHTS_DSN: %w", err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	for _, statement := range schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("making the service's own tables: %w", err)
		}
	}
	service, err := newService(cfg, db)
	if err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: service.routes(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	log.Printf("serving http://%s", listen)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return server.Shutdown(drain)
}

func connectorOf(dsn string) (driver.Connector, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	utcTimes(c)
	return mysql.NewConnector(c)
}

// utcTimes makes the driver read times as times, in UTC, whatever the DSN says of parseTime and loc: the service's
// statements rely on both.
func utcTimes(c *mysql.Config) { c.ParseTime, c.Loc = true, time.UTC }
