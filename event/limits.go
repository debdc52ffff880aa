package event

// Limits are what one engine can hold of each type. Check finds a value outside of them.
type Limits struct {
	Sink string
}

var (
	LimitsMySQL      = Limits{Sink: "mysql"}
	LimitsClickHouse = Limits{Sink: "clickhouse"}
	LimitsDoris      = Limits{Sink: "doris"}
)

// CheckTable finds columns that the engine has no type for.
func (l *Limits) CheckTable(t *Table) error { panic("being built") }

// Check finds the first value that the engine cannot hold: a *DataError.
func (l *Limits) Check(t *Table, r *Row) error { panic("being built") }
