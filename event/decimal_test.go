package event

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
)

var decimalForm = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// slowDecimal is appendDecimal by arithmetic.
func slowDecimal(text string, t Type) (canonical string, ok bool) {
	if !decimalForm.MatchString(text) {
		return "", false
	}
	_, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > t.Scale {
		return "", false
	}
	value, _ := new(big.Rat).SetString(text)
	bound := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision-t.Scale)), nil))
	if new(big.Rat).Abs(value).Cmp(bound) >= 0 {
		return "", false
	}
	return value.FloatString(t.Scale), true
}

func TestDecimalsAgreeWithArithmetic(t *testing.T) {
	random := newRandom(t)
	const alphabet = "0001234567899..-"
	accepted := 0
	for range 300_000 {
		text := make([]byte, random.IntN(9))
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		typ := Type{Kind: Decimal, Precision: 1 + random.IntN(6)}
		typ.Scale = random.IntN(typ.Precision + 1)
		want, ok := slowDecimal(string(text), typ)
		got, reason, _ := appendDecimal(nil, text, typ)
		if ok != (reason == "") || ok && string(got) != want {
			t.Fatalf("%q in %s gives %q, %s; wanted %q, %v", text, typ, got, reason, want, ok)
		}
		if canonicalDecimal(text, typ) != (ok && want == string(text)) {
			t.Fatalf("canonicalDecimal(%q, %s) is wrong", text, typ)
		}
		if ok {
			accepted++
		}
	}
	if accepted < 1000 {
		t.Fatalf("only %d texts were decimals: the test tests little", accepted)
	}
}
