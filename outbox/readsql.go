package outbox

import (
	"strconv"
	"strings"
)

// rowColumns are what the relay reads of a row. The server's uuid comes with each, as a checksum: so a proxy cannot
// change servers between a look at the uuid and the rows.
const rowColumns = "id, event_id, tbl, tenant, entity_id, op, version, codec, created_at, trace, spread, payload, CRC32(@@server_uuid)"

// hotTermsMax bounds the gap terms of one statement. Beyond it, several statements share one snapshot.
const hotTermsMax = 1000

// readSQL reads the rows after read and those that fill gaps: one range scan of the primary key, in one read view.
// through bounds the former; 0 does not.
func readSQL(lane int, read, through uint64, gaps []idRange, limit int) string {
	var b strings.Builder
	b.WriteString("SELECT " + rowColumns + " FROM " + LaneTable(lane) + " WHERE id > " + strconv.FormatUint(read, 10))
	if through > 0 {
		b.WriteString(" AND id <= " + strconv.FormatUint(through, 10))
	}
	if len(gaps) > 0 {
		b.WriteString(" OR ")
		writeTerms(&b, gaps)
	}
	b.WriteString(" ORDER BY id LIMIT " + strconv.Itoa(limit))
	return b.String()
}

// lastIDSQL is the greatest id of a committed row.
func lastIDSQL(lane int) string { return "SELECT MAX(id) FROM " + LaneTable(lane) }

// readIDsSQL reads the rows of given ids.
func readIDsSQL(lane int, ids []idRange, limit int) string {
	var b strings.Builder
	b.WriteString("SELECT " + rowColumns + " FROM " + LaneTable(lane) + " WHERE ")
	writeTerms(&b, ids)
	b.WriteString(" ORDER BY id LIMIT " + strconv.Itoa(limit))
	return b.String()
}

// findIDsSQL says which of given ids there are.
func findIDsSQL(lane int, ids []idRange, limit int) string {
	var b strings.Builder
	b.WriteString("SELECT id, event_id FROM " + LaneTable(lane) + " WHERE ")
	writeTerms(&b, ids)
	b.WriteString(" ORDER BY id LIMIT " + strconv.Itoa(limit))
	return b.String()
}

// lookBackSQL reads which rows there are up to a greatest id: from an id on in order, or the last ones, those first.
func lookBackSQL(lane int, from, upto uint64, last bool) string {
	order := "id"
	if last {
		order = "id DESC"
	}
	return "SELECT id, event_id FROM " + LaneTable(lane) + " WHERE id BETWEEN " + strconv.FormatUint(from, 10) + " AND " +
		strconv.FormatUint(upto, 10) + " ORDER BY " + order + " LIMIT " + strconv.Itoa(4*knownMax)
}

// writeTerms writes single ids as one IN list and ranges as BETWEEN, joined by OR.
func writeTerms(b *strings.Builder, ranges []idRange) {
	in, sep := false, ""
	for _, r := range ranges {
		if r.From != r.To {
			continue
		}
		if in {
			b.WriteByte(',')
		} else {
			b.WriteString("id IN (")
			in = true
		}
		b.WriteString(strconv.FormatUint(r.From, 10))
	}
	if in {
		b.WriteByte(')')
		sep = " OR "
	}
	for _, r := range ranges {
		if r.From == r.To {
			continue
		}
		b.WriteString(sep + "id BETWEEN " + strconv.FormatUint(r.From, 10) + " AND " + strconv.FormatUint(r.To, 10))
		sep = " OR "
	}
}
