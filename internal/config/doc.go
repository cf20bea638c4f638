// Package config reads what an operator decides in the environment: the ORCH_… variables. Its neighbour orchyaml reads
// the file.
//
// Load reads the environment once. Every variable is a field of a section of Config, whose tags hold its name and its
// default; a variable that is set but empty counts as not set. A secret may come from a file instead, named by a
// variable that ends in _FILE. Load fails on a value that can't be read; Validate names every contradiction among values
// that can. Programs that only talk to a server skip Validate.
package config
