package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
)

// Bounds of a load: enough for any line, and an end to each.
const (
	benchForMax     = time.Hour
	benchWritersMax = 256
	benchTenantsMax = 1_000_000
)

func benchCommand(o *options) *cobra.Command {
	b := line.BenchOptions{}
	var yes bool
	cmd := &cobra.Command{
		Use: "bench", Args: cobra.NoArgs, Short: "Load with unequal tenants; transactions, and latency to each sink",
		Long: `Writes events of one table into the outbox, as services do: one in a transaction, half of them of new entities, half of
earlier ones, of tenants whose sizes follow Zipf's law. Relay and sinks must run: it measures how long a transaction takes,
how long after its commit an entity's row can be read in each store, and how long each takes to catch up at the end. Then it
deletes what it wrote.

Its tenants are none of a service's: their names begin with ~, or are the greatest integers of their column. Deleted rows stay
in the shards as those of any delete do. A load shares servers with the services: begin with a rate that they can bear.
It ends early where the outbox would refuse services; Ctrl-C ends it too, and both delete.

Exit status: 1 when a store did not catch up, the load ended early, or something of it is left.`,
		Example: `  slotline bench --rate 500 --for 1m
  slotline bench --table flights --tenants 5000 --rate 0 --writers 32 --yes -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, bad := range []struct {
				is   bool
				text string
			}{
				{b.For <= 0 || b.For > benchForMax, fmt.Sprintf("--for is above 0, and %v at most", benchForMax)},
				{!(b.Rate >= 0 && b.Rate <= 1e9), "--rate is 0, as fast as the writers can, or a number of events a second"},
				{b.Writers < 1 || b.Writers > benchWritersMax, fmt.Sprintf("--writers is 1 to %d", benchWritersMax)},
				{b.Tenants < 1 || b.Tenants > benchTenantsMax, fmt.Sprintf("--tenants is 1 to %d", benchTenantsMax)},
			} {
				if bad.is {
					return usageError{errors.New(bad.text)}
				}
			}
			l, err := o.openQuiet()
			if err != nil {
				return err
			}
			defer l.Close()
			plan, err := l.BenchPlan(b)
			if err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, plan)
			if !yes && !confirm(cmd, "Start?") {
				fmt.Fprintln(os.Stderr, "Nothing was written.")
				return exit(exitFailed)
			}
			b.Say = func(text string) { fmt.Fprintln(os.Stderr, text) }
			done, err := l.Bench(cmd.Context(), b)
			if err != nil {
				return err
			}
			if err := render(o.output, done, done.WriteText); err != nil {
				return err
			}
			if !done.Whole() {
				return exit(exitFailed)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&b.Table, "table", "", "`table` of the events; the first of the file that has a tenant when not given")
	flags.IntVar(&b.Tenants, "tenants", 1000, "`number` of tenants; fewer where the tenant column has no room for their names")
	flags.IntVar(&b.Writers, "writers", 16, "`number` of connections, each with one transaction at a time")
	flags.Float64Var(&b.Rate, "rate", 200, "`events` a second, of all writers; 0 for as many as they can")
	flags.DurationVar(&b.For, "for", 30*time.Second, "`duration` of the load")
	flags.BoolVar(&b.Keep, "keep", false, "do not delete the load's entities")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
