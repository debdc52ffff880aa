package event

// ParseType reads a column type as slotline.yaml writes it; a trailing "?" makes the column nullable.
func ParseType(s string) (t Type, nullable bool, err error) { panic("being built") }

// String is the form that ParseType reads.
func (t Type) String() string { panic("being built") }

// String is "name type".
func (c Column) String() string { panic("being built") }
