package event

// Validate finds everything that is wrong with a table: the error is Problems.
func (t *Table) Validate() error { panic("being built") }
