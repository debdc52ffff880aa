package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLog passes the client library's log on, one level lower than the library thinks: what it calls a warning (a
// broker that went away, and back) is of interest to a person only when the line itself is held up, and the line says
// that in its own words.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.log.Enabled(ctx, slog.LevelInfo):
		return kgo.LogLevelError
	default:
		return kgo.LogLevelNone
	}
}

func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError {
		to = slog.LevelInfo
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}
