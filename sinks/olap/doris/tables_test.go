package doris

import "testing"

func TestDataSize(t *testing.T) {
	for text, want := range map[string]int64{"0.000 ": 0, "0.000 B": 0, "812.000 B": 812, "1.500 KB": 1536, "2.000 GB": 2 << 30, "": 0, "many": 0, "7 XB": 0} {
		if got := dataSize(text); got != want {
			t.Errorf("%q is %d bytes", text, got)
		}
	}
}
