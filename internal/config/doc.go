// Package config reads what an operator decides: the ORCH_… variables of the environment and orch.yaml.
//
// # Environment
//
// Load reads it once. Every variable is a field of a section of Config, whose tags hold its name and its default; a
// variable that is set but empty counts as not set. A secret may come from a file instead, named by a variable that
// ends in _FILE. Load fails on a value that can't be read; Validate names every contradiction among values that can.
// Programs that only talk to a server skip Validate.
//
// # orch.yaml
//
// LoadFile refuses what it doesn't understand, each with file, line and what was meant, all at once. What it answers
// needs no further checking: names resolve, durations and templates are parsed, defaults are filled in.
package config
