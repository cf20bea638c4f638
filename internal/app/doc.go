// Package app wires orch together; it and the packages below it are the only ones that know all others. Each consumer
// declares the small interfaces it needs, and the adapters here fill them in.
//
//   - serve.go: one orch process under its supervisor, stage by stage; readiness.go: what /readyz says of it
//   - system.go: what stands on database and data root once both are there
//   - work.go, execution.go, landing.go: workspaces, agents and gates, and the merge gate's view of them
//
// Below it, knowing each other but not the wiring: catalog (how a task is to be done), view (what the API shows),
// database (given or private, and its schema), and what commands need without a server: setup and doctor.
package app
