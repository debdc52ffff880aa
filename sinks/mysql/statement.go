package mysql

// statementRowsMax is the rows of one statement: more make it no faster, and one shape keeps the server's digests few.
const statementRowsMax = 1000

// arenaBytesMax bounds a batch's SQL: spans are 32 bits.
const arenaBytesMax = 1 << 31

// cut says how many of the first rows make the next statement, and its bytes: rows of one table, at most
// statementRowsMax, within limit bytes with the text around them; but always one.
func cut(rest []entry, around, limit int) (n, size int) {
	size = around
	for n < len(rest) && n < statementRowsMax && rest[n].place == rest[0].place {
		grown := size + 1 + int(rest[n].tuple.to-rest[n].tuple.from)
		if n > 0 && grown > limit {
			break
		}
		n, size = n+1, grown
	}
	return n, size
}

// appendStatement appends one upsert of the given rows, all of one table.
func (r *rows) appendStatement(dst []byte, up *upsert, entries []entry) []byte {
	dst = append(dst, up.head...)
	for i := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, r.bytes(entries[i].tuple)...)
	}
	return append(dst, up.tail...)
}

// places are the tables of entries, which are sorted.
func places(entries []entry) []place {
	var list []place
	for i := range entries {
		if i == 0 || entries[i].place != entries[i-1].place {
			list = append(list, entries[i].place)
		}
	}
	return list
}
