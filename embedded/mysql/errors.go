package mysql

import (
	"errors"
	"regexp"

	vitess "github.com/dolthub/vitess/go/mysql"
)

// numbers are MySQL's for errors that the engine reports as 1105, "unknown error". Clients decide by the number whether
// a row is bad, a retry helps, or a person must look.
var numbers = []struct {
	text   *regexp.Regexp
	number int
}{
	{regexp.MustCompile(`^syntax error at position`), vitess.ERParseError},
	{regexp.MustCompile(`^Unknown system variable`), vitess.ERUnknownSystemVariable},
	{regexp.MustCompile(`^column .* could not be found|^table ".*" does not have column`), vitess.ERBadFieldError},
	{regexp.MustCompile(`is too large for column`), vitess.ERDataTooLong},
	{regexp.MustCompile(`^Incorrect (?:date|datetime|time) value`), vitess.ERTruncatedWrongValue},
	{regexp.MustCompile(`out of range`), 1264},
	{regexp.MustCompile(`savepoints are not supported`), vitess.ERNotSupportedYet},
}

// numbered gives an error the number that MySQL's has.
func numbered(err error) error {
	var e *vitess.SQLError
	if !errors.As(err, &e) || e.Num != vitess.ERUnknownError {
		return err
	}
	for _, n := range numbers {
		if n.text.MatchString(e.Message) {
			return vitess.NewSQLError(n.number, vitess.SSUnknownSQLState, "%s", e.Message)
		}
	}
	return err
}
