// Package event is what travels: the schema of a table, the row image of an entity in JSON, the Kafka record around
// it, and the comparison of a Go struct with a table. It is pure: no I/O, and no clock or randomness but in NewID.
//
// What it promises:
//
//   - A row image that DecodeRow accepts holds a value within its column's type for every column, exactly as it was
//     encoded (P12). What is outside is refused with a [DataError] that names the column, never altered.
//   - AppendRow is byte-stable: the same values give the same bytes, whatever the process, and DecodeRow of them gives
//     the same values. An (entity, version) thus has one image.
//   - DecodeRow and ParseView allocate nothing once their destination has grown to the size of the rows.
//   - Every proper prefix of a row image is refused, and so is a record whose key, body or list of headers is cut.
//
// It is strict, so that an image means one thing in every language: integers are JSON integers without fraction,
// exponent, leading zeros or minus zero; decimals are strings; dates and times have one form each; no field comes
// twice; no text holds invalid UTF-8 or half a surrogate pair. docs/formats.md and docs/types.md are its public form.
//
// What it assumes: that a Table has passed Validate and does not change afterwards, and that a body or record is
// not written to while a Row or View points into it.
//
// How it fails: a bad event is a *DataError, whose class is fault.Data: it concerns that event alone. A record of a
// newer format is fault.Fatal: the binary is old, the event is not bad. A bad declaration is Problems, or from StructOf a list
// of fault.Error of class Usage.
package event
