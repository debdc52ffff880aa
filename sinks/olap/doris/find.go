package doris

import (
	"context"
	"fmt"
	"strconv"

	"github.com/slotline/slotline/event"
)

// Find is the greatest _ver (version*2, plus 1 when deleted) that Doris has of an entity; 0 when it has none. tenant and
// id are canonical texts; tenant is empty for a broadcast table.
func (s *Sink) Find(ctx context.Context, t *event.Table, tenant, id string) (ver int64, err error) {
	rows, err := s.rows(ctx, findSQL(t, tenant, id), 1)
	if err != nil {
		return 0, wrap(err, codeQuery, s.where())
	}
	for _, r := range rows {
		n, err := strconv.ParseInt(r[0], 10, 64)
		if err != nil {
			return 0, err
		}
		ver = max(ver, n)
	}
	return ver, nil
}

// findSQL returns one row for each month that has the entity: one, unless a service broke its rule.
func findSQL(t *event.Table, tenant, id string) string {
	where := keyIs(t.Columns[t.ID], id)
	if !t.Broadcast() {
		where = keyIs(t.Columns[t.Tenant], tenant) + " AND " + where
	}
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s", ident(verColumn), ident(t.Name), where)
}

func keyIs(c event.Column, value string) string { return ident(c.Name) + " = " + keyValue(c, value) }

// keyValue is a key's text as a literal of its column's type.
func keyValue(c event.Column, value string) string {
	switch c.Type.Kind {
	case event.Int32, event.Int64, event.Uint64:
		return value // canonical: digits, and a sign at most
	}
	return text(value)
}
