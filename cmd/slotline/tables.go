package main

import (
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
	return cmd
}
