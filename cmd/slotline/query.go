package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/internal/line"
)

// queryRows bounds an answer on a terminal.
const queryRows = 1000

func queryCommand(o *options) *cobra.Command {
	q := line.Query{}
	cmd := &cobra.Command{
		Use: "query SQL", Args: cobra.ExactArgs(1), Short: "Ask ClickHouse or Doris; prints table, csv or json",
		Long: `Query runs one SELECT against the OLAP store of the file, and prints the answer as -o table, csv or json. It can change
nothing. SQL of - is read from stdin. The views to read are TABLE_now and ROLLUP_now; docs/analytics.md answers common
questions.

Exit status: 1 when the query fails, or when there are more than --rows rows: the first --rows are printed, and stderr
says so.`,
		Example: `  slotline query "SELECT carrier, count() AS flights FROM flights_now GROUP BY carrier ORDER BY flights DESC"
  slotline query - -o csv --rows 0 < question.sql > answer.csv`,
		Annotations: map[string]string{outputsAnnotation: "table csv json"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.RowsMax < 0 {
				return usageError{fmt.Errorf("--rows %d: write 0 for all rows, or how many at most", q.RowsMax)}
			}
			if q.Sink != "" && q.Sink != "clickhouse" && q.Sink != "doris" {
				return usageError{fmt.Errorf("--sink %s: write clickhouse or doris", q.Sink)}
			}
			if q.SQL = args[0]; q.SQL == "-" {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 1<<20))
				if err != nil {
					return err
				}
				q.SQL = string(text)
			}
			q.Format = o.output
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			more, err := l.Query(cmd.Context(), os.Stdout, q)
			if err != nil {
				return err
			}
			if more {
				fmt.Fprintf(os.Stderr, "there are more rows: these are the first %d; --rows 0 prints all\n", q.RowsMax)
				return exit(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&q.RowsMax, "rows", queryRows, "print at most this `number` of rows; 0: all")
	cmd.Flags().StringVar(&q.Sink, "sink", "", "`name` of the store: clickhouse or doris; the first of the file when not given")
	return cmd
}
