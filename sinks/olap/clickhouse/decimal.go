package clickhouse

import (
	"encoding/binary"
	"math/bits"
)

// decimalBytes is how wide ClickHouse stores a decimal of this precision.
func decimalBytes(precision int) int {
	switch {
	case precision <= 9:
		return 4
	case precision <= 18:
		return 8
	case precision <= 38:
		return 16
	}
	return 32
}

// appendDecimal appends canonical decimal text ("-12.50", at the column's scale) as the integer without the point, in
// two's complement, little-endian. No text is zero.
func appendDecimal(dst []byte, text []byte, width int) []byte {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	if width <= 8 {
		n := uint64(0)
		for _, c := range text {
			if c != '.' {
				n = n*10 + uint64(c-'0')
			}
		}
		if negative {
			n = -n
		}
		if width == 4 {
			return binary.LittleEndian.AppendUint32(dst, uint32(n))
		}
		return binary.LittleEndian.AppendUint64(dst, n)
	}
	var limbs [4]uint64
	for _, c := range text {
		if c == '.' {
			continue
		}
		carry := uint64(c - '0')
		for i := range limbs {
			hi, lo := bits.Mul64(limbs[i], 10)
			var over uint64
			limbs[i], over = bits.Add64(lo, carry, 0)
			carry = hi + over
		}
	}
	if negative {
		carry := uint64(1)
		for i := range limbs {
			limbs[i], carry = bits.Add64(^limbs[i], 0, carry)
		}
	}
	for _, limb := range limbs[:width/8] {
		dst = binary.LittleEndian.AppendUint64(dst, limb)
	}
	return dst
}
