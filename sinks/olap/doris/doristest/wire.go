package doristest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

// This file is as much of the MySQL protocol as a client needs that sends texts of statements.

const (
	comQuit   = 1
	comInitDB = 2
	comQuery  = 3
	comPing   = 14

	// LONG_PASSWORD, CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH
	capabilities = 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x80000
	withDB       = 0x8
	autocommit   = 0x2
	utf8mb4      = 45
	varString    = 253
	bigint       = 8
	double       = 5
)

// serveQueries accepts clients until the listener is closed.
func (s *Server) serveQueries() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := s.query.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		if s.closed {
			c.Close()
		}
		s.mu.Unlock()
		wg.Go(func() {
			defer func() {
				c.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.conns, c)
			}()
			_ = (&session{server: s, conn: c, in: bufio.NewReader(c)}).serve()
		})
	}
}

type session struct {
	server *Server
	conn   net.Conn
	in     *bufio.Reader
	seq    byte
	db     string
}

func (c *session) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, err
	}
	c.seq = head[3] + 1
	body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	_, err := io.ReadFull(c.in, body)
	return body, err
}

func (c *session) write(body []byte) error {
	head := []byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), c.seq}
	c.seq++
	_, err := c.conn.Write(append(head, body...))
	return err
}

func (c *session) ok() error { return c.write([]byte{0, 0, 0, autocommit, 0, 0, 0}) }

func (c *session) fail(err error) error {
	e := &sqlError{1105, err.Error()}
	errors.As(err, &e)
	return c.write(append([]byte{0xff, byte(e.number), byte(e.number >> 8)}, "#HY000"+e.text...))
}

func (c *session) serve() error {
	seed := []byte("doristestdoristest12")
	hello := append([]byte{10}, "5.7.99\x00\x01\x00\x00\x00"...)
	hello = append(append(hello, seed[:8]...), 0)
	hello = append(hello, capabilities&0xff, capabilities>>8&0xff, utf8mb4, autocommit, 0, capabilities>>16&0xff, capabilities>>24&0xff, 21)
	hello = append(append(hello, make([]byte, 10)...), seed[8:]...)
	hello = append(append(hello, 0), "mysql_native_password\x00"...)
	if err := c.write(hello); err != nil {
		return err
	}
	login, err := c.read()
	if err != nil || len(login) < 33 {
		return err
	}
	flags := binary.LittleEndian.Uint32(login)
	user, rest, _ := bytes.Cut(login[32:], []byte{0})
	if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return errors.New("a short packet")
	}
	proof := rest[1 : 1+int(rest[0])]
	rest = rest[1+int(rest[0]):]
	if flags&withDB != 0 {
		db, _, _ := bytes.Cut(rest, []byte{0})
		c.db = string(db)
	}
	if string(user) != User || !bytes.Equal(proof, scramble(Password, seed)) {
		return c.fail(&sqlError{1045, "Access denied for user '" + string(user) + "@127.0.0.1' (using password: YES)"})
	}
	c.server.mu.Lock()
	known := c.server.databases[c.db] != nil
	c.server.mu.Unlock()
	if !known {
		return c.fail(&sqlError{1049, "Unknown database '" + c.db + "'"})
	}
	if err := c.ok(); err != nil {
		return err
	}
	for {
		p, err := c.read()
		if err != nil || len(p) == 0 || p[0] == comQuit {
			return err
		}
		switch p[0] {
		case comPing, comInitDB:
			err = c.ok()
		case comQuery:
			err = c.query(string(p[1:]))
		default:
			err = c.fail(&sqlError{1047, "Unknown command"})
		}
		if err != nil {
			return err
		}
	}
}

func (c *session) query(statement string) error {
	if strings.HasPrefix(statement, "SET ") {
		return c.ok()
	}
	r, err := c.server.run(c.db, statement)
	if err != nil {
		return c.fail(err)
	}
	if r.columns == nil {
		return c.ok()
	}
	if err := c.write([]byte{byte(len(r.columns))}); err != nil {
		return err
	}
	for i, name := range r.columns {
		typ := byte(varString)
		if r.types != nil {
			typ = r.types[i]
		}
		p := lenText(nil, "def")
		for _, text := range []string{"", "", "", name, name} {
			p = lenText(p, text)
		}
		p = append(p, 12, utf8mb4, 0, 0xff, 0xff, 0, 0, typ, 0, 0, 0, 0, 0)
		if err := c.write(p); err != nil {
			return err
		}
	}
	end := []byte{0xfe, 0, 0, autocommit, 0}
	if err := c.write(end); err != nil {
		return err
	}
	for _, have := range r.rows {
		var p []byte
		for _, v := range have {
			if v == nil {
				p = append(p, 0xfb)
			} else {
				p = lenText(p, *v)
			}
		}
		if err := c.write(p); err != nil {
			return err
		}
	}
	return c.write(end)
}

// lenText appends text with its length.
func lenText(dst []byte, text string) []byte {
	switch n := len(text); {
	case n < 251:
		dst = append(dst, byte(n))
	case n < 1<<16:
		dst = append(dst, 0xfc, byte(n), byte(n>>8))
	default:
		dst = append(dst, 0xfd, byte(n), byte(n>>8), byte(n>>16))
	}
	return append(dst, text...)
}
