package sinktest

import (
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
)

// case names what is shown; run shows it.
type testCase struct {
	name string
	run  func(h *harness)
}

var cases = []testCase{
	{"duplicates", duplicates},
	{"reordering", reordering},
	{"delete_before_insert", deleteBeforeInsert},
	{"delete_with_the_rows_own_version", deleteWithOwnVersion},
	{"delete_and_upsert_at_equal_versions", deleteAndUpsertAtEqualVersions},
	{"250_alternations_of_one_key_in_a_batch", alternations},
	{"ids_zero_and_below", idsZeroAndBelow},
	{"strings_that_differ_by_case_accent_or_trailing_space", similarStrings},
	{"every_type_at_its_limits", typesAtLimits},
	{"null_and_value", nullAndValue},
	{"month_edges", monthEdges},
	{"snowflake_months", snowflakeMonths},
	{"broadcast_and_monthless_tables", broadcastAndMonthless},
	{"placements", placements},
	{"version_of_the_service", serviceVersion},
	{"greatest_version", greatestVersion},
	{"bad_event_above_a_good_one", badAboveGood},
	{"bad_events_of_each_kind", badEvents},
	{"batch_of_bad_events_alone", onlyBad},
	{"month_out_of_bounds", monthOutOfBounds},
	{"newer_layout_waits", newerLayoutWaits},
	{"holes_and_empty_ranges", holes},
	{"same_prepared_applied_again", preparedAgain},
	{"prepare_ahead", prepareAhead},
	{"take_over_with_other_cuts", otherCuts},
	{"zombie_changes_nothing", zombie},
	{"interrupted_apply", interrupted},
	{"random_logs", randomLogs},
}

func order(tenant string, id int64, status string, qty int64) []event.Value {
	return []event.Value{Text(tenant), Int(id), Time(appended), Text(status), Int(qty), Null()}
}

// P3: redelivery changes nothing, inside a batch and across batches.
func duplicates(h *harness) {
	for range 3 {
		for v := range int64(4) {
			h.append(ev{table: "orders", version: v + 1, values: order("acme", 1, "open", v)},
				ev{table: "orders", version: 7, values: order("acme", 2, "paid", 7)})
		}
	}
	o := h.takeOver()
	o.drain(5)
	h.check()
	h.append(ev{table: "orders", version: 2, values: order("acme", 1, "open", 1)})
	o.drain(100)
	h.check()
}

// P3: the greatest version wins in any order of arrival.
func reordering(h *harness) {
	for _, rows := range []int{1, 2, 100} {
		tenant := fmt.Sprint("t", rows)
		for _, v := range []int64{3, 1, 5, 2, 4, 6, 5, 1} {
			h.append(ev{table: "orders", version: v, values: order(tenant, 1, "s", v)})
		}
		h.takeOver().drain(rows)
		h.check()
	}
}

// A deletion that arrives before the row it deletes keeps it away.
func deleteBeforeInsert(h *harness) {
	h.append(ev{table: "orders", op: event.Delete, version: 5, values: order("acme", 1, "", 0)},
		ev{table: "orders", version: 4, values: order("acme", 1, "late", 4)},
		ev{table: "people", op: event.Delete, version: 5, values: []event.Value{Text("acme"), Text("ann"), Null()}})
	o := h.takeOver()
	o.drain(1)
	h.check()
	h.append(ev{table: "orders", version: 3, values: order("acme", 1, "later", 3)},
		ev{table: "orders", version: 6, values: order("acme", 1, "again", 6)},
		ev{table: "people", version: 4, values: []event.Value{Text("acme"), Text("ann"), Text("a@x")}})
	o.drain(100)
	h.check()
}

func deleteWithOwnVersion(h *harness) {
	h.append(ev{table: "orders", version: 9, values: order("acme", 1, "open", 9)})
	o := h.takeOver()
	o.drain(100)
	h.append(ev{table: "orders", op: event.Delete, version: 9, values: order("acme", 1, "", 0)})
	o.drain(100)
	h.check()
	h.append(ev{table: "orders", version: 9, values: order("acme", 1, "open", 9)})
	o.drain(100)
	h.check()
}

// At equal versions a delete wins, in either order, in one batch and in two.
func deleteAndUpsertAtEqualVersions(h *harness) {
	up := func(id int64) ev { return ev{table: "orders", version: 4, values: order("acme", id, "up", 4)} }
	del := func(id int64) ev {
		return ev{table: "orders", op: event.Delete, version: 4, values: order("acme", id, "", 0)}
	}
	h.append(up(1), del(1), del(2), up(2))
	o := h.takeOver()
	o.drain(100)
	h.append(up(3), del(3), del(4), up(4))
	o.drain(1)
	h.check()
}

// kafka-connect-jdbc made 250 flushes of this.
func alternations(h *harness) {
	for v := range int64(250) {
		e := ev{table: "orders", version: v + 1, values: order("acme", 1, "s", v)}
		if v%2 == 1 {
			e.op = event.Delete
		}
		h.append(e)
	}
	h.append(ev{table: "orders", version: 1, values: order("acme", 2, "other", 0)})
	h.takeOver().drain(1000)
	h.check()
}

