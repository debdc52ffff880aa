package front

import (
	"errors"
	"testing"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
)

func TestException(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    int
		message string
	}{
		{&chdb.Error{Text: "Code: 60. DB::Exception: Table x does not exist. (UNKNOWN_TABLE)"}, 60, "DB::Exception: Table x does not exist. (UNKNOWN_TABLE)"},
		{&chdb.Error{Text: "Code: 62. DB::Exception: two\nlines"}, 62, "DB::Exception: two\nlines"},
		{&chdb.Error{Text: "something else"}, codeStandardException, "something else"},
		{&chdb.Error{Text: "Code: 99999999999. x"}, codeStandardException, "x"},
		{refuse(codeNotImplemented, "no %s", "JSON"), codeNotImplemented, "DB::Exception: no JSON"},
		{errors.New("odd"), codeStandardException, "DB::Exception: odd"},
	} {
		e := exception(c.err)
		if int(e.Code) != c.code || e.Message != c.message {
			t.Errorf("%v: %d %q", c.err, e.Code, e.Message)
		}
	}
}
