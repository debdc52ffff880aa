package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
)

// watchLeast keeps a watch from asking all databases without a pause.
const watchLeast = 500 * time.Millisecond

func statusCommand(o *options) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Every stage: lag, owner, what is halted and what to do; --watch",
		Long: `Status reads the databases alone: what relays and sinks have written of lanes, progress, owners and halts. It asks neither
Kafka nor the processes: lag is what a relay has published and a sink has not applied, and a stage that stands still
shows by its age. A database that does not answer is named, and hides none of the others.

With --watch it looks again until Ctrl-C: in place on a terminal, one below the other elsewhere.

Exit status: 4 when something is halted, 1 when a database could not be asked; of a watch, what the last look says.`,
		Example: `  slotline status
  slotline status --watch=10s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			watch := cmd.Flags().Changed("watch")
			if watch && every < watchLeast {
				return usageError{errors.New("--watch is at least " + watchLeast.String())}
			}
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			info, err := os.Stdout.Stat()
			inPlace := watch && o.output == "table" && err == nil && info.Mode()&os.ModeCharDevice != 0
			ctx := cmd.Context()
			var last error // of a whole look
			for first := true; ; first = false {
				status, err := l.Status(ctx)
				switch {
				case err != nil && !first && ctx.Err() != nil:
					return last
				case err != nil:
					return err
				}
				var text bytes.Buffer
				if err := renderTo(&text, o.output, status, status.WriteText); err != nil {
					return err
				}
				out := text.String()
				switch {
				case inPlace:
					out = redrawn(out)
				case !first:
					out = map[string]string{"table": "\n", "yaml": "---\n"}[o.output] + out
				}
				if _, err := os.Stdout.WriteString(out); err != nil {
					return err
				}
				last = statusExit(status)
				if !watch || !waited(ctx, every) {
					return last
				}
			}
		},
	}
	cmd.Flags().DurationVar(&every, "watch", 0, "look again after this `duration`, until Ctrl-C; 2s when none is given")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// waited is false where ctx ended first.
func waited(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func statusExit(s *line.Status) error {
	switch {
	case len(s.Halted) > 0:
		return exit(exitHalted)
	case s.Partial():
		return exit(exitFailed)
	}
	return nil
}

// redrawn is the text over what stands on the terminal: from its top, each line to its end, and what is below it. A screen that is
// cleared first flickers.
func redrawn(text string) string {
	return "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
}