// ghostferry never copied keys at or below 0.
func idsZeroAndBelow(h *harness) {
	for _, id := range []int64{0, -1, 1, -9223372036854775808, 9223372036854775807} {
		h.append(ev{table: "orders", version: 1, values: order("acme", id, "s", 0)},
			ev{table: "orders", version: 2, values: order("acme", id, "t", 1)})
	}
	h.append(ev{table: "events", version: 1, values: []event.Value{Text("acme"), Uint(0), Text("zero")}})
	h.takeOver().drain(3)
	h.check()
}

// Collations that fold case or accents, or pad, would make one row of these.
func similarStrings(h *harness) {
	names := []string{"ann", "Ann", "ANN", "änn", "ann ", "ann  ", " ann", "ann\t", "ann\x00", "a\u0308nn", "straße", "strasse", "ı", "i", "\U0001f600", "\U0001f601"}
	for i, name := range names {
		h.append(ev{table: "people", version: int64(i + 1), values: []event.Value{Text("acme"), Text(name), Text(name)}})
		if !strings.ContainsRune(name, 0) { // a tenant holds no NUL
			h.append(ev{table: "people", version: 1, values: []event.Value{Text(name), Text("x"), Text(name)}})
		}
	}
	for i, code := range []string{"a", "A", "a ", "á"} {
		h.append(ev{table: "places", version: int64(i + 1), values: []event.Value{Text(code), Text(code)}})
	}
	o := h.takeOver()
	o.drain(1000)
	h.check()
	h.append(ev{table: "people", op: event.Delete, version: 100, values: []event.Value{Text("acme"), Text("Ann"), Null()}})
	o.drain(1000)
	h.check()
}

func typesRow(id int64, required []event.Value, optional []event.Value) []event.Value {
	return append(append([]event.Value{Text("acme"), Int(id)}, required...), optional...)
}

func day(year int, month time.Month, d int) event.Value {
	return Day(time.Date(year, month, d, 0, 0, 0, 0, time.UTC))
}

// least and most are the limits that every engine holds; see docs/types.md for what one of them holds beyond.
func least() []event.Value {
	return []event.Value{Int(0), Int(-1 << 31), Int(-1 << 63), Uint(0), Float(-1.7976931348623157e308),
		Text("-9999999999999999999999999999.9999999999"), Text(""), Text(""), Text(""), day(1900, 1, 1),
		Time(time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)), Text(`false`)}
}

func most() []event.Value {
	return []event.Value{Int(1), Int(1<<31 - 1), Int(1<<63 - 1), Uint(1<<64 - 1), Float(1.7976931348623157e308),
		Text("9999999999999999999999999999.9999999999"), Text(strings.Repeat("\U0001f600", 20)),
		Text(strings.Repeat("tüxt\n\"'\\\x01", 3000)), Text("\x00\xff\x80'\"\\\n\r\x1a\t\x00\x00\x00\x00\x00\x00\x00"[:16]), day(2299, 12, 31),
		Time(time.Date(2299, 12, 31, 23, 59, 59, 999999000, time.UTC)),
		Text(`{"b":[1,2.5,-3,true,null,"ü\"\\/ "],"a":{"":"empty"},"z":12345678901234567}`)}
}

// P12. debezium wrote 18446744073709551615 as -1.
func typesAtLimits(h *harness) {
	nullable := func(v []event.Value) []event.Value {
		v = append([]event.Value(nil), v...)
		if string(v[5].Bytes) != "" && v[5].Bytes[0] == '-' { // ndec is decimal(12,2)
			v[5] = Text("-9999999999.99")
		} else {
			v[5] = Text("9999999999.99")
		}
		return v
	}
	smallest := least()
	smallest[4], smallest[5] = Float(5e-324), Text("0.0000000001")
	smallest[10] = Time(time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC))
	smallest[11] = Text(`[]`)
	for i, v := range [][]event.Value{least(), most(), smallest} {
		h.append(ev{table: "types", version: 1, values: typesRow(int64(i), v, nullable(v))})
	}
	h.append(ev{table: "types", version: event.VersionMax, values: typesRow(9, most(), nullable(least()))})
	h.append(ev{table: "types", op: event.Delete, version: event.VersionMax, values: typesRow(10, most(), nullable(least()))})
	h.takeOver().drain(1000)
	h.wantRejected()
	h.check()
}

