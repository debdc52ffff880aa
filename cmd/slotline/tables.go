package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func tablesCommand(o *options) *cobra.Command {
	var months bool
	cmd := &cobra.Command{
		Use: "tables", Args: cobra.NoArgs, Short: "Tables of each store: months, rows, bytes, ages, and what is missing ahead",
		Long: `Rows are the server's estimate; deleted rows count, and in ClickHouse every image of an entity that is not merged yet.
A month table that is missing ahead of its time is made by the first event that needs it; that batch waits for it.

Exit status: 1 when a store could not be asked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			tables, err := l.Tables(cmd.Context())
			if err != nil {
				return err
			}
			write := tables.WriteText
			if months {
				write = tables.WriteMonths
			}
			if err := render(o.output, tables, write); err != nil {
				return err
			}
			if len(tables.NotAsked) > 0 {
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&months, "months", false, "a line per month")
	cmd.AddCommand(tablesRetireCommand(o))
	return cmd
}

func tablesRetireCommand(o *options) *cobra.Command {
	var dryRun, yes bool
	var who string
	cmd := &cobra.Command{
		Use: "retire", Args: cobra.NoArgs, Short: "Drop the month tables of the shards that are older than months.keep",
		Long: `With months.keep: 24 in the file, this drops the month tables of every shard that are older than this month and the 24
before it, while the sinks run. Each shard first writes down which months are retired: from then on its sinks pass over
their events, which come late or are read again, and count them (slotline_sink_shard_retired_events_total). A retired month
does not come back, also when months.keep grows. The log in Kafka keeps all events; OLAP stores keep their rows.

It shows what it drops and asks first. It may be repeated after any failure, and run from cron with --yes. The clock that
is behind counts: this machine's or the shard's.

Exit status: 0 done, or nothing is older; 1 when a shard did not answer or kept a table; with --dry-run 3 when something
would be dropped.`,
		Example: `  slotline tables retire --dry-run
  slotline tables retire --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			r, err := l.Retirement(cmd.Context())
			if err != nil {
				return err
			}
			if dryRun || !r.Any() {
				if err := render(o.output, r, r.WriteText); err != nil {
					return err
				}
				switch {
				case r.Failed():
					return exit(exitFailed)
				case r.Any():
					return exit(exitDifferences)
				}
				return nil
			}
			if !yes {
				if err := r.WriteText(os.Stderr); err != nil {
					return err
				}
				if !confirm(cmd, "Drop these tables for good?") {
					fmt.Fprintln(os.Stderr, "Nothing was changed.")
					return exit(exitFailed)
				}
			}
			if who == "" {
				who = whoAmI()
			}
			if err := r.Retire(cmd.Context(), who); err != nil {
				return err
			}
			if err := render(o.output, r, r.WriteText); err != nil {
				return err
			}
			if r.Failed() {
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be dropped and change nothing; exit status 3 when there is something")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&who, "who", "", "`name` recorded; the login name when not given")
	return cmd
}
