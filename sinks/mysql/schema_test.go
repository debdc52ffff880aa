package mysql

import (
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
)

// sameAs is the physical table that tableDDL makes.
func sameAs(t *event.Table) *physical {
	p := &physical{name: t.PhysicalName(202611)}
	for i, c := range t.Columns {
		h := physicalColumn{keyed: i == t.Tenant || i == t.ID, name: c.Name, typ: columnType(c.Type), nullable: c.Nullable, supplied: c.Nullable}
		if c.Type.Kind == event.String || c.Type.Kind == event.Text {
			h.collation = "utf8mb4_0900_bin"
		}
		p.columns = append(p.columns, h)
	}
	p.columns = append(p.columns, physicalColumn{name: "_ver", typ: "bigint"}, physicalColumn{name: "_deleted", typ: "tinyint(1)", supplied: true})
	p.indexes = append(p.indexes, physicalIndex{"PRIMARY", true, primaryKey(t)})
	for _, columns := range t.Indexes {
		p.indexes = append(p.indexes, physicalIndex{indexName(columns), false, columns})
	}
	return p
}

func TestCompareFindsWhatDiffers(t *testing.T) {
	table := testTable(t, "everything")
	set := func(name string, change func(*physicalColumn)) func(*physical) {
		return func(p *physical) {
			for i := range p.columns {
				if p.columns[i].name == name {
					change(&p.columns[i])
				}
			}
		}
	}
	typ := func(name, typ string) func(*physical) {
		return set(name, func(c *physicalColumn) { c.typ = typ })
	}
	for _, c := range []struct {
		name   string
		change func(*physical)
		kind   foundKind
		text   string
		code   string
	}{
		{"nothing", func(*physical) {}, 0, "", ""},
		{"a later format", func(p *physical) { p.comment = "slotline table format 2" }, foundDiffers, "is of format 2", "SL3003"},
		{"its own format", func(p *physical) { p.comment = "slotline table format 1" }, 0, "", ""},
		{"another's comment", func(p *physical) { p.comment = "orders of the month" }, 0, "", ""},
		{"a missing column", func(p *physical) { p.columns = append(p.columns[:3:3], p.columns[4:]...) }, foundMissing, "ADD COLUMN `a_bool` TINYINT(1) NOT NULL DEFAULT 0", "SL3003"},
		{"a shorter string", typ("a_string", "varchar(9)"), foundNarrow, "MODIFY COLUMN `a_string` VARCHAR(10) NOT NULL", "SL3003"},
		{"a longer string", typ("a_string", "varchar(11)"), foundWider, "is varchar(11), file says string(10)", ""},
		{"int for bigint", typ("a_int64", "int"), foundNarrow, "MODIFY COLUMN `a_int64` BIGINT", "SL3003"},
		{"smallint for int", typ("n_int32", "smallint"), foundDiffers, "is smallint, file says int32", "SL3003"},
		{"signed for unsigned", typ("a_uint64", "bigint"), foundDiffers, "is bigint, file says uint64", "SL3003"},
		{"whole seconds", typ("a_datetime", "datetime"), foundDiffers, "is datetime, file says datetime", "SL3003"},
		{"another scale", typ("a_decimal", "decimal(12,1)"), foundDiffers, "is decimal(12,1), file says decimal(12,2)", "SL3003"},
		{"less precision", typ("a_decimal", "decimal(10,2)"), foundNarrow, "MODIFY COLUMN `a_decimal` DECIMAL(12,2)", "SL3003"},
		{"a key that would be rebuilt", typ("id", "int"), foundDiffers, "is int, file says uint64", "SL3003"},
		{"NOT NULL for NULL", set("n_string", func(c *physicalColumn) { c.nullable = false }), foundNarrow, "file allows NULL", "SL3003"},
		{"NULL for NOT NULL", set("a_string", func(c *physicalColumn) { c.nullable = true }), foundWider, "allows NULL", ""},
		{"ids without case", set("owner", func(c *physicalColumn) { c.collation = "utf8mb4_0900_ai_ci" }), foundDiffers, "must be utf8mb4_0900_bin", "SL3004"},
		{"ids that pad", set("owner", func(c *physicalColumn) { c.collation = "utf8mb4_bin" }), foundDiffers, "must be utf8mb4_0900_bin", "SL3004"},
		{"a column of one's own", func(p *physical) {
			p.columns = append(p.columns, physicalColumn{name: "note", typ: "text", supplied: true})
		}, foundUnexpected, "left as it is", ""},
		{"one that must be filled", func(p *physical) { p.columns = append(p.columns, physicalColumn{name: "note", typ: "text"}) }, foundDiffers, "no row could be written", "SL3003"},
		{"a unique key", func(p *physical) {
			p.indexes = append(p.indexes, physicalIndex{"uk", true, []string{"a_string"}})
		}, foundDiffers, "UNIQUE KEY uk (a_string) would let one row overwrite another", "SL3002"},
		{"an index of one's own", func(p *physical) {
			p.indexes = append(p.indexes, physicalIndex{"mine", false, []string{"a_string"}})
		}, 0, "", ""},
		{"a missing index", func(p *physical) { p.indexes = p.indexes[:2] }, foundIndex, "ADD KEY `ix_owner_a_datetime", ""},
		{"another primary key", func(p *physical) { p.indexes[0].columns = []string{"id"} }, foundDiffers, "PRIMARY KEY (id), it must be (owner,id)", "SL3003"},
		{"no primary key", func(p *physical) {
			p.indexes = p.indexes[1:]
			for i := range p.columns {
				p.columns[i].keyed = false
			}
		}, foundDiffers, "no primary key", "SL3003"},
		{"another's table", func(p *physical) { p.columns = p.columns[:3] }, foundDiffers, "was not made by slotline", "SL3003"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sameAs(table)
			c.change(p)
			list := compare(table, p, dialect{RowAlias: true})
			if c.kind == 0 {
				if len(list) > 0 {
					t.Errorf("found %+v", list)
				}
				return
			}
			if len(list) != 1 || list[0].kind != c.kind || list[0].err != c.code || !strings.Contains(list[0].what+list[0].alter, c.text) {
				t.Errorf("found %+v", list)
			}
		})
	}
}

func TestNormalTypes(t *testing.T) {
	for in, want := range map[string]string{"int(11)": "int", "bigint(20) unsigned": "bigint unsigned", "TINYINT": "tinyint(1)", "varchar(10)": "varchar(10)", "datetime(6)": "datetime(6)"} {
		if got := normalType(in); got != want {
			t.Errorf("%s became %s", in, got)
		}
	}
}

// Physical names lead back to their table, and names that only look like a month table do not.
func TestLogicalNames(t *testing.T) {
	s := testSink(t)
	for name, want := range map[string]string{
		"everything_202611": "everything 202611", "places": "places none", "everything": "", "everything_202613": "",
		"everything_20261": "", "places_202611": "", "slotline_progress": "", "everything_202611__rb_x": "",
	} {
		got := ""
		if i, m, ok := s.logical(name); ok {
			got = s.tables[i].Name + " " + m.String()
		}
		if got != want {
			t.Errorf("%s is of %q, wanted %q", name, got, want)
		}
	}
}
