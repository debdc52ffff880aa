package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/producer"
)

// schema is the service's own tables, in the database that also holds the outbox.
var schema = []string{
	"CREATE TABLE IF NOT EXISTS flight (carrier VARCHAR(2) NOT NULL, id BIGINT UNSIGNED NOT NULL, sched_dep DATETIME(6) NOT NULL," +
		" origin VARCHAR(3) NOT NULL, status VARCHAR(10) NOT NULL, arr_delay INT NULL, PRIMARY KEY (carrier, id))",
	"CREATE TABLE IF NOT EXISTS airport (code VARCHAR(3) PRIMARY KEY, name VARCHAR(80) NOT NULL)",
}

// Flight is the image that is emitted. Its tags name the columns of table flights in slotline.yaml.
type Flight struct {
	Carrier   string    `slotline:"carrier,tenant" json:"carrier"`
	FlightID  uint64    `slotline:"flight_id,id,spread" json:"flight_id"`
	SchedDep  time.Time `slotline:"sched_dep,month" json:"sched_dep"`
	Origin    string    `slotline:"origin" json:"origin"`
	Status    string    `slotline:"status" json:"status"`
	Cancelled bool      `slotline:"cancelled" json:"cancelled"`
	ArrDelay  *int32    `slotline:"arr_delay" json:"arr_delay,omitempty"`
}

// Airport is kept in every shard.
type Airport struct {
	Code string `slotline:"code,id" json:"code"`
	Name string `slotline:"name" json:"name"`
}

type service struct {
	db       *sql.DB
	producer *producer.Producer
	flights  *producer.Table[Flight]
	airports *producer.Table[Airport]
}

func newService(cfg *config.Config, db *sql.DB) (*service, error) {
	s := &service{db: db, producer: producer.New(cfg)}
	var err error
	if s.flights, err = producer.Register[Flight](s.producer, "flights"); err != nil {
		return nil, err
	}
	s.airports, err = producer.Register[Airport](s.producer, "airports")
	return s, err
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /airports/{code}", s.putAirport)
	mux.HandleFunc("POST /flights", s.schedule)
	mux.HandleFunc("GET /flights/{carrier}/{id}", s.get)
	mux.HandleFunc("DELETE /flights/{carrier}/{id}", s.delete)
	mux.HandleFunc("POST /flights/{carrier}/{id}/depart", s.change(func(f *Flight, _ body) error { return f.depart() }))
	mux.HandleFunc("POST /flights/{carrier}/{id}/arrive", s.change(func(f *Flight, b body) error { return f.arrive(b.ArrDelay) }))
	mux.HandleFunc("POST /flights/{carrier}/{id}/cancel", s.change(func(f *Flight, _ body) error { return f.cancel() }))
	return mux
}

// The life of a flight: scheduled, departed, arrived; or scheduled, cancelled.

const (
	scheduled = "scheduled"
	departed  = "departed"
	arrived   = "arrived"
	cancelled = "cancelled"
)

func (f *Flight) step(from, to string) error {
	if f.Status != from {
		return &refusal{http.StatusConflict, fmt.Sprintf("the flight is %s, not %s", f.Status, from)}
	}
	f.Status = to
	return nil
}

func (f *Flight) depart() error { return f.step(scheduled, departed) }

func (f *Flight) arrive(delay int32) error {
	f.ArrDelay = &delay
	return f.step(departed, arrived)
}

func (f *Flight) cancel() error {
	f.Cancelled = true
	return f.step(scheduled, cancelled)
}

// body is what requests may send beside a flight.
type body struct {
	ArrDelay int32 `json:"arr_delay"`
}

func (s *service) schedule(w http.ResponseWriter, r *http.Request) {
	var f Flight
	if !read(w, r, &f) {
		return
	}
	f.Status, f.Cancelled, f.ArrDelay = scheduled, false, nil
	answer(w, r, f, s.producer.Run(r.Context(), s.db, func(tx *producer.Tx) error {
		// Emit checks the client's values, and names the column, before MySQL meets them. Run writes the event last all the same.
		if err := s.producer.Emit(r.Context(), tx, s.flights.Upsert(f)); err != nil {
			return err
		}
		_, err := tx.ExecContext(r.Context(), "INSERT INTO flight (carrier, id, sched_dep, origin, status) VALUES (?, ?, ?, ?, ?)",
			f.Carrier, f.FlightID, f.SchedDep.UTC(), f.Origin, f.Status)
		const duplicateKey = 1062
		if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == duplicateKey {
			return &refusal{http.StatusConflict, "the flight is there already"}
		}
		return err
	}))
}

