package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/replay"
)

func replayTenantCommand(o *options) *cobra.Command {
	to := replay.TenantOptions{}
	var where, asOf string
	cmd := &cobra.Command{Use: "tenant", Args: cobra.NoArgs, Short: "Write one tenant's rows, as they were at a time or offset, to a file or database",
		Long: `Folds the events of one tenant, of all its slots and partitions, and writes the rows that they make: what the shards held when
they had applied those events and no others. Rows that were deleted are counted, not written. Nothing of the line is
changed.

--as-of is a time, as 2026-11-30T12:00:00Z: events that were appended later do not count; or offsets of partitions, as
0=1234,1=88: those at or above them do not count, of other partitions all do.

--to is a file that is not there yet: .jsonl has one JSON object a line with table, _ver and row; .csv is a file for each
table, ua.flights.csv for ua.csv; .sql is statements for MySQL. Or a mysql:// URL of a database that is none of the
line's, in which tables are made as in a shard, month tables too; those that are there must be empty. A password in it
may be ${NAME} or ${file:PATH}.

Exit status: 3 when events of the tenant make no row: dead letters of the shards, unknown tables, values out of range.
Each is named, up to 1000; the other rows are written.`,
		Example: `  slotline replay tenant --tenant UA --as-of 2026-11-30T12:00:00Z --to ua.jsonl
  slotline replay tenant --tenant UA --to 'mysql://me:${PASSWORD}@db9/restored'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to.Tenant == "" || where == "" {
				return usageError{errors.New("--tenant and --to are needed")}
			}
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			if to.AsOf, err = replay.ParseAsOf(asOf, l.Config.Topics()); err != nil {
				return usageError{err}
			}
			to.Say = newLines(os.Stderr).say
			rows, err := l.ReplayTenant(cmd.Context(), where, to)
			if err != nil {
				return err
			}
			if err := render(o.output, rows, rows.WriteText); err != nil {
				return err
			}
			if rows.Refused > 0 {
				return exit(exitDifferences)
			}
			return nil
		}}
	flags := cmd.Flags()
	flags.StringVar(&to.Tenant, "tenant", "", "the `tenant`, as its column has it")
	flags.StringVar(&where, "to", "", "`file` that ends in .jsonl, .csv or .sql, or mysql:// URL")
	flags.StringVar(&asOf, "as-of", "", "`time or offsets` up to which events count; all when not given")
	flags.StringSliceVar(&to.Tables, "tables", nil, "logical `tables`, separated by commas; all that have a tenant when not given")
	flags.BoolVar(&to.AllowEmpty, "allow-empty", false, "a tenant without an event is no error")
	return cmd
}
