package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/partitioner"
)

func whereCommand(o *options) *cobra.Command {
	var e line.Entity
	var month string
	cmd := &cobra.Command{
		Use: "where TABLE TENANT ID", Args: cobra.RangeArgs(2, 3),
		Short: "Find one entity: outbox, Kafka, shard, OLAP stores and dead letters, with versions",
		Long: `Where looks for one entity at every stage, shows the versions side by side, and says of each store whether it holds the
greatest one, and if not why: not applied yet, halted, a dead letter, or missing. A table without tenant takes TABLE ID.
Before an argument that begins with a hyphen, as -7, stands --: slotline where -- TABLE TENANT -7.

Kafka has no index: the partition is read backwards from its end until --events records of the entity are found or
--scan offsets were searched. A stage that is down is named, and hides none of the others.

Exit status: 4 when a halted partition keeps the newest event from a store, 3 when a store lacks what its sink has
passed or has the entity twice, 1 when a stage could not be asked.`,
		Example: `  slotline where flights UA 1545
  slotline where flights UA 1545 --month 2026-11 --scan 5000000 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Table, e.ID = args[0], args[len(args)-1]
			if len(args) == 3 {
				e.Tenant = args[1]
			}
			if month != "" {
				var err error
				if e.Month, err = partitioner.ParseMonth(month); err != nil {
					return usageError{fmt.Errorf("--month: %w", err)}
				}
			}
			if e.Events < 1 || e.OffsetsMax < 1 {
				return usageError{fmt.Errorf("--events and --scan must be at least 1")}
			}
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			where, err := l.Where(cmd.Context(), e, func(text string) { fmt.Fprintln(os.Stderr, text) })
			if err != nil {
				return err
			}
			if err := render(o.output, where, where.WriteText); err != nil {
				return err
			}
			switch {
			case where.Has(line.VerdictHalted):
				return exit(exitHalted)
			case where.Has(line.VerdictMissing, line.VerdictTwice):
				return exit(exitDifferences)
			case len(where.NotAsked) > 0:
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&month, "month", "", "look in the tables of this `month` alone, as 2026-11")
	cmd.Flags().StringVar(&e.Spread, "spread", "", "`value` of the spread column, for a tenant with several slots; without it, all of them are searched")
	cmd.Flags().IntVar(&e.Events, "events", line.WhereEvents, "`number` of records to find per partition, the newest first")
	cmd.Flags().Int64Var(&e.OffsetsMax, "scan", line.WhereOffsetsMax, "`number` of offsets to search per partition, back from its end")
	return cmd
}
