// Package orchyaml reads and extends orch.yaml: repositories, agents and pipelines.
//
// LoadFile refuses what it doesn't understand, each with file, line and what was meant, all at once. What it answers
// needs no further checking: names resolve, durations are parsed, prompts were tried, defaults are filled in. AddRepo
// adds a repository and leaves the rest of the file as a person wrote it.
package orchyaml
