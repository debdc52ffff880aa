package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/replay"
)

func replayOLAPCommand(o *options) *cobra.Command {
	ro := replay.OLAPOptions{}
	var store, month string
	var yes bool
	cmd := &cobra.Command{Use: "olap", Args: cobra.NoArgs, Short: "Rebuild a table of ClickHouse or Doris, or a month of it, from the topic",
		Long: `Fills a table beside the live one from the log while the sink goes on, compares the two, asks, and exchanges them; with --month
it replaces that month alone. What the sink had sent to the old table by then is applied to the new one, the rollups of the
table are computed anew, and the old table is dropped.

A command that was cut off is run again, with the same table and month: it goes on where it stopped, on any machine. --abort
ends a job that has not exchanged its tables.`,
		Example: `  slotline replay olap --table flights
  slotline replay olap --table flights --month 2013-04 --yes
  slotline replay olap --table flights --sink doris`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ro.Table == "" {
				return usageError{errors.New("--table is needed")}
			}
			if ro.PerSecond < 0 || ro.YieldAbove < 0 {
				return usageError{errors.New("--rate and --yield-above must not be negative")}
			}
			if month != "" {
				var err error
				if ro.Month, err = partitioner.ParseMonth(month); err != nil {
					return usageError{fmt.Errorf("--month: %w", err)}
				}
			}
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			ro.Say = newLines(os.Stderr).say
			if !yes {
				ro.Confirm = func(question string) bool { return confirm(cmd, question) }
			}
			err = l.ReplayOLAP(cmd.Context(), store, ro)
			if errors.Is(err, replay.ErrDeclined) || err != nil && cmd.Context().Err() != nil {
				fmt.Fprintf(os.Stderr, "%v; next: the same command again, or with --abort\n", err)
				return exit(exitFailed)
			}
			return err
		}}
	flags := cmd.Flags()
	flags.StringVar(&store, "sink", "", "`name` of the store: clickhouse or doris; the first of the file when not given")
	_ = cmd.RegisterFlagCompletionFunc("sink", cobra.FixedCompletions(olapStores, cobra.ShellCompDirectiveNoFileComp)) // fails where there is no such flag
	flags.StringVar(&ro.Table, "table", "", "logical `table`")
	flags.StringVar(&month, "month", "", "this `month` alone, as 2013-04")
	flags.IntVar(&ro.PerSecond, "rate", 0, "`events` a second at most; 0: as fast as the store takes them")
	flags.DurationVar(&ro.YieldAbove, "yield-above", 5*time.Second, "wait while the live sink is further behind than this `time`; 0: never")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&ro.Abort, "abort", false, "end the table's job, and drop the table that it has made")
	flags.BoolVar(&ro.AllowEmpty, "allow-empty", false, "exchange though the log makes no row of the table")
	flags.BoolVar(&ro.AcceptDead, "accept-dead", false, "exchange though events cannot be applied that the live sink has no dead letter of")
	cmd.MarkFlagsMutuallyExclusive("abort", "yes")
	return cmd
}
