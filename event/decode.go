package event

// DecodeRow reads a row image into dst.
func (t *Table) DecodeRow(body []byte, op Op, dst *Row) error { panic("being built") }

// DecodeView reads the row image of a parsed record into dst: DecodeRow, and the version; the body must agree with the
// record's key and version.
func (t *Table) DecodeView(v *View, dst *Row) error { panic("being built") }
