package partitioner

import (
	"unicode/utf16"
	"unicode/utf8"
)

// javaHash is java.lang.String.hashCode(), before the sign is dropped: s[0]*31^(n-1) + … + s[n-1] over UTF-16
// units, modulo 2^32. Each byte that is not valid UTF-8 counts as one U+FFFD; Java's own decoder may replace
// several such bytes by one, so a service in Java must not emit a tenant that is not valid UTF-8.
func javaHash(text string) uint32 {
	var h uint32
	for i := 0; i < len(text); i++ {
		if text[i] >= utf8.RuneSelf {
			return javaHashRunes(h, text[i:])
		}
		h = h*31 + uint32(text[i])
	}
	return h
}

func javaHashRunes(h uint32, text string) uint32 {
	for _, r := range text { // a bad byte yields U+FFFD and moves on by one
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			h = h*31 + uint32(high)
			r = low
		}
		h = h*31 + uint32(r)
	}
	return h
}
