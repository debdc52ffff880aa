// Package config reads slotline.yaml: one file, validated once, for every process of a line.
//
// What it promises:
//
//   - A [Config] that Load or Parse returns is whole: every default is filled in, every bound is kept, the layout and
//     the tables have passed the checks of partitioner and event. Nothing downstream checks the file again.
//   - All that is wrong with a file is found at once. Each problem names the file, the line and what to write instead.
//   - No secret is read before it is used ([DSN.Resolve]), and nothing here prints one: not a DSN, not an [Address], not
//     an error's excerpt, whatever the verb or encoder.
//
// What it assumes: that the file stays as it was read; a process that shall see another is started again.
//
// How it fails: with [Problems], each a fault of class Usage (SL10nn, and SL11nn from event), or with the one fault of an
// unreadable file (SL1001) or an unset variable (SL1011). Nothing panics on bad text.
//
// keys.go is the file's grammar; docs/configuration.md is its public form, and a test compares them.
package config