// NULL replaces a value and a value NULL; an empty string is neither.
func nullAndValue(h *harness) {
	nulls := make([]event.Value, 12)
	for i := range nulls {
		nulls[i] = Null()
	}
	opt := most()
	opt[5] = Text("1.00")
	h.append(ev{table: "types", version: 1, values: typesRow(1, least(), nulls)},
		ev{table: "types", version: 1, values: typesRow(2, least(), opt)},
		ev{table: "people", version: 1, values: []event.Value{Text("acme"), Text("empty"), Text("")}},
		ev{table: "people", version: 1, values: []event.Value{Text("acme"), Text("null"), Null()}})
	o := h.takeOver()
	o.drain(100)
	h.check()
	h.append(ev{table: "types", version: 2, values: typesRow(1, least(), opt)},
		ev{table: "types", version: 2, values: typesRow(2, least(), nulls)},
		ev{table: "people", version: 2, values: []event.Value{Text("acme"), Text("empty"), Null()}},
		ev{table: "people", version: 2, values: []event.Value{Text("acme"), Text("null"), Text("")}})
	o.drain(100)
	h.check()
}

// P6: the month is that of UTC and of the whole microsecond; nothing is rounded into the next one.
func monthEdges(h *harness) {
	for i, at := range []time.Time{
		time.Date(2026, 5, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2024, 2, 29, 23, 59, 59, 999999000, time.UTC),
		time.Date(2024, 3, 1, 0, 0, 0, 1000, time.UTC),
		time.Date(2025, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC),             // months.from
		time.Date(2026, 8, 31, 23, 59, 59, 999999000, time.UTC), // two months after the append
	} {
		v := order("acme", int64(i), "edge", 0)
		v[2] = Time(at)
		h.append(ev{table: "orders", version: 1, values: v},
			ev{table: "days", version: 1, values: []event.Value{Text("acme"), Int(int64(i)), Day(at), Int(1), Text("1.00")}})
	}
	h.takeOver().drain(3)
	h.wantRejected()
	h.check()
}

func snowflake(at time.Time, low uint64) uint64 {
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	return uint64(at.Sub(epoch).Milliseconds())<<22 | low
}

func snowflakeMonths(h *harness) {
	for _, id := range []uint64{
		snowflake(time.Date(2026, 5, 31, 23, 59, 59, 999e6, time.UTC), 1<<22-1),
		snowflake(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), 0),
		snowflake(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), 5),
	} {
		for _, tenant := range []string{"acme", Spread} {
			h.append(ev{table: "events", version: 1, values: []event.Value{Text(tenant), Uint(id), Text("k")}})
		}
	}
	h.takeOver().drain(2)
	h.check()
}

// A broadcast row is once in every shard; a table without a month has one physical table.
func broadcastAndMonthless(h *harness) {
	h.append(ev{table: "places", version: 1, values: []event.Value{Text("HAM"), Text("Hamburg")}},
		ev{table: "places", version: 1, values: []event.Value{Text("BRE"), Text("Bremen")}},
		ev{table: "people", version: 1, values: []event.Value{Text("acme"), Text("ann"), Text("a@x")}},
		ev{table: "places", version: 2, values: []event.Value{Text("HAM"), Text("Hamburg Airport")}},
		ev{table: "places", op: event.Delete, version: 2, values: []event.Value{Text("BRE"), Text("")}},
		ev{table: "places", version: 1, values: []event.Value{Text("HAM"), Text("late")}})
	h.takeOver().drain(2)
	h.check()
}

// P6: each kind of placement, each row in the one shard and month that the layout says.
func placements(h *harness) {
	for i := range int64(40) {
		for _, tenant := range []string{Dedicated, Spread, fmt.Sprint("t", i), "acme"} {
			v := order(tenant, i, "s", i)
			v[2] = Time(appended.AddDate(0, -int(i%5), 0))
			h.append(ev{table: "orders", version: i + 1, values: v},
				ev{table: "people", version: i + 1, values: []event.Value{Text(tenant), Text(fmt.Sprint("n", i)), Null()}})
		}
	}
	h.takeOver().drain(50)
	h.check()
}

func serviceVersion(h *harness) {
	row := func(rev int64, total string) []event.Value {
		return []event.Value{Text("acme"), Int(1), day(2026, 3, 31), Int(rev), Text(total)}
	}
	for _, rev := range []int64{2, 9, 4} {
		h.append(ev{table: "days", version: rev, values: row(rev, fmt.Sprintf("%d.50", rev))})
	}
	o := h.takeOver()
	o.drain(100)
	h.append(ev{table: "days", op: event.Delete, version: 9, values: row(9, "0.00")})
	o.drain(100)
	h.check()
}

// Versions up to 2^62-1 compare as integers, doubled.
func greatestVersion(h *harness) {
	h.append(ev{table: "orders", version: event.VersionMax - 1, values: order("acme", 1, "less", 1)},
		ev{table: "orders", version: event.VersionMax, values: order("acme", 1, "most", 2)},
		ev{table: "orders", version: 1, values: order("acme", 1, "late", 3)},
		ev{table: "orders", op: event.Delete, version: event.VersionMax, values: order("acme", 2, "", 0)},
		ev{table: "orders", version: event.VersionMax, values: order("acme", 2, "back", 3)})
	h.takeOver().drain(1)
	h.check()
}
