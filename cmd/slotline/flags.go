package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
)

var (
	flagNamed = regexp.MustCompile(`for "(?:-., )?--([^"]+)" flag`)
	negative  = regexp.MustCompile(`^[0-9]`)
)

// flagError says what is wrong with a flag in words: the library passes on the text of whatever read the value.
func flagError(cmd *cobra.Command, err error) error {
	if of, ok := errors.AsType[interface {
		error
		GetValue() string
	}](err); ok {
		if m := flagNamed.FindStringSubmatch(err.Error()); m != nil && cmd.Flag(m[1]) != nil {
			takes, write := "takes another value", ""
			switch cmd.Flag(m[1]).Value.Type() {
			case "int", "int64", "uint", "uint64":
				takes, write = "takes a whole number", "--"+m[1]+" 10"
			case "float64":
				takes, write = "takes a number", "--"+m[1]+" 200"
			case "duration":
				takes, write = "takes a duration", "--"+m[1]+" 30s"
			case "bool":
				takes, write = "takes true or false, or nothing, which is true", "--"+m[1]
			}
			text := fmt.Sprintf("--%s %.70q: the flag %s", m[1], of.GetValue(), takes)
			if write != "" {
				text += "\n  write: " + write
			}
			return usageError{errors.New(text)}
		}
	}
	if of, ok := errors.AsType[interface {
		error
		GetSpecifiedShortnames() string
	}](err); ok && negative.MatchString(of.GetSpecifiedShortnames()) {
		return usageError{fmt.Errorf("-%s is taken for a flag, and there is none\n  write: %s -- and the arguments behind it, where one of them begins with a hyphen",
			of.GetSpecifiedShortnames(), cmd.CommandPath())}
	}
	return usageError{err}
}
