package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLog passes the client library's log on, one level lower than the library thinks: what it calls a warning (a
// broker that went away, and back) is of interest to a person only when the line itself is held up, and the line says
// that in its own words. A broker that refuses the client is the exception: the library goes on for ever, and tells nobody
// else of it.
type clientLog struct {
	log     *slog.Logger
	brokers []string

	mu                  sync.Mutex
	first, latest, said time.Time            // of refusals in a row, and of the warning of them
	errors              map[string]time.Time // when a sentence of the library's was last passed on as more than a detail
}

const (
	// refusedMin is how long a client is refused before that is a warning: what makes a client and gives up has an error.
	refusedMin = 2 * time.Second
	// refusedPause is how long after the last refusal the next is the first of others: the library tries each second.
	refusedPause = 30 * time.Second
	// refusedAgain is how often it is said.
	refusedAgain = time.Minute
)

func (l *clientLog) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	default:
		return kgo.LogLevelNone
	}
}

func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	for i := 1; i < len(keyvals); i += 2 {
		if err, ok := keyvals[i].(error); ok && keyvals[i-1] == "err" {
			if f := refused(err, l.brokers, "speak with Kafka"); f != nil {
				if l.tell(time.Now()) {
					l.log.Warn("waits: cannot speak with Kafka", "error", f, "code", f.Code, "class", f.Class.String())
				}
				return
			}
		}
	}
	to := slog.LevelDebug
	if level == kgo.LogLevelError && l.fresh(msg, time.Now()) { // it tries again and again, and says so each time
		to = slog.LevelInfo
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}

// fresh says whether a sentence was not passed on for a while. There are as many as the library's source has.
func (l *clientLog) fresh(msg string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, said := l.errors[msg]; said && now.Sub(last) < refusedAgain {
		return false
	}
	if l.errors == nil {
		l.errors = map[string]time.Time{}
	}
	l.errors[msg] = now
	return true
}

// tell notes a refusal, and says whether to warn of it.
func (l *clientLog) tell(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.latest) > refusedPause {
		l.first = now
	}
	l.latest = now
	if now.Sub(l.first) < refusedMin || now.Sub(l.said) < refusedAgain {
		return false
	}
	l.said = now
	return true
}
