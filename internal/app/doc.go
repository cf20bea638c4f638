// Package app wires orch together; it is the only package that knows all others. Each consumer declares the small
// interfaces it needs, and the adapters here fill them in.
//
//   - serve.go: one orch process under its supervisor, stage by stage
//   - system.go: what stands on database and data root once both are there
//   - catalog.go: how a task is to be done, by orch.yaml or by what it brought along
//   - work.go, execution.go, landing.go: workspaces, agents and gates, and the merge gate's view of them
//   - apitask.go, apirun.go, snapshot.go: what the API shows
//   - database.go, setup.go, doctor.go: commands that work without a server
package app
