package harness

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"
)

// stepTimeout bounds one administrative step of a test: a database made, a topic deleted.
const stepTimeout = 30 * time.Second

// Name returns a word that no other test uses, fit for a line, a database and a topic: eight lower-case letters and digits.
func Name(t testing.TB) string {
	t.Helper()
	return "t" + randomHex(4)[1:]
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