// change locks the flight, takes a step, and emits the new image: the lock comes first, so that versions follow commits.
func (s *service) change(step func(*Flight, body) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b body
		if r.ContentLength != 0 && !read(w, r, &b) {
			return
		}
		var f Flight
		answer(w, r, &f, s.producer.Run(r.Context(), s.db, func(tx *producer.Tx) error {
			var err error
			if f, err = load(r, tx, " FOR UPDATE"); err != nil {
				return err
			}
			if err := step(&f, b); err != nil {
				return err
			}
			_, err = tx.ExecContext(r.Context(), "UPDATE flight SET status = ?, arr_delay = ? WHERE carrier = ? AND id = ?",
				f.Status, f.ArrDelay, f.Carrier, f.FlightID)
			if err != nil {
				return err
			}
			return s.producer.Emit(r.Context(), tx, s.flights.Upsert(f))
		}))
	}
}

func (s *service) delete(w http.ResponseWriter, r *http.Request) {
	var f Flight
	answer(w, r, &f, s.producer.Run(r.Context(), s.db, func(tx *producer.Tx) error {
		var err error
		if f, err = load(r, tx, " FOR UPDATE"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(r.Context(), "DELETE FROM flight WHERE carrier = ? AND id = ?", f.Carrier, f.FlightID); err != nil {
			return err
		}
		return s.producer.Emit(r.Context(), tx, s.flights.Delete(f))
	}))
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	f, err := load(r, s.db, "")
	answer(w, r, f, err)
}

func (s *service) putAirport(w http.ResponseWriter, r *http.Request) {
	var a Airport
	if !read(w, r, &a) {
		return
	}
	a.Code = r.PathValue("code")
	answer(w, r, a, s.producer.Run(r.Context(), s.db, func(tx *producer.Tx) error {
		if err := s.producer.Emit(r.Context(), tx, s.airports.Upsert(a)); err != nil { // first, as in schedule
			return err
		}
		_, err := tx.ExecContext(r.Context(), "INSERT INTO airport (code, name) VALUES (?, ?) ON DUPLICATE KEY UPDATE name = ?", a.Code, a.Name, a.Name)
		return err
	}))
}

// load reads the flight that the request's path names.
func load(r *http.Request, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, lock string) (f Flight, err error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return f, &refusal{http.StatusBadRequest, "the id is not a number"}
	}
	var delay sql.Null[int32]
	err = q.QueryRowContext(r.Context(), "SELECT carrier, id, sched_dep, origin, status, arr_delay FROM flight WHERE carrier = ? AND id = ?"+lock,
		r.PathValue("carrier"), id).Scan(&f.Carrier, &f.FlightID, &f.SchedDep, &f.Origin, &f.Status, &delay)
	if errors.Is(err, sql.ErrNoRows) {
		return f, &refusal{http.StatusNotFound, "there is no such flight"}
	}
	if delay.Valid {
		f.ArrDelay = &delay.V
	}
	f.Cancelled = f.Status == cancelled
	return f, err
}

// refusal is an error of the client's.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

const requestBytesMax = 64 << 10

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytesMax))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		answer(w, r, nil, &refusal{http.StatusBadRequest, err.Error()})
		return false
	}
	return true
}

// answer writes v, or the status and text that belong to err.
func answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	status := http.StatusOK
	if err != nil {
		var text string
		status, text = refusalOf(err)
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		if _, theirs := errors.AsType[*refusal](err); !theirs {
			log.Printf("%s %q: %d: %v", r.Method, r.URL.Path, status, err)
		}
		v = map[string]string{"error": text}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// refusalOf is what the client is told. What an operator needs beyond it, the file, the server, what to do, is in the log.
func refusalOf(err error) (status int, text string) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status, r.text
	}
	switch {
	case errors.Is(err, producer.ErrBacklogged):
		return http.StatusServiceUnavailable, "nothing was written; try again later"
	case errors.Is(err, producer.ErrTooLarge):
		return http.StatusUnprocessableEntity, "the values are too large together"
	case errors.Is(err, producer.ErrInvalidValue):
		text = "a value does not fit its column"
		if f, ok := errors.AsType[*fault.Error](err); ok {
			text = f.What // the column, and what is wrong with the value
		}
		return http.StatusUnprocessableEntity, text
	case errors.Is(err, producer.ErrCommitUnknown):
		return http.StatusInternalServerError, "it is not known whether the change was made; ask for it, then decide"
	}
	return http.StatusInternalServerError, "the service failed; nothing was changed"
}
