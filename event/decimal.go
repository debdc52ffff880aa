package event

import "strconv"

// appendDecimal appends text in the canonical form of a decimal(precision,scale): an optional minus sign, no leading
// zeros but the one before the point, exactly scale fraction digits, never minus zero. Fewer fraction digits are
// padded with zeros; more are refused even when they are zeros, since only their writer knows what they mean.
func appendDecimal(dst, text []byte, t Type) (out []byte, reason, detail string) {
	number := text
	negative := len(number) > 0 && number[0] == '-'
	if negative {
		number = number[1:]
	}
	whole, fraction, ok := splitDecimal(number)
	if !ok {
		return dst, ReasonWrongType, quoteBounded(text) + " is not a decimal: write it as \"-12.50\""
	}
	if len(fraction) > t.Scale {
		return dst, ReasonOutOfRange, quoteBounded(text) + " has " + strconv.Itoa(len(fraction)) +
			" fraction digits, the scale of " + t.String() + " is " + strconv.Itoa(t.Scale)
	}
	wholeDigits := len(whole)
	if whole[0] == '0' {
		wholeDigits = 0
	}
	if wholeDigits > t.Precision-t.Scale {
		return dst, ReasonOutOfRange, quoteBounded(text) + " has " + strconv.Itoa(wholeDigits) +
			" digits before the point, " + t.String() + " holds " + strconv.Itoa(t.Precision-t.Scale)
	}
	if negative && !zero(whole, fraction) {
		dst = append(dst, '-')
	}
	dst = append(dst, whole...)
	if t.Scale > 0 {
		dst = append(append(dst, '.'), fraction...)
		for range t.Scale - len(fraction) {
			dst = append(dst, '0')
		}
	}
	return dst, "", ""
}

// splitDecimal splits "12.50"; the whole part has at least one digit and no leading zero, a point is followed by a
// digit.
func splitDecimal(number []byte) (whole, fraction []byte, ok bool) {
	point := len(number)
	for i, c := range number {
		if c == '.' {
			point = i
			break
		}
	}
	whole = number[:point]
	if point < len(number) {
		fraction = number[point+1:]
		if len(fraction) == 0 {
			return nil, nil, false
		}
	}
	if len(whole) == 0 || whole[0] == '0' && len(whole) > 1 {
		return nil, nil, false
	}
	for _, part := range [2][]byte{whole, fraction} {
		for _, c := range part {
			if c < '0' || c > '9' {
				return nil, nil, false
			}
		}
	}
	return whole, fraction, true
}

func zero(parts ...[]byte) bool {
	for _, part := range parts {
		for _, c := range part {
			if c != '0' {
				return false
			}
		}
	}
	return true
}

// canonicalDecimal reports whether text is already in the canonical form, so that it need not be copied.
func canonicalDecimal(text []byte, t Type) bool {
	number := text
	if len(number) > 0 && number[0] == '-' {
		number = number[1:]
	}
	whole, fraction, ok := splitDecimal(number)
	return ok && len(fraction) == t.Scale && (len(whole) <= t.Precision-t.Scale || whole[0] == '0') &&
		(len(number) == len(text) || !zero(whole, fraction))
}
