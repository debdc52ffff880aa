package main

import (
	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
)

func outboxCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "outbox", Args: cobra.NoArgs, Short: "Lanes, gaps and partitions of the outbox",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(outboxStatusCommand(o), outboxGapsCommand(o), outboxPurgeCommand(o))
	return cmd
}

func outboxStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Lanes with owner, cursor, backlog, gaps, and the partitions of their tables",
		Long: `Lanes with owner, cursor, backlog, gaps, and the partitions of their tables: how many there are, how many lie wholly
behind the cursor, how many are empty ahead of the ids, and what the purge waits for. Rows and bytes are estimates.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			status, err := l.OutboxStatus(cmd.Context())
			if err != nil {
				return err
			}
			if err := render(o.output, status, status.WriteText); err != nil {
				return err
			}
			if status.Halted() {
				return exit(exitHalted)
			}
			return nil
		},
	}
}

// laneFlag is the lane that a command is about; −1: all.
func laneFlag(cmd *cobra.Command, lane *int) {
	cmd.Flags().IntVar(lane, "lane", -1, "`number` of the lane; all when not given")
}

func outboxGapsCommand(o *options) *cobra.Command {
	var lane int
	cmd := &cobra.Command{
		Use: "gaps", Args: cobra.NoArgs, Short: "Ids below the cursors that are not published",
		Long: `Ids below the cursors that are not published. hot: each read asks for them; a transaction that is open may hold them.
cold: swept for each minute; mostly rolled back. parked: committed, and their partition does not take them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			gaps, err := l.OutboxGaps(cmd.Context(), lane)
			if err != nil {
				return err
			}
			return render(o.output, gaps, gaps.WriteText)
		},
	}
	laneFlag(cmd, &lane)
	return cmd
}

func outboxPurgeCommand(o *options) *cobra.Command {
	var lane int
	var dryRun bool
	cmd := &cobra.Command{
		Use: "purge", Args: cobra.NoArgs, Short: "Purge the partitions behind the cursor, where no relay runs",
		Long: `Purges the partitions behind the cursor of lanes that no relay owns: a relay purges its own by itself. Needs Kafka, as
each owner of a lane reads the topic's tail. Rows that committed late in a partition stay until a relay has published them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			var done *line.OutboxPurge
			if done, err = l.OutboxPurge(cmd.Context(), lane, dryRun); err != nil {
				return err
			}
			if err := render(o.output, done, done.WriteText); err != nil {
				return err
			}
			if dryRun && done.Left() {
				return exit(exitDifferences)
			}
			return nil
		},
	}
	laneFlag(cmd, &lane)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what lies behind the cursor and change nothing; exit status 3 when there is something")
	return cmd
}
