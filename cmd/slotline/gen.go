package main

import (
	"fmt"
	"go/token"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slotline/slotline/config"
)

func genCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "gen", Args: cobra.NoArgs, Short: "Go struct of a table, JSON Schema of the file",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(genGoCommand(o), genSchemaCommand())
	return cmd
}

func genGoCommand(o *options) *cobra.Command {
	var pkg string
	cmd := &cobra.Command{
		Use: "go TABLE", Args: cobra.ExactArgs(1), Short: "Print a Go struct of a table, with the tags that producer.Register reads",
		Example: "  slotline gen go flights --package events > events/flights.go",
		RunE: func(_ *cobra.Command, args []string) error {
			if !token.IsIdentifier(pkg) || pkg == "_" {
				return usageError{fmt.Errorf("--package %.40q is no name of a Go package", pkg)}
			}
			cfg, err := config.Load(o.file)
			if err != nil {
				return err
			}
			t := cfg.Table(args[0])
			if t == nil {
				var names []string
				for _, t := range cfg.Tables {
					names = append(names, t.Name)
				}
				return usageError{fmt.Errorf("%s has no table %s; it has %s", o.file, args[0], strings.Join(names, ", "))}
			}
			text, err := t.GoStruct(pkg)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(os.Stdout, text)
			return err
		},
	}
	cmd.Flags().StringVar(&pkg, "package", "main", "`name` of the Go package")
	return cmd
}

func genSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Args: cobra.NoArgs, Short: "Print a JSON Schema of slotline.yaml, by which editors complete and check it",
		Long: `Prints a JSON Schema of the configuration file. Editors with a YAML language server read it when the file begins with

  # yaml-language-server: $schema=slotline.schema.json`,
		Example: "  slotline gen schema > slotline.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := os.Stdout.Write(config.JSONSchema())
			return err
		},
	}
}
